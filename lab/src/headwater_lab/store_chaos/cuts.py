"""A folder whose log ends too early, at any byte, as after a power cut.

Commits, blocks and trims are batches in one log. So what a cut leaves is the store as it was after some batch: all
that was acknowledged when the log was no longer than the cut, and nothing that is half there.
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any, Final

from headwater.store.intake import Intake
from headwater_lab.chaos.listened import Listened, tell
from headwater_lab.kill_campaign import cut_places
from headwater_lab.store_chaos.account import Account
from headwater_lab.store_chaos.examining import examine
from headwater_lab.store_chaos.living import KINDS, Settings, newest_log, opened
from headwater_lab.store_chaos.messages import take

COMMITS: Final = 12
"""In each of two lives: the log of the second is cut."""


def _write(folder: Path, settings: Settings, life: int) -> int:
    """Some commits with blocks, trims and a reader's commits between them; each promise with the length of the log."""
    store = opened(folder, settings, KINDS[settings.kind], seal=False)
    intake = Intake(store.next)
    tell(f"begin {store.next}")
    for commit in range(COMMITS):
        for _ in range(commit % 3 + 1):
            take(intake, settings.seed, life)
        taken = intake.hand_over()
        assert taken is not None
        store.append(taken)
        store.sync()
        tell(f"acknowledged {store.next}")
        if commit % 4 == 3:
            store.seal(everything=True)
            tell(f"reader spark {store.next - 3}")
            store.commit("spark", store.next - 3)
            tell("committed spark")
            tell(f"trimmed {store.trim(0).first}")
    return 0


def _recorded(folder: Path, settings: Settings, life: int) -> list[str]:
    return Listened(partial(_write, folder / "messages", settings, life), folder / "store.log").all()


def _account_at(first_life: list[str], second_life: list[str], settings: Settings, cut: int) -> Account:
    """What was promised when the log had no more than `cut` bytes; the first life's log is whole."""
    account = Account(settings.seed)
    for life, lines in enumerate((first_life, second_life), 1):
        account.life = life
        size = 0
        for line in lines:
            if line.startswith("synced"):
                size = int(line.split()[2])
            if life == 1 or size <= cut or line.startswith(("begin", "reader")):
                account.hear(line)
    return account


def _examine_all(folder: Path, settings: Settings, told: tuple[list[str], list[str]], places: list[int]) -> int:
    """One after the other in one process, which tells what was wrong with each."""
    for cut in places:
        copy = folder / f"cut-{cut}"
        shutil.copytree(folder / "messages", copy)
        with newest_log(copy / "db").open("r+b") as log:
            log.truncate(cut)
        found = examine(copy, settings, _account_at(*told, settings, cut))
        tell(json.dumps({"cut": cut, "wrong": found["wrong"]}))
        shutil.rmtree(copy)
    return 0


def sweep(folder: Path, kind: str, cuts: int, seed: int) -> dict[str, Any]:
    """Cut at every byte, or at so many random ones, the ends among them."""
    settings = Settings(kind, seed, 5, 3, 700, None)
    folder.mkdir(parents=True)
    told = _recorded(folder, settings, 1), _recorded(folder, settings, 2)
    size = newest_log(folder / "messages" / "db").stat().st_size
    places = cut_places(size, cuts, seed)
    listened = Listened(partial(_examine_all, folder, settings, told, places), folder / "examine.log")
    done = [json.loads(line) for line in listened.all()]
    failures = [f"cut at byte {each['cut']} of {size}: {text}" for each in done for text in each["wrong"]]
    if len(done) != len(places):
        failures.append(f"ended: after {len(done)} of {len(places)} cuts")
    return {"bytes": size, "cuts": len(done), "failures": failures[:100]}
