"""A broker at half its speed for a while, with clients that come and go: scripts/bench soak [--minutes 10]

What the broker holds must not grow while its load stays the same. Pairs of clients send at a rate that takes, together
with the others, about half of one processor; guests connect over TCP, TLS and WebSocket, subscribe, share groups, set
and clear retained messages, leave wills and sessions behind and come back (soak_churn.py). Each second memory, open
files, timers, tasks, objects and sessions are looked at.

Theory. The verdict is about the second half, when all caches are warm. The slope of each figure is the median of the
slopes between all pairs of samples (Theil and Sen), which neither a peak nor a sawtooth moves; what the figure would
grow by in that half, at that slope, has to be within a tolerance. A full run writes docs/results/soak-DATE.json and
.svg.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

from headwater.fleet.process import BrokerError
from headwater_lab import machine
from headwater_lab.contenders import raise_file_limit
from headwater_lab.hostile_field import HOST, PATIENCE
from headwater_lab.hostile_ground import Ground, ground
from headwater_lab.load import VIOLATIONS, LoadError, LoadGenerator, build
from headwater_lab.options import output_options
from headwater_lab.results import dated

LOAD: Final = 0.5
"""Of one processor."""
PAIRS: Final = 20
FIRST_RATE: Final = 2000.0
TRIES: Final = 5
"""To find out the rate; each at most doubles it."""
GUESTS: Final = "from headwater_lab.soak_churn import main; main()"
NEEDS: Final = ("tls", "websocket", "admin")


@dataclass(frozen=True)
class Figure:
    """What is looked at. In the second half it may grow by `share` of itself and by `more`."""

    name: str
    unit: str
    share: float
    more: float

    def tolerance(self, level: float) -> float:
        return self.share * level + self.more


FIGURES: Final = (
    Figure("resident", "MiB", 0.02, 1.0),
    Figure("blocks", "blocks of memory", 0.02, 2000),
    Figure("files", "open files", 0.05, 3),
    Figure("timers", "timers", 0.25, 70),  # those that were cancelled stay until they are half of all, and 64 more
    Figure("tasks", "tasks", 0.0, 1),
    Figure("sessions", "sessions", 0.05, 10),
)
Sample = dict[str, float]


@dataclass
class Verdict:
    """`growth` is what the figure grew by in the second half, by its slope."""

    figure: str
    level: float
    growth: float
    tolerance: float

    @property
    def holds(self) -> bool:
        return self.growth <= self.tolerance


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """The median of the slopes between all pairs (Theil and Sen); 0.0 for fewer than two points."""
    slopes = [
        (values[later] - values[earlier]) / (times[later] - times[earlier])
        for earlier in range(len(times))
        for later in range(earlier + 1, len(times))
    ]
    return statistics.median(slopes) if slopes else 0.0


def judge(samples: Sequence[Sample]) -> list[Verdict]:
    """About the second half of the time."""
    until = samples[-1]["time"]
    half = [sample for sample in samples if sample["time"] >= until / 2]
    times = [sample["time"] for sample in half]
    verdicts = []
    for figure in FIGURES:
        values = [sample[figure.name] for sample in half]
        level = statistics.median(values)
        growth = slope(times, values) * (times[-1] - times[0])
        verdicts.append(Verdict(figure.name, level, growth, figure.tolerance(level)))
    return verdicts


class Watch:
    """Looks at a broker from outside: /proc, and its metrics."""

    def __init__(self, place: Ground) -> None:
        self._place = place
        self._began = time.monotonic()
        self._cpu = place.cpu_seconds()

    def look(self) -> Sample:
        place = self._place
        metrics = self._metrics()
        return {
            "time": time.monotonic() - self._began,
            "cpu": place.cpu_seconds() - self._cpu,
            "resident": place.broker.resident_bytes() / (1 << 20),
            "files": sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in place.broker.pids()),
            "blocks": metrics["headwater_memory_blocks"],
            "timers": metrics["headwater_timers"],
            "tasks": metrics["headwater_tasks"],
            "sessions": metrics["headwater_sessions"],
            "connections": metrics["headwater_connections"],
            "subscriptions": metrics["headwater_subscriptions"],
            "retained": metrics["headwater_retained_messages"],
            "queued": metrics["headwater_queued_messages"],
            "messages": metrics["headwater_messages_sent_total"],
            "protocol errors": metrics["headwater_protocol_errors_total"],
            "failures": metrics["headwater_failures_total"],
        }

    def _metrics(self) -> dict[str, float]:
        connection = HTTPConnection(HOST, self._place.admin_port, timeout=PATIENCE)
        try:
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {self._place.token}"})
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        lines = [line.split() for line in text.splitlines() if line.startswith("headwater_") and "{" not in line]
        return {name: float(value) for name, value in lines}


class Soak:
    """One broker under its load."""

    def __init__(self, place: Ground, load: LoadGenerator) -> None:
        self._place = place
        self._load = load
        self.counts: dict[str, int] = {}

    def rate(self) -> float:
        """Messages a second that, with the churn, take about the wanted share of a processor."""
        rate = FIRST_RATE
        with self._churning(TRIES * 3.5):
            for _ in range(TRIES):
                rate *= min(2.0, max(0.5, LOAD / self._used(rate)))
        return rate

    def _used(self, rate: float) -> float:
        """The share of a processor that the broker takes meanwhile."""
        before, began = self._place.cpu_seconds(), time.monotonic()
        self._load.run("traffic", self._place.broker.port, _options(rate, 2.5), limit=60)
        return (self._place.cpu_seconds() - before) / (time.monotonic() - began)

    def run(self, seconds: float, rate: float, every: float) -> list[Sample]:
        """Samples; raises BrokerError when the broker fails, LoadError when messages go wrong."""
        watch = Watch(self._place)
        words = [str(self._load.program), "traffic", "--port", str(self._place.broker.port), *_options(rate, seconds)]
        samples = []
        with (
            self._churning(seconds),
            subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as load,
        ):
            try:
                until = time.monotonic() + seconds
                while (now := time.monotonic()) < until:
                    samples.append(watch.look())
                    time.sleep(max(0.0, now + every - time.monotonic()))
                output, errors = load.communicate(timeout=60)
            finally:
                load.kill()
        self._check(output, errors)
        self._place.check()
        for name in ("failures", "protocol errors"):
            if samples[-1][name]:
                raise BrokerError(f"the broker counts {samples[-1][name]:.0f} {name}")
        return samples

    def _check(self, output: str, errors: str) -> None:
        if not output:
            raise LoadError(errors.strip() or "the load generator ended without a word")
        result = json.loads(output)
        wrong = [f"{name} {result[name]}" for name in VIOLATIONS if result[name]]
        if wrong:
            raise LoadError(f"messages went wrong: {', '.join(wrong)}")

    def _churning(self, seconds: float) -> _Churning:
        place = self._place
        ports = [place.broker.port, place.secure_port, place.web_port]
        return _Churning([*map(str, ports), "--seconds", str(seconds)], self.counts)


class _Churning:
    """Guests in a process of their own, as long as the context is open."""

    def __init__(self, arguments: list[str], counts: dict[str, int]) -> None:
        self._words = [sys.executable, "-c", GUESTS, *arguments]
        self._counts = counts

    def __enter__(self) -> None:
        self._process = subprocess.Popen(self._words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise BrokerError("the guests did not come")

    def __exit__(self, *problem: object) -> None:
        with self._process:
            if problem[0] is not None:
                self._process.kill()
                return
            output, _ = self._process.communicate(timeout=60)
        if not output:
            raise BrokerError("the guests did not leave as they should")
        self._counts.update(json.loads(output))


def _options(rate: float, seconds: float) -> list[str]:
    words = f"--publishers {PAIRS} --subscribers {PAIRS} --topics {PAIRS} --qos 1 --rate {rate:.0f}".split()
    return [*words, "--seconds", f"{seconds:g}", "--warmup", "0.3"]


# ---- results -----------------------------------------------------------------------------------------------------


def line(verdict: Verdict) -> str:
    """For the terminal."""
    text = f"{verdict.figure:10} {verdict.level:12,.1f}  grew by {verdict.growth:+10,.2f} (at most "
    return f"{text}{verdict.tolerance:,.2f}){'' if verdict.holds else '  GROWS'}"


def draw(samples: Sequence[Sample], file: Path) -> None:
    """A picture of all figures over time."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "headwater"
    from matplotlib import pyplot

    picture, axes = pyplot.subplots(len(FIGURES), 1, figsize=(8, 1.3 * len(FIGURES)), sharex=True)
    times = [sample["time"] / 60 for sample in samples]
    for axis, figure in zip(axes, FIGURES, strict=True):
        axis.plot(times, [sample[figure.name] for sample in samples], linewidth=0.8)
        axis.set_ylabel(figure.name, fontsize=8)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=7)
    axes[-1].set_xlabel("minutes")
    picture.tight_layout()
    picture.savefig(file, metadata={"Date": None})
    pyplot.close(picture)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: 10)")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two looks (default: 1)")
    parser.add_argument("--rate", type=float, help="messages a second (default: found out, for half a processor)")
    parser.add_argument("--broker-arguments", default="", help="more for the broker: --broker-arguments='--data-dir D'")
    output_options(parser)
    options = parser.parse_args(arguments)
    raise_file_limit()
    facts = machine.describe(shlex.join(["headwater", "broker", *shlex.split(options.broker_arguments)]))
    facts["load before"] = f"{os.getloadavg()[0]:.1f}"
    try:
        with tempfile.TemporaryDirectory(prefix="headwater-soak-") as name:
            load = build(Path(name))
            with ground(NEEDS, Path(name), options.broker_arguments) as place:
                soak = Soak(place, load)
                rate = options.rate or soak.rate()
                print(f"{rate:,.0f} messages a second for {options.minutes:g} minutes", flush=True)
                samples = soak.run(60 * options.minutes, rate, options.every)
    except (BrokerError, LoadError) as problem:
        print(f"FAILED: {problem}", file=sys.stderr)
        return 1
    verdicts = judge(samples)
    facts["processor"] = f"{100 * samples[-1]['cpu'] / samples[-1]['time']:.0f} % of one"
    print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    print("\n".join(f"{name}: {count:,}" for name, count in sorted(soak.counts.items())))
    print("\n".join(map(line, verdicts)), flush=True)
    data = {
        "machine": facts,
        "rate": rate,
        "churn": soak.counts,
        "verdicts": [vars(verdict) | {"holds": verdict.holds} for verdict in verdicts],
        "samples": [{name: round(value, 3) for name, value in sample.items()} for sample in samples],
    }
    _write(options, data, samples)
    return 0 if all(verdict.holds for verdict in verdicts) else 1


def _write(options: argparse.Namespace, data: dict[str, object], samples: Sequence[Sample]) -> None:
    text = json.dumps(data, ensure_ascii=False).replace('{"time"', '\n{"time"') + "\n"
    if options.json:
        options.json.write_text(text)
    if options.no_docs or options.minutes < 10:
        return
    file = dated(options.docs / "results", "soak")
    file.write_text(text)
    draw(samples, file.with_suffix(".svg"))


if __name__ == "__main__":
    sys.exit(main())
