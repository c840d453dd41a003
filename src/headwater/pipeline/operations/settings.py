"""What decides what is advised. Needs nothing but the standard library."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from headwater.suggestion import check_known, check_value


@dataclass(frozen=True)
class Settings:
    """Advice holds for `life` seconds. It is renewed when half of that is over, and before that only if it is another
    one: a weight that differs by more than the part `least_change`, parts of which the heaviest has more than `uneven`
    times the mean load.

    Weights are advised for groups with at least `least_minutes` minutes of data of two members or more, and are from
    1/`most_weight` to `most_weight`, of which 1 is the (geometric) mean.

    A store is split into `parts` by at most `most_filters` filters; a message counts as its payload and
    `message_bytes` more. A topic deserves a tree if it has at least `tree_messages` a minute and `tree_members`
    members, of which not more than the part `tree_churn` comes and goes; the busiest `most_trees` are named.
    """

    life: float = 900.0
    least_change: float = 0.1
    least_minutes: int = 5
    most_weight: float = 2.8
    parts: int = 2
    most_filters: int = 64
    message_bytes: float = 100.0
    uneven: float = 1.25
    tree_messages: float = 36.0
    tree_members: int = 3
    tree_churn: float = 0.5
    most_trees: int = 100

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            whole = each.type == "int"
            right = type(value) is int if whole else isinstance(value, int | float) and math.isfinite(value)
            check_value(
                right and not isinstance(value, bool),
                each.name,
                value,
                "a whole number" if whole else "a finite number",
            )
        check_value(
            0 < self.life <= 86_400, "life", self.life, "more than 0 seconds and at most a day, as nodes take it"
        )
        check_value(
            0 < self.least_change < 1, "least_change", self.least_change, "between 0 and 1, a part of the weight"
        )
        check_value(self.least_minutes >= 1, "least_minutes", self.least_minutes, "at least 1")
        check_value(1 < self.most_weight <= 100, "most_weight", self.most_weight, "more than 1 and at most 100")
        check_value(2 <= self.parts <= 64, "parts", self.parts, "from 2 to 64")
        check_value(self.parts <= self.most_filters <= 1000, "most_filters", self.most_filters, "from `parts` to 1000")
        check_value(self.message_bytes >= 0, "message_bytes", self.message_bytes, "0 or more")
        check_value(self.uneven > 1, "uneven", self.uneven, "more than 1")
        check_value(self.tree_messages > 0, "tree_messages", self.tree_messages, "more than 0")
        check_value(self.tree_members >= 2, "tree_members", self.tree_members, "at least 2: a tree has leaves")
        check_value(0 <= self.tree_churn <= 1, "tree_churn", self.tree_churn, "from 0 to 1, a part of the members")
        check_value(self.most_trees >= 1, "most_trees", self.most_trees, "at least 1")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Settings:
        """From names and values as a configuration has them; what is not named has its default."""
        check_known("setting", settings, (each.name for each in fields(cls)), " of [advising]")
        return cls(**settings)
