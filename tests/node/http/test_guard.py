"""The admin API's token, shared with the HTTP process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.node.admin.secret import hash_of
from headwater.node.http.guard import SharedToken
from headwater.node.http.state import OPEN_METRICS, SharedState


@pytest.fixture
def state() -> Iterator[SharedState]:
    state = SharedState()
    yield state
    state.close()


def test_a_token_that_is_replaced_is_refused_at_once(state: SharedState) -> None:
    """No message has to arrive first: the process may be slow, and the token may be known to a thief."""
    guard = SharedToken(state)
    state.token_hash = hash_of("first-token-of-many")
    assert guard.accepts("first-token-of-many")
    state.token_hash = hash_of("second-token-of-many")
    assert not guard.accepts("first-token-of-many")
    assert guard.accepts("second-token-of-many")


def test_nothing_is_accepted_before_there_is_a_token(state: SharedState) -> None:
    assert not any(map(SharedToken(state).accepts, ("", "\0" * 32)))


def test_metrics_are_open_when_the_node_says_so(state: SharedState) -> None:
    guard = SharedToken(state)
    scope = {"path": "/metrics", "headers": []}
    assert not guard.admits(scope)
    state[OPEN_METRICS] = True
    assert guard.admits(scope)


def test_the_hash_leaves_the_numbers_alone(state: SharedState) -> None:
    before = [state[at] for at in range(8)]
    state.token_hash = b"\xff" * 32
    assert [state[at] for at in range(8)] == before
    state[OPEN_METRICS] = 2**64 - 1
    assert state.token_hash == b"\xff" * 32
