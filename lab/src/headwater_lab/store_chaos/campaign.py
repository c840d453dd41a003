"""The store as a part of a campaign: start, kill, cut the power, examine, and again."""

from __future__ import annotations

import json
import shutil
import signal
import time
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from headwater.disk.crash_points import STORE_POINTS
from headwater_lab.chaos.episode import LONGEST, POINT_LIMIT, RANDOM, SHORTEST, Aim
from headwater_lab.chaos.listened import PATIENCE, Listened, tell
from headwater_lab.kill_campaign import EpisodeOutcome, Part, Totals
from headwater_lab.store_chaos.account import Account
from headwater_lab.store_chaos.examining import WRONG, examine
from headwater_lab.store_chaos.living import WITH_POWER, Living, Settings, newest_log

BOUNDS: Final = {**dict.fromkeys(STORE_POINTS, 60), "store-before-trim": 20, "store-after-trim": 20}


def settings_of(kind: str, seed: int) -> Settings:
    """Of an episode: blocks and commits of any size, and little that is kept, so that all happens all the time."""
    random = Random(seed)
    size = random.choice((30_000, 100_000))
    return Settings(
        *(kind, seed, random.choice((8, 50, 300)), random.choice((3, 40)), size),
        random.choice((None, 2 * size)),
    )


class Episode:
    def __init__(self, folder: Path, settings: Settings, aim: Aim) -> None:
        self.folder = folder
        self.data = folder / "messages"
        self.log = folder / "store.log"
        self.settings = settings
        self.aim = aim
        self.random = Random(settings.seed)
        self.account = Account(settings.seed, settings.hard_size is not None)
        self.outcome = EpisodeOutcome(settings.seed)

    def run(self, kills: int) -> EpisodeOutcome:
        while self.outcome.kills.total() < kills and not self.account.wrong:
            self._live()
            if self.settings.kind not in WITH_POWER:
                self._cut_power()
            self._examine()
        self.outcome.counts += self.account.counts
        self.outcome.counts["positions"] = self.account.end - 1
        self.outcome.wrong = self.account.wrong
        return self.outcome

    def _live(self) -> None:
        point, crash_at = self.aim.choose(self.random)
        account = self.account
        account.life += 1
        account.synced = ("", 0)
        listened = Listened(partial(_live, self.data, self.settings, account.life), self.log, crash_at)
        limit = POINT_LIMIT if crash_at else self.random.uniform(SHORTEST, LONGEST)
        until = time.monotonic() + PATIENCE
        while (lines := listened.lines(until)) is not None:
            if any(line.startswith("begin") for line in lines):
                until = time.monotonic() + limit
            for line in lines:
                account.hear(line)
        struck = listened.over
        for line in listened.end():
            account.hear(line)
        if listened.process.code != -signal.SIGKILL:
            account.wrong.append(f"ended: with {listened.process.code}: {self.log.read_text()[-1000:]}")
        if crash_at and not struck:
            self.aim.missed(point)
        self.outcome.kills[point if crash_at and struck else RANDOM] += 1

    def _cut_power(self) -> None:
        """What was not synced is gone, from some byte on; all of it, if the store is to be found guilty."""
        honest = self.settings.kind == "power-cuts"
        log = newest_log(self.data / "db")
        size = log.stat().st_size
        synced = self.account.synced[1] if self.account.synced[0] == log.name else 0
        with log.open("r+b") as file:
            file.truncate(self.random.choice((synced, size, self.random.randint(synced, size))) if honest else synced)

    def _examine(self) -> None:
        copy = self.folder / "copy"
        shutil.copytree(self.data, copy)
        listened = Listened(partial(_examine, copy, self.settings, self.account), self.log)
        told = listened.all()
        found = json.loads(told[0]) if told else {"wrong": [f"ended: {self.log.read_text()[-1000:]}"]}
        self.account.found(found)
        if not self.account.wrong:
            shutil.rmtree(copy)


def _live(folder: Path, settings: Settings, life: int) -> int:
    return Living(folder, settings, life).run()


def _examine(folder: Path, settings: Settings, account: Account) -> int:
    tell(json.dumps(examine(folder, settings, account)))
    return 0


def killed_store(kind: str) -> Part:
    """An episode ends with its first violation."""
    aim = Aim(dict(BOUNDS))
    return Part(
        kind,
        episode=lambda seed, folder, kills: Episode(folder, settings_of(kind, seed), aim).run(kills),
        line=lambda totals: f"{totals.counts['positions']:9,d} positions",
        facts=_facts,
        kinds=WRONG,
    )


def _facts(totals: Totals) -> dict[str, Any]:
    return {
        "kills by point": {point: totals.kills[point] for point in (RANDOM, *STORE_POINTS)},
        "episodes": totals.episodes,
        "positions": totals.counts["positions"],
        "commits acknowledged": totals.counts["acknowledged"],
        "reads": totals.counts["seen"],
        "trims": totals.counts["trimmed"],
        "readers' commits": totals.counts["committed"],
    }
