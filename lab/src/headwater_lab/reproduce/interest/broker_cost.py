"""What filters cost a broker: throughput and latency with so many questions for each PUBLISH (figure 7).

As in the paper: one publisher, one subscriber, MQTT 5, payloads of 1,024 bytes. The paper's publisher sends every ten
microseconds whatever comes; ours has a bounded number of messages under way, so that latency is that of a broker which
is busy, and not of a queue that grows as long as the experiment lasts.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from headwater.fleet.process import RunningBroker, free_port
from headwater_lab import machine
from headwater_lab.figure import FigureError
from headwater_lab.load import LoadGenerator, build
from headwater_lab.reproduce.computing import progress
from headwater_lab.reproduce.page import Table, insert, markdown
from headwater_lab.reproduce.reporter import Reporter

NAME: Final = "interest --broker"
QUERIES: Final = (0, 1, 10, 100, 1000)
METHODS: Final = ("bf", "bfp", "prefix", "summary")
LEVELS: Final = (2, 4, 6, 8, 10)
WINDOW: Final = 64
Record = dict[str, object]


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
            name = f"figure7/{each.name}/{what}"
            listed.append({"name": name, "paper": None, "ours": round(value, 4), "unit": unit})
    return listed


def table(found: list[Cost]) -> Table:
    base = next((each.rate for each in found if each.name == "queries=0"), found[0].rate)
    rows = [(each.name, f"{each.rate:,.0f}", f"{each.rate / base:.2f}", f"{each.latency:.2f}") for each in found]
    head = ("questions for each PUBLISH", "messages/s", "of those without", "latency, ms")
    return Table("figure 7: what filters cost a broker", head, rows)


def run(seconds: float, json_file: Path | None, folder: Path | None) -> int:
    """Measure, print, write; the exit status. Raises BrokerError, LoadError, OSError."""
    reporter = Reporter(json_file, folder)
    facts = machine.describe(f"headwater reproduce {NAME} --seconds {seconds:g}")
    del facts["mosquitto"]
    reporter.begin(facts)
    with progress(reporter, len(list(cases()))) as watch:
        found = measure(seconds, watch)
    reporter.end(records(found), [table(found)], lambda place: _write(facts, found, place))
    return 0


def _write(facts: dict[str, str], found: list[Cost], folder: Path) -> list[Path]:
    page, data, picture = folder / "interest.md", folder / "interest-7.json", folder / "interest-7.svg"
    parts = ["\n".join(f"- {name}: {value}" for name, value in facts.items()), markdown(table(found))]
    files = [page, data]
    try:
        draw(found, picture)
    except FigureError as problem:
        print(problem, file=sys.stderr)
    else:
        parts.append(f"![{picture.stem}]({picture.name})")
        files.append(picture)
    page.write_text(insert(page.read_text() if page.exists() else "", "\n\n".join(parts), NAME))
    data.write_text(json.dumps({"machine": facts, "results": records(found)}, indent=1) + "\n")
    return files


def draw(found: list[Cost], file: Path) -> None:
    """Throughput as bars and latency as crosses, as the paper has it. FigureError: matplotlib is not installed."""
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
        figures: Any = importlib.import_module("matplotlib.figure")
    except ImportError:
        raise FigureError("figures need matplotlib (pip install headwater-lab)") from None
    # Without dates and random ids, a file changes only when the data do.
    with matplotlib.rc_context({"svg.hashsalt": "headwater", "svg.fonttype": "none", "font.size": 9}):
        figure = figures.Figure(figsize=(11, 3.6), layout="constrained")
        axes = figure.add_subplot()
        places = range(len(found))
        axes.bar(places, [each.rate for each in found], color="#3b6fb6")
        axes.set_ylabel("messages/s")
        axes.set_xticks(places, [each.name for each in found], rotation=60, ha="right", fontsize=7)
        beside = axes.twinx()
        beside.plot(places, [each.latency for each in found], "x", color="#c0392b")
        beside.set_yscale("log")
        beside.set_ylabel("latency, ms (crosses)")
        figure.savefig(file, format="svg", metadata={"Date": None})
