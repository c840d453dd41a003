"""All judges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headwater_lab.check_broker.history import History
from headwater_lab.check_broker.judges import Verdict
from headwater_lab.check_broker.judges.acknowledged import judge_acknowledged
from headwater_lab.check_broker.judges.groups import judge_groups
from headwater_lab.check_broker.judges.integrity import judge_integrity
from headwater_lab.check_broker.judges.once import judge_once
from headwater_lab.check_broker.judges.order import judge_order
from headwater_lab.check_broker.judges.retained import judge_retained
from headwater_lab.check_broker.judges.sessions import judge_sessions
from headwater_lab.check_broker.judges.wills import judge_wills
from headwater_lab.check_broker.promises import Promise

Judge = Callable[[History], list[Verdict]]

JUDGES: Final[tuple[Judge, ...]] = (
    judge_acknowledged,
    judge_once,
    judge_order,
    judge_sessions,
    judge_wills,
    judge_groups,
    judge_retained,
    judge_integrity,
)


def judge(history: History) -> list[Verdict]:
    return [verdict for judge in JUDGES for verdict in judge(history)]


def something_is_missing(history: History) -> bool:
    """Whether something is owed that may still come."""
    return any(
        verdict.findings
        for judge in (judge_acknowledged, judge_groups, judge_wills)
        for verdict in judge(history)
        if verdict.promise is not Promise.WILL_IN_FAULTS
    )
