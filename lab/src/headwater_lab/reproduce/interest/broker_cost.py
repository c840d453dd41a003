"""What filters cost a broker: throughput and latency with so many questions for each PUBLISH (figure 7).

As in the paper: one publisher, one subscriber, MQTT 5, payloads of 1,024 bytes. The paper's publisher sends every ten
microseconds whatever comes; ours has a bounded number of messages under way, so that latency is that of a broker which
is busy, and not of a queue that grows as long as the experiment lasts.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from headwater.fleet.process import RunningBroker, free_port
from headwater_lab import machine
from headwater_lab.figure import Picture, save
from headwater_lab.load import LoadGenerator, build
from headwater_lab.reproduce.computing import progress
from headwater_lab.reproduce.page import Table
from headwater_lab.reproduce.reporter import Report, Reporter
from headwater_lab.results import Record, record

NAME: Final = "interest --broker"
QUERIES: Final = (0, 1, 10, 100, 1000)
METHODS: Final = ("bf", "bfp", "prefix", "summary")
LEVELS: Final = (2, 4, 6, 8, 10)
WINDOW: Final = 64


class Case(NamedTuple):
    """`words` are for the broker."""

    name: str
    words: tuple[str, ...]


class Cost(NamedTuple):
    name: str
    rate: float
    """Messages that the subscriber got in a second."""
    latency: float
    """Mean, in milliseconds."""


def cases() -> Iterator[Case]:
    yield Case("none", ())
    for count in QUERIES:
        yield Case(f"queries={count}", ("--queries", str(count)))
    for method in METHODS:
        for levels in LEVELS:
            yield Case(f"{method}/n_lv={levels}", ("--method", method, "--levels", str(levels)))


def measure(seconds: float, watch: Callable[[int, int], None], chosen: list[Case] | None = None) -> list[Cost]:
    """Raises BrokerError, LoadError."""
    several = list(cases()) if chosen is None else chosen
    found = []
    with tempfile.TemporaryDirectory(prefix="headwater-interest-") as name:
        folder = Path(name)
        load = build(folder)
        for case in several:
            found.append(_measure(case, load, folder, seconds))
            watch(len(found), len(several))
    return found


def _measure(case: Case, load: LoadGenerator, folder: Path, seconds: float) -> Cost:
    port = free_port()
    words = [sys.executable, "-m", "headwater_lab.reproduce.interest.asking", "--port", str(port), *case.words]
    broker = RunningBroker(words, port, folder / "errors")
    try:
        options = ["--mqtt", "5", "--publishers", "1", "--subscribers", "1", "--topics", "1", "--payload", "1024"]
        options += ["--window", str(WINDOW), "--latency", "--seconds", str(seconds), "--warmup", str(seconds / 10)]
        result = load.run("traffic", port, options, limit=3 * seconds + 60)
    finally:
        broker.stop()
    return Cost(case.name, result["rate"], result["mean"] / 1000)


def records(found: list[Cost]) -> list[Record]:
    listed: list[Record] = []
    for each in found:
        for what, value, unit in (("msgs_per_s", each.rate, "1/s"), ("latency_ms", each.latency, "ms")):
            listed.append(record(f"figure7/{each.name}/{what}", None, value, unit))
    return listed


def table(found: list[Cost]) -> Table:
    base = next((each.rate for each in found if each.name == "queries=0"), found[0].rate)
    rows = [(each.name, f"{each.rate:,.0f}", f"{each.rate / base:.2f}", f"{each.latency:.2f}") for each in found]
    head = ("questions for each PUBLISH", "messages/s", "of those without", "latency, ms")
    return Table("figure 7: what filters cost a broker", head, rows)


def run(seconds: float, json_file: Path | None, folder: Path | None) -> int:
    """Measure, print, write; the exit status. Raises BrokerError, LoadError, OSError."""
    reporter = Reporter(json_file, folder)
    facts = machine.describe(f"headwater reproduce {NAME} --seconds {seconds:g}", mosquitto=False)
    reporter.begin(facts)
    with progress(reporter, len(list(cases()))) as watch:
        found = measure(seconds, watch)
    reporter.end(report(facts, found))
    return 0


def report(facts: dict[str, str], found: list[Cost]) -> Report:
    return Report(
        NAME,
        facts,
        [table(found)],
        records(found),
        data={},
        draw=lambda folder: draw(found, folder / "interest-7.svg"),
        stem="interest-7",
        page="interest.md",
    )


def draw(found: list[Cost], file: Path) -> list[Path]:
    """Throughput as bars and latency as crosses, as the paper has it. FigureError: matplotlib is not installed."""
    return save([Picture(file, (11, 3.6), lambda figure: _draw(figure, found))])


def _draw(figure: Any, found: list[Cost]) -> None:
    axes = figure.add_subplot()
    places = range(len(found))
    axes.bar(places, [each.rate for each in found], color="#3b6fb6")
    axes.set_ylabel("messages/s")
    axes.set_xticks(places, [each.name for each in found], rotation=60, ha="right", fontsize=7)
    beside = axes.twinx()
    beside.plot(places, [each.latency for each in found], "x", color="#c0392b")
    beside.set_yscale("log")
    beside.set_ylabel("latency, ms (crosses)")
