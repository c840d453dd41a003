"""What durability costs: `scripts/bench durability`, or `python -m headwater_lab.durability`.

A hundred publishers with QoS 1, one subscriber with a session that is kept; delivered messages a second and the
broker's CPU time for each, for headwater with each `--durability`, for Mosquitto that saves after every change
(`autosave_interval 1`, `autosave_on_changes true`), and for Mosquitto as it is by default, which saves every half hour.

What is compared. `sync` acknowledges what is on disk. Mosquitto acknowledges before it saves, and saving writes its
whole state anew; with the settings above that happens after every change, which is the nearest that it comes to `sync`,
and costs more the more is queued. Its default is comparable with `async` in what is promised, though not in what is
lost.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from headwater_lab import machine
from headwater_lab.contenders import Command, find_mosquitto, running
from headwater_lab.load import VIOLATIONS, LoadGenerator, build
from headwater_lab.report import number, table
from headwater_lab.results import dated, write_json

PUBLISHERS: Final = 100
WINDOWS: Final = (1, 20)
GOAL: Final = 10.0
"""`sync` over Mosquitto that saves after every change, in messages a second."""

_MOSQUITTO: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
max_queued_messages 0
set_tcp_nodelay true
log_type error
user root
persistence true
persistence_location {folder}/
{saving}
"""


def _headwater(durability: str) -> Command:
    def command(port: int, folder: Path) -> list[str]:
        words = [sys.executable, "-m", "headwater", "broker", "--port", str(port), "--log-level", "error"]
        return [*words, "--data-dir", str(folder / f"data-{port}"), "--durability", durability]

    return command


def _mosquitto(saving: str) -> Command:
    def command(port: int, folder: Path) -> list[str]:
        data = folder / f"data-{port}"
        data.mkdir()
        config = folder / f"mosquitto-{port}.conf"
        config.write_text(_MOSQUITTO.format(port=port, folder=data, saving=saving))
        return [find_mosquitto(), "-c", str(config)]

    return command


CONTENDERS: Final[dict[str, Command]] = {
    "headwater sync": _headwater("sync"),
    "headwater async": _headwater("async"),
    "headwater none": _headwater("none"),
    "Mosquitto, every change": _mosquitto("autosave_interval 1\nautosave_on_changes true"),
    "Mosquitto, default": _mosquitto(""),
}

Samples = dict[str, dict[str, list[float]]]
"""Of a window: contender -> `rate` and `us` of each round."""


def measure(rounds: int, seconds: float, tell: Callable[[str], None]) -> dict[int, Samples]:
    """All contenders in turn, so many times. LoadError, BrokerError: it could not be measured."""
    results: dict[int, Samples] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generator = build(folder)
        for window in WINDOWS:
            samples = results[window] = {contender: {"rate": [], "us": []} for contender in CONTENDERS}
            for turn in range(rounds):
                for contender, command in CONTENDERS.items():
                    rate, cost = _one(generator, command, folder, window, seconds)
                    samples[contender]["rate"].append(rate)
                    samples[contender]["us"].append(cost)
                    tell(f"window {window}, round {turn + 1}/{rounds}: {contender:24} {rate:10,.0f}/s {cost:8.2f} µs")
    return results


def _one(generator: LoadGenerator, command: Command, folder: Path, window: int, seconds: float) -> tuple[float, float]:
    with running(command, folder) as broker:
        options = f"--publishers {PUBLISHERS} --subscribers 1 --topics 1 --qos 1 --payload 64 --keep-sessions"
        options += f" --window {window} --seconds {seconds:g} --warmup 0.5 --drain 30"
        options += f" --broker-pids {','.join(map(str, broker.pids()))}"
        result = generator.run("traffic", broker.port, options.split(), limit=seconds + 120)
    wrong = {name: result[name] for name in VIOLATIONS if result[name]}
    if wrong:
        raise SystemExit(f"messages were not delivered as they should be: {wrong}")
    return result["rate"], result["us"]


def markdown(results: dict[int, Samples]) -> str:
    head = ["under way per publisher", *CONTENDERS, "sync / every change", "goal"]
    rows = []
    for window, samples in results.items():
        cells = [
            f"{_median(samples, name, 'rate'):,.0f}/s, {number(_median(samples, name, 'us'))} µs" for name in CONTENDERS
        ]
        rows.append([str(window), *cells, f"{ratio(samples):.0f}", f"≥ {GOAL:g}"])
    return table(head, rows)


def ratio(samples: Samples) -> float:
    return _median(samples, "headwater sync", "rate") / _median(samples, "Mosquitto, every change", "rate")


def _median(samples: Samples, contender: str, what: str) -> float:
    return statistics.median(samples[contender][what])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print and keep the result; 1 if the goal was missed."""
    parser = argparse.ArgumentParser(prog="scripts/bench durability", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", type=Path, default=None, help="where the result is kept; default: docs/results")
    chosen = parser.parse_args(arguments)
    results = measure(chosen.rounds, chosen.seconds, lambda text: print(text, flush=True))
    kept = {
        "what": "durability",
        "machine": machine.describe("headwater broker --data-dir DIR --durability …"),
        "windows": results,
    }
    file = chosen.json or dated(Path("docs/results"), "durability")
    write_json(file, kept)
    print(f"\n{markdown(results)}\n\nkept in {file}")
    return 0 if all(ratio(samples) >= GOAL for samples in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
