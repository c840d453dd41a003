"""Advised weights of the members of shared groups, within bounds.

Theory. Let c be the weights that are configured and f the factors that are advised. A member's share is c·f / Σ c·f,
and without advice c / Σ c. If every f is between 1/√B and √B, so is the mean of f that the two sums differ by; so
nobody's share is more than B times as large or as small as without advice, whoever joins, leaves or is named. B is
`max_change`.

Who is not named has f = 1. `weighted_round_robin` and `capacity` multiply weights by f, `adaptive` takes it for what it
does not know yet; the other dispatchers have no weights.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

from headwater.node.advice.document import Advice
from headwater.routing.topics import split_shared
from headwater.session.session import Session

if TYPE_CHECKING:
    from headwater.routing.shared import Groups


class AdvisedWeights:
    """Tells all members of `groups`, those to come as well, what is advised of them."""

    def __init__(self, groups: Groups, max_change: float) -> None:
        self._groups = groups
        self._most = math.sqrt(max_change)
        self._weights: dict[str, dict[str, float]] = {}
        groups.advised_of = self.factor

    def take(self, name: str, advice: Advice | None) -> None:
        """What is advised for the group of that name from now on; None: nothing."""
        if advice is None:
            self._weights.pop(name, None)
        else:
            self._weights[name] = advice.weights
        share, filter = split_shared(name)
        group = None if share is None else self._groups.get(share, filter)
        if group is not None:
            for member in group.members():
                member.advise(self.factor(name, member.key))

    def factor(self, name: str, key: object) -> float:
        weights = self._weights.get(name)
        if weights is None:
            return 1.0
        factor = weights.get(cast(Session, key).client_id, 1.0)
        return min(max(factor, 1.0 / self._most), self._most)
