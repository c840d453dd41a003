"""Who may use the admin API, as seen by the HTTP process.

The hash of the token is in the shared state: a token that SIGHUP has replaced is refused from the moment at which the
node says so, however busy this process is.
"""

from __future__ import annotations

import hmac

from headwater.node.admin.secret import hash_of
from headwater.node.admin.token import TokenGuard
from headwater.node.http.state import OPEN_METRICS, SharedState


class SharedToken(TokenGuard):
    def __init__(self, state: SharedState) -> None:
        self._state = state

    def accepts(self, token: str) -> bool:
        return hmac.compare_digest(hash_of(token), self._state.token_hash)

    def has_open_metrics(self) -> bool:
        return bool(self._state[OPEN_METRICS])
