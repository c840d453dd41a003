"""Check Mosquitto, NATS, RabbitMQ and Headwater with check-broker: `scripts/bench check-brokers`.

Starts each broker or cluster on loopback, disturbs it with shell commands as a user of `headwater check-broker` would,
and keeps the outcome as it is: docs/results/check-broker-NAME-DATE.json, and a table of all in docs/check-broker.md.
The exit status is 0 if all could be run, whatever was found, and 2 if one could not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from headwater import __version__
from headwater.fleet.process import BrokerError
from headwater_lab import machine
from headwater_lab.check_broker import contestants
from headwater_lab.check_broker.contestants import Node, running
from headwater_lab.check_broker.features import CannotRun
from headwater_lab.check_broker.judges.court import judge
from headwater_lab.check_broker.outcome import Progress
from headwater_lab.check_broker.promises import parse_promises
from headwater_lab.check_broker.report import Report, as_json, text
from headwater_lab.check_broker.run import Settings, run
from headwater_lab.report import table
from headwater_lab.results import dated, update, write_json

RESULT: Final = "check-broker-"
MARKS: Final = (
    "<!-- check-brokers: begin; this part is written by scripts/bench check-brokers -->",
    "<!-- check-brokers: end -->",
)


@dataclass(frozen=True)
class Contestant:
    """`about` says what is not the broker's default; `version` is a command that tells its version."""

    name: str
    about: str
    make: Callable[[Path], list[Node]]
    version: str
    faults: tuple[str, ...] = ("kill", "stop")
    promise: str = "standard"


ALL: Final = (
    Contestant(
        "mosquitto",
        "persistence true as in Debian's configuration; written every 30 minutes and at SIGTERM",
        contestants.one_mosquitto(contestants.PERSISTENT),
        "mosquitto -h",
    ),
    Contestant(
        "mosquitto-term",
        "the same, ended by SIGTERM only",
        contestants.one_mosquitto(contestants.PERSISTENT),
        "mosquitto -h",
        ("term", "stop"),
    ),
    Contestant(
        "mosquitto-autosave",
        "persistence true, autosave_on_changes true, autosave_interval 1: the most that there is",
        contestants.one_mosquitto(contestants.PERSISTENT + contestants.OFTEN),
        "mosquitto -h",
    ),
    Contestant(
        "mosquitto-bridge",
        "two brokers, one bridge: topic # both 2, cleansession false; persistence true",
        contestants.mosquitto_bridge,
        "mosquitto -h",
        ("term", "stop"),
        "per-node",
    ),
    Contestant("nats", "three nodes, JetStream with file storage", contestants.nats_cluster, "nats-server --version"),
    Contestant(
        "rabbitmq",
        "three nodes, plugin rabbitmq_mqtt",
        contestants.rabbitmq_cluster,
        "dpkg-query -W -f ${Version} rabbitmq-server",
    ),
    Contestant("headwater", "data_dir, so durability sync", contestants.one_headwater, ""),
    Contestant("headwater-cluster", "three nodes, data_dir", contestants.headwater_cluster, ""),
    Contestant(
        "headwater-cluster-wait",
        'three nodes, data_dir, cluster.session_lost = "wait"',
        partial(contestants.headwater_cluster, settings=("cluster.session_lost=wait",)),
        "",
    ),
    Contestant(
        "headwater-cluster-per-node",
        "three nodes, data_dir; clients stay at their nodes",
        contestants.headwater_cluster,
        "",
        promise="per-node,+retained-converges",
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and return the exit status."""
    options = parse(arguments)
    if options.table:
        write_table(options.docs)
        return 0
    chosen = [each for each in ALL if not options.only or each.name in options.only]
    unknown = set(options.only) - {each.name for each in ALL}
    if unknown:
        print(f"unknown: {', '.join(unknown)}; there are {', '.join(each.name for each in ALL)}", file=sys.stderr)
        return 2
    failed = False
    for contestant in chosen:
        print(f"== {contestant.name}: {contestant.about}", flush=True)
        try:
            check(contestant, options)
        except (BrokerError, CannotRun) as problem:
            print(f"{contestant.name}: {problem}", file=sys.stderr)
            failed = True
    write_table(options.docs)
    return 2 if failed else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench check-brokers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("only", nargs="*", help=f"which ones (default: all): {', '.join(each.name for each in ALL)}")
    parser.add_argument("--seconds", type=float, default=60.0, help="of load on each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", choices=("all", "none"), default="all")
    parser.add_argument("--settle", type=float, default=60.0, help="seconds for what is owed after the last fault")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where outcomes and the table are kept")
    parser.add_argument("--table", action="store_true", help="write the table of the outcomes that there are, and end")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the nodes, and say where")
    return parser.parse_args(arguments)


def check(contestant: Contestant, options: argparse.Namespace) -> None:
    """Raises BrokerError, CannotRun."""
    folder = Path(tempfile.mkdtemp(prefix=f"headwater-{contestant.name}-"))
    with running(contestant.make, folder) as nodes:
        targets = tuple(node.target for node in nodes if node.is_target)
        profile, promised = parse_promises(contestant.promise, len(targets))
        kinds = contestant.faults if options.faults == "all" else ()
        settings = Settings(
            targets,
            seconds=options.seconds,
            seed=options.seed,
            roams=profile == "standard",
            faults=[fault for node in nodes if node.is_target for fault in node.faults(kinds)],
            fault_every=6.0,
            settle=options.settle,
            wait=60.0,
        )
        progress = Progress()
        recorded = asyncio.run(run(settings, progress.tell))
        progress.end()
    report = Report(recorded, profile, promised, judge(recorded.history))
    print(text(report), flush=True)
    facts = machine.describe(contestant.about, mosquitto=False)
    name = contestant.name if kinds else f"{contestant.name}-calm"
    broker = {"name": name, "version": _version(contestant.version), "about": contestant.about}
    write_json(dated(options.docs / "results", f"{RESULT}{name}"), {"broker": broker, **as_json(report, facts)})
    if options.keep:
        print(f"folders: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)


def write_table(docs: Path) -> None:
    """Of the newest outcome of each, if there is a page."""
    newest: dict[str, dict[str, Any]] = {}
    for file in sorted((docs / "results").glob(f"{RESULT}*.json"), key=lambda file: file.stem[-10:]):
        outcome = json.loads(file.read_text(encoding="utf-8"))
        newest[outcome["broker"]["name"]] = outcome
    places = {each.name: place for place, each in enumerate(ALL)}
    ordered = sorted(newest.values(), key=lambda outcome: _place(outcome["broker"]["name"], places))
    if (docs / "check-broker.md").exists():
        update(
            docs / "check-broker.md", "\n\n".join([_table(ordered), _remarks(ordered)]), MARKS, "# Checking a broker"
        )


def _place(name: str, places: dict[str, int]) -> tuple[int, str]:
    return places.get(name.removesuffix("-calm"), len(places)), name


def _table(outcomes: Sequence[dict[str, Any]]) -> str:
    head = ["broker", "faults", "acknowledged", "broken", "seen, and not promised"]
    rows = []
    for outcome in outcomes:
        kinds = Counter(fault["name"].partition("-")[0] for fault in outcome["faults"])
        found = {
            status: ", ".join(
                f"`{each['name']}` {each['violations']} of {each['looked_at']:,}"
                for each in outcome["promises"]
                if each["status"] == status
            )
            for status in ("broken", "seen")
        }
        rows.append(
            [
                outcome["broker"]["name"],
                ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none",
                f"{outcome['counts']['acknowledged']:,}",
                found["broken"] or "nothing",
                found["seen"],
            ]
        )
    return table(head, rows)


def _remarks(outcomes: Sequence[dict[str, Any]]) -> str:
    lines = []
    for outcome in outcomes:
        broker, features, settings = outcome["broker"], outcome["features"], outcome["settings"]
        said = "".join(f"; {remark}" for remark in features["remarks"])
        lines.append(
            f"- **{broker['name']}** ({broker['version']}): {broker['about']}; profile {settings['profile']}, "
            f"MQTT {features['mqtt']}{said}. {settings['seconds']:g} s, {outcome['machine']['date'][:10]}."
        )
    return "\n".join(lines)


def _version(command: str) -> str:
    if not command:
        return __version__
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).partition("\n")[0].strip()


if __name__ == "__main__":
    sys.exit(main())
