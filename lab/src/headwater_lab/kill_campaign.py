"""The frame of all campaigns that kill (chaos, store-chaos, pipeline-chaos, cluster-chaos).

Theory. A campaign kills one or several things, each by a `Part`. A part is a row of episodes with consecutive seeds,
each in a folder of its own, `seed-N`, until there were as many kills as were asked for. What happens in an episode is
the part's own business; it returns an `EpisodeOutcome`, of which the frame makes `Totals`. The folder of an episode in
which nothing was wrong is removed; the others stay, so that they can be looked into, and their seeds are said.

The frame has the options that all have (`parser`), tells how it goes, and keeps the result: `{"machine": date, commit,
processor, versions, …, PART: {"kills", …, "violations", "seconds", "failures"}, …}`. It is written after each episode,
so that what is known is kept should the campaign end early; to `--json`, else, of a run with enough kills, to
docs/results/NAME-DATE.json. The exit status is 1 if anything failed.

    campaign = KillCampaign("store-chaos", "DiskStore (forked for each life)", arguments, whole=1000)
    campaign.kill(part)
    campaign.keep("log cut", sweep(…))     what is no row of kills but belongs to the result; it has "failures"
    return campaign.end()
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from headwater_lab import machine
from headwater_lab.results import dated, write_json

RESULTS: Final = Path("docs/results")
MOST_FAILURES: Final = 100
"""That a result lists."""


@dataclass(slots=True)
class EpisodeOutcome:
    """What came of one episode. `wrong` has texts that begin with their kind and a colon."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    """By crash point, or by way to die."""
    victims: Counter[str] = field(default_factory=Counter)
    """At crash points that several processes pass: which of them died."""
    counts: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)
    """Seconds, by what was waited for."""
    wrong: list[str] = field(default_factory=list)

    def waited(self, what: str, seconds: float) -> None:
        self.longest[what] = max(self.longest.get(what, 0.0), seconds)


@dataclass(slots=True)
class Totals:
    """Sums over episodes; `failures` has a text for each violation, with its episode's seed."""

    episodes: int = 0
    seconds: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    victims: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)
    wrong: Counter[str] = field(default_factory=Counter)
    """By kind."""
    failures: list[str] = field(default_factory=list)

    def add(self, outcome: EpisodeOutcome) -> None:
        self.episodes += 1
        self.kills += outcome.kills
        self.victims += outcome.victims
        self.counts += outcome.counts
        for what, seconds in outcome.longest.items():
            self.longest[what] = max(self.longest.get(what, 0.0), seconds)
        for text in outcome.wrong:
            self.wrong[text.partition(":")[0]] += 1
            self.failures.append(f"seed {outcome.seed}: {text}")


def number_of_kills(totals: Totals) -> int:
    return totals.kills.total()


@dataclass(frozen=True)
class Part:
    """What is killed: `episode` gets a seed, an empty folder and how many kills it is for."""

    name: str
    episode: Callable[[int, Path, int], EpisodeOutcome]
    line: Callable[[Totals], str]
    """Of what there was besides kills, for the terminal."""
    facts: Callable[[Totals], dict[str, Any]]
    """The same for the result."""
    kinds: tuple[str, ...]
    """Of violations."""
    ends: Callable[[Totals], int] = number_of_kills
    """Lives that ended as they were to end."""
    at_least: int = 0
    """Episodes, however few the kills."""

    def as_dict(self, totals: Totals) -> dict[str, Any]:
        return {
            "kills": totals.kills.total(),
            **self.facts(totals),
            "violations": {kind: totals.wrong[kind] for kind in self.kinds},
            "seconds": round(totals.seconds, 1),
            "failures": totals.failures[:MOST_FAILURES],
        }


def parser(name: str, about: str, *, kills: int, of: str, per_episode: int, on: str) -> argparse.ArgumentParser:
    """With the options that all campaigns have. `of` says what is killed so often, `on` what an episode shares."""
    made = argparse.ArgumentParser(prog=name, description=about)
    made.add_argument("--kills", type=int, default=kills, help=of)
    made.add_argument("--per-episode", type=int, default=per_episode, help=f"kills on one {on}")
    made.add_argument("--seed", type=int, default=1, help="of the first episode")
    made.add_argument("--json", type=Path, help="where to write the result")
    made.add_argument("--keep", type=Path, help="where folders are made; those of failures stay")
    return made


def cut_places(size: int, cuts: int, seed: int) -> list[int]:
    """Where to cut a log of this size: at every byte, or at so many random ones, the ends among them."""
    places = list(range(size + 1))
    return sorted({0, size, *Random(seed).sample(places, cuts - 2)}) if 0 < cuts < len(places) else places


class KillCampaign:
    """`command` is told with the machine. A run of `whole` kills belongs into the results, if there is a folder."""

    def __init__(self, name: str, command: str, arguments: argparse.Namespace, whole: float) -> None:
        self.folder: Path = arguments.keep or Path(tempfile.mkdtemp(prefix=f"headwater-{name}-"))
        self._arguments = arguments
        self._machine = machine.describe(command)
        self._result: dict[str, dict[str, Any]] = {}
        self._file: Path | None = arguments.json
        if self._file is None and arguments.kills >= whole and RESULTS.is_dir():
            self._file = dated(RESULTS, name)

    def kill(self, part: Part, folder: Path | None = None) -> None:
        """Episodes until there were enough kills; one that fails before any kill is the last. They are in `folder`, or
        in one with the part's name."""
        print(f"== {part.name} ==", flush=True)
        totals = Totals()
        began = time.monotonic()
        while (left := self._arguments.kills - (ends := part.ends(totals))) > 0 or totals.episodes < part.at_least:
            seed = self._arguments.seed + totals.episodes
            place = (folder or self.folder / part.name) / f"seed-{seed}"
            place.mkdir(parents=True)
            outcome = part.episode(seed, place, min(left, self._arguments.per_episode))
            totals.add(outcome)
            totals.seconds = time.monotonic() - began
            _tell(part, totals, outcome)
            self.keep(part.name, part.as_dict(totals))
            if not outcome.wrong:
                shutil.rmtree(place)
            elif part.ends(totals) == ends:
                break

    def keep(self, name: str, found: dict[str, Any]) -> None:
        """What is known so far; `found` has "failures"."""
        self._result[name] = found
        if self._file is not None:
            self.write(self._file, {"machine": self._machine, **self._result})

    def write(self, file: Path, result: dict[str, Any]) -> None:
        """All that is known so far."""
        write_json(file, result)

    def end(self) -> int:
        """Print all; the exit status."""
        print(json.dumps(self._result, indent=2))
        if not any(found["failures"] for found in self._result.values()):
            return 0
        print(f"the folders of what failed are in {self.folder}", file=sys.stderr)
        return 1


def _tell(part: Part, totals: Totals, outcome: EpisodeOutcome) -> None:
    found = ", ".join(f"{count} {kind}" for kind, count in totals.wrong.items()) or "nothing wrong"
    print(f"{totals.kills.total():6d} kills, {part.line(totals)}, {found} ({totals.seconds:.0f} s)", flush=True)
    for text in outcome.wrong[:10]:
        print(f"    seed {outcome.seed}: {text[:3000]}", flush=True)
