"""Interest filters over a tower of voxels: `scripts/bench interest`, or `python -m headwater_lab.interest`.

A million filters (`--quick`: 50,000) on voxels, floors (`+`) and blocks (`#`) of a tower, in every method, in our exact
trie, and in a Python set, which knows no wildcards. Each contender has a process of its own, which reads filters one by
one from a file. Measured:

- memory: by how much the process has grown when all are in; of `shared`, what another broker keeps of a `summary`;
- wire: bytes of the form that is shared, and of one filter more (a delta);
- look-ups a second: of topics that nobody wants and that come for the first time, and again;
- errors: how many of those are said to be wanted, and of those that are wanted to be not (which has to be 0).
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from headwater.interest.methods import decode, make
from headwater.interest.sharing import Announcer
from headwater.interest.summary import Summary
from headwater.message import Subscription
from headwater.routing.trie import Trie
from headwater_lab import machine
from headwater_lab.options import figure_options
from headwater_lab.store_figures import Figures
from headwater_lab.voxels import Interests, interests

SEED: Final = 1
P: Final = 0.001
FULL: Final = 1_000_000
QUICK: Final = 50_000
LOOKUPS: Final = 100_000
OFTEN: Final = 5000
CONTENDERS: Final = ("trie", "set", "summary", "shared", "prefix", "bfp", "bf")
SYSTEMS: Final = {f"{name}/": name for name in CONTENDERS}
ROWS: Final = {
    "bytes_per_filter": "bytes of memory per filter",
    "of_the_trie": "of what the trie takes",
    "wire_per_filter": "bytes on the wire per filter",
    "wire_per_prefix": "per stored prefix",
    "delta_bytes": "bytes on the wire for one more filter",
    "add_us": "to add a filter, µs",
    "new_us": "a topic that nobody wants, for the first time, µs",
    "seen_per_s": "topics that were asked for before, look-ups/s",
    "probes": "lines or questions, of a topic for the first time",
    "false_positive_rate": "said to be wanted, and is not",
    "denied": "wanted, and said not to be",
}
GOALS: Final = {
    "summary/of_the_trie": ("≤", 0.1),
    "shared/wire_per_prefix": ("≤", 2.5),
    "summary/seen_per_s": ("≥", 1e6),
    "shared/false_positive_rate": ("≤", 1.5 * P),
    "summary/denied": ("≤", 0.0),
    "shared/denied": ("≤", 0.0),
    "six_levels/summary_us": ("≤", 5.0),
}


def resident() -> int:
    """Bytes of this process that are in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


class Contender:
    """`ask` says whether a topic may be wanted; `probes` what the last question cost, if that is known."""

    def __init__(self, name: str, given: Given) -> None:
        self.figures: dict[str, float] = {}
        before, began = resident(), time.perf_counter()
        made, self.ask = self._made(name, given)
        took = time.perf_counter() - began
        self.content = made
        if name != "shared":
            self.figures["bytes_per_filter"] = (resident() - before) / given.count
            self.figures["add_us"] = took / given.count * 1e6

    def _made(self, name: str, given: Given) -> tuple[Any, Callable[[str], Any]]:
        filters = given.filters()
        if name == "trie":
            trie, one = Trie(), Subscription("+")
            for each in filters:
                trie.add(each, 0, one)
            return trie, trie.match
        if name == "set":
            several = set(filters)
            return several, several.__contains__
        if name == "shared":
            return self._shared(given)
        prefixes = given.prefixes if name == "prefix" else given.count
        filter = Summary(p=P, seed=SEED) if name == "summary" else make(name, prefixes, P, SEED)
        for each in filters:
            filter.add(each)
        filter.may_match("x")
        return filter, filter.may_match

    def _shared(self, given: Given) -> tuple[Any, Callable[[str], Any]]:
        """What another broker keeps; its memory is that of the copy alone."""
        summary = Summary(p=P, seed=SEED)
        for each in given.filters():
            summary.add(each)
        announcer = Announcer(summary)
        deltas = []
        for number in range(100):
            announcer.add(f"26/3/{number}/new")
            deltas += [len(each) for each in announcer.changes(0.0)]
        self.figures["delta_bytes"] = sum(sorted(deltas)[:90]) / 90  # but for one that may have grown it
        data = summary.encode()
        self.figures["wire_per_filter"] = len(data) / given.count
        self.figures["wire_per_prefix"] = len(data) / given.prefixes
        before = resident()
        copy = decode(data)
        copy.may_match("x")
        self.figures["bytes_per_filter"] = (resident() - before) / given.count
        return copy, copy.may_match

    def measure(self, name: str, given: Given) -> None:
        unwanted = given.unwanted()
        errors = 0
        began = time.perf_counter()
        for topic in unwanted:
            if self.ask(topic):
                errors += 1
        self.figures["new_us"] = (time.perf_counter() - began) / len(unwanted) * 1e6
        if name != "set":
            self.figures["false_positive_rate"] = errors / len(unwanted)
        statistics = getattr(self.content, "statistics", None)
        if statistics is not None:
            found = statistics()
            self.figures["probes"] = found.probes / found.lookups
            if name not in ("summary", "shared"):
                self.figures["wire_per_filter"] = found.shared_bytes / given.count
        often = unwanted[:OFTEN]
        for topic in often:
            self.ask(topic)
        rounds = max(1, LOOKUPS // OFTEN)
        began = time.perf_counter()
        for _ in range(rounds):
            for topic in often:
                self.ask(topic)
        self.figures["seen_per_s"] = rounds * OFTEN / (time.perf_counter() - began)
        wanted = (each for each in given.filters() if "+" not in each and "#" not in each)
        self.figures["denied"] = sum(not self.ask(topic) for topic in islice(wanted, LOOKUPS))


class Given:
    """A folder with the filters and topics, so that a process holds only those that it wants to."""

    def __init__(self, folder: Path, count: int = 0, prefixes: int = 0) -> None:
        self.folder = folder
        self.count = count
        self.prefixes = prefixes

    def write(self, found: Interests) -> None:
        self.count, self.prefixes = len(found.filters), count_prefixes(found.filters)
        (self.folder / "filters").write_text("\n".join(found.filters))
        (self.folder / "unwanted").write_text("\n".join(found.unwanted))

    def filters(self) -> Iterator[str]:
        with (self.folder / "filters").open() as lines:
            for line in lines:
                yield line.rstrip("\n")

    def unwanted(self) -> list[str]:
        return (self.folder / "unwanted").read_text().split("\n")


def count_prefixes(filters: list[str]) -> int:
    """Distinct ones, as the paper stores them."""
    found = set()
    for each in filters:
        at = each.find("/")
        while at >= 0:
            found.add(each[:at])
            at = each.find("/", at + 1)
    return len(found) + len(set(filters))


def contend(name: str, given: Given) -> dict[str, float]:
    contender = Contender(name, given)
    contender.measure(name, given)
    return contender.figures


def six_levels() -> dict[str, float]:
    """The paper's filters at its defaults, 6,000 of six levels; a topic that none matches."""
    from random import Random

    from headwater_lab.reproduce.interest.plan import Parameters
    from headwater_lab.reproduce.interest.trial import names, one_filter

    random = Random(SEED)
    topics = ["/".join(names(6, random)) for _ in range(20_000)]
    filters = ["/".join(one_filter("b", Parameters(), ["/"], random)) for _ in range(6000)]
    found = {}
    for method, count in (("summary", 0), ("prefix", 36_000), ("bfp", 6000), ("bf", 6000)):
        filter = Summary(p=P, seed=SEED) if method == "summary" else make(method, count, P, SEED)
        for each in filters:
            filter.add(each)
        filter.may_match("x")
        asked = topics if method in ("summary", "prefix") else topics[:1000]
        began = time.perf_counter()
        for topic in asked:
            filter.may_match(topic)
        found[f"{method}_us"] = (time.perf_counter() - began) / len(asked) * 1e6
    return found


def campaign(given: Given, tell: Callable[[str], None]) -> Figures:
    figures = Figures(ROWS, GOALS, SYSTEMS)
    for name in CONTENDERS:
        words = [sys.executable, "-m", "headwater_lab.interest", "--contender", name, "--folder", str(given.folder)]
        words += ["--filters", str(given.count), "--prefixes", str(given.prefixes)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        found: dict[str, float] = json.loads(done.stdout)
        for row in ROWS:
            if row in found:
                figures.add(f"{name}/{row}", found[row], "")
        trie = figures.value("trie/bytes_per_filter")
        figures.add(f"{name}/of_the_trie", found["bytes_per_filter"] / trie, "")
        tell(f"{name}: {found['bytes_per_filter']:.1f} bytes a filter, {found['new_us']:.2f} µs for a new topic")
    for measured, value in six_levels().items():
        figures.add(f"six_levels/{measured}", value, "µs")
    tell(f"six levels, no match: {figures.value('six_levels/summary_us'):.2f} µs by summary")
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = figure_options("interest", __doc__, quick="50,000 filters")
    parser.add_argument("--filters", type=int, help="how many")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--prefixes", type=int, default=0, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    count = chosen.filters or (QUICK if chosen.quick else FULL)
    if chosen.contender:
        print(json.dumps(contend(chosen.contender, Given(chosen.folder, count, chosen.prefixes))))
        return 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headwater-interest-") as name:
        given = Given(Path(name))
        given.write(interests(count, SEED, min(LOOKUPS, count // 2)))
        figures = campaign(given, lambda text: print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True))
    about = {**machine.describe("scripts/bench interest"), "filters": f"{count:,}"}
    figures.publish(chosen, "interest", "interest.md", about)
    return 1 if figures.value("summary/denied") or figures.value("shared/denied") else 0


if __name__ == "__main__":
    sys.exit(main())
