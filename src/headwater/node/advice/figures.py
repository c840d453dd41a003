"""Figures of advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.metric import counter, gauge

if TYPE_CHECKING:
    from headwater.node.advice.advising import Advising


@dataclass
class AdviceSeen:
    counts: dict[str, int] = counter(
        "Messages with advice.", default=dict, name="advice", labels=("outcome",), topics=("advice/{}",)
    )
    in_force: int = gauge("Subjects on which advice is in force.", name="advice_in_force")


def see_advice(advising: Advising) -> AdviceSeen:
    return AdviceSeen(dict(advising.counts), len(advising.in_force()))
