"""The weights of members of shared groups, by patterns of client ids, for the dispatchers that look at them."""

from __future__ import annotations

import fnmatch
import re

from headwater.session.session import Session


class Weights:
    """`patterns` are as for file names (`*`, `?`, `[…]`); the first one that matches counts."""

    def __init__(self, patterns: dict[str, int]) -> None:
        self._rules = [(re.compile(fnmatch.translate(pattern)), weight) for pattern, weight in patterns.items()]

    def of(self, session: object) -> int:
        """The weight of a session's memberships; 1 if no pattern matches."""
        assert isinstance(session, Session)
        for pattern, weight in self._rules:
            if pattern.match(session.client_id):
                return weight
        return 1
