"""What a command asks of the pipeline that writes to the lake: through a file in it, which the pipeline looks for.

Theory. One process writes to a lake. Who wants tables made again while it runs puts a plan beside them, `asked.json`;
the pipeline takes it up at its next round, by its own settings, which it reads again from its file, and answers in
`answer.json`, with the number of the plan. One is asked at a time. A file of the lake may name tables and times, and
nothing else: it runs no code.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

from headwater.objects import Missing
from headwater.pipeline.jobs.remaking import NotDerived, Plan, involved, stored_plan
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import LakeError

ASKED: Final = "asked.json"
ANSWER: Final = "answer.json"
LOOK: Final = 0.5
"""Seconds between two looks of who waits."""


@dataclass(frozen=True)
class Answer:
    """`error` is empty if it is being done, or done."""

    number: int
    error: str = ""


def ask(lake: Lake, plan: Plan | None) -> int:
    """Of the pipeline that runs: this plan; None: give up the one that was begun. The number of what was asked. Raises
    LakeError if it has been asked something else already."""
    number = time.time_ns() // 1000 if plan is None else plan.number
    text = json.dumps({"number": number, "plan": None if plan is None else asdict(plan)}, default=datetime.isoformat)
    lake.place.delete([ANSWER])
    if lake.place.put_if_absent(ASKED, text.encode()) is None:
        raise LakeError("the pipeline has been asked for something else, and has not taken it up yet")
    return number


def take(lake: Lake) -> tuple[int, Plan | None] | None:
    """What was asked, by the pipeline; None: nothing. What cannot be read is answered."""
    try:
        text = lake.place.get(ASKED).data
    except Missing:
        return None
    number = 0
    try:
        found = json.loads(text)
        number = int(found["number"])
        plan = None if found["plan"] is None else _plan(found["plan"])
    except (KeyError, TypeError, ValueError, NotDerived) as error:
        answer(lake, Answer(number, f"what was asked cannot be read: {error}"))
        return None
    return number, plan


def _plan(found: dict[str, object]) -> Plan:
    times = [None if found[name] is None else datetime.fromisoformat(str(found[name])) for name in ("start", "end")]
    tables = found["tables"]
    if not isinstance(tables, list):
        raise ValueError("tables is no list")
    return Plan(int(str(found["number"])), tuple(table.name for table in involved(map(str, tables))), *times)


def answer(lake: Lake, said: Answer) -> None:
    lake.place.put(ANSWER, json.dumps(asdict(said)).encode())
    lake.place.delete([ASKED])


def answered(lake: Lake, number: int) -> Answer | None:
    try:
        found = Answer(**json.loads(lake.place.get(ANSWER).data))
    except (Missing, ValueError, TypeError):
        return None
    return found if found.number == number else None


def wait(lake: Lake, number: int, sleep: Callable[[float], object] = time.sleep) -> Answer:
    """Until it is done, or refused, or nobody writes to the lake any more."""
    while True:
        said = answered(lake, number)
        if said is not None and (said.error or stored_plan(lake) is None):
            return said
        if lake.writer() is None:
            if said is None:
                lake.place.delete([ASKED])
            return Answer(number, "the pipeline has ended; the next one goes on with what was begun")
        sleep(LOOK)
