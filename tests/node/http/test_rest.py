"""Callers of REST, as the HTTP process knows them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.node.http import rest
from headwater.node.http.link import LinkLost
from headwater.node.http.rest import LinkGate
from headwater.node.http.state import BANS, GENERATION, SharedState
from headwater.store.rest.gate import Approach, Refused, Unauthorized


class Answering:
    """A node that knows everybody."""

    def __init__(self, state: SharedState) -> None:
        self.state = state
        self.asked: list[str] = []
        self.more: dict[str, Any] = {}
        self.is_gone = False

    async def ask(self, name: str, body: bytes = b"", /, **arguments: Any) -> Any:
        self.asked.append(name)
        if self.is_gone:
            raise LinkLost
        known = {"number": 1, "name": "alice", "asks": False, "steers": False, "sees_all": False, "seconds": None}
        rules = {"rules": [["a/#", 7, False, False], ["a/private", 7, True, False]], "subscribing": "overlap"}
        numbers = {"generation": self.state[GENERATION], "bans": self.state[BANS]}
        return {**known, "rights": rules, **numbers, "keeps": True, **self.more}


@pytest.fixture
def node() -> Answering:
    return Answering(SharedState())


def gate_of(node: Answering) -> LinkGate:
    return LinkGate(node, node.state)  # type: ignore[arg-type]


def approach(port: int = 1) -> Approach:
    return Approach("Bearer x", f"127.0.0.1:{port}", "localhost")


def test_rights_are_judged_here(node: Answering) -> None:
    caller = asyncio.run(gate_of(node).authenticate(approach()))
    assert caller.name == "alice" and not caller.is_unrestricted
    assert [caller.may_read(topic) for topic in ("a/b", "a/private", "b")] == [True, False, False]
    assert [caller.may_publish(topic) for topic in ("a/b", "a/private", "b", "$SYS/x")] == [True, False, False, False]
    assert node.asked == ["authenticate"]


def test_who_is_known_is_asked_for_again_when_rights_or_bans_change(node: Answering) -> None:
    gate = gate_of(node)

    def come(port: int = 1) -> int:
        asyncio.run(gate.authenticate(approach(port)))
        return len(node.asked)

    assert [come(), come(), come(2), come(2), come()] == [1, 1, 2, 2, 2]
    node.state[GENERATION] += 1
    assert [come(), come()] == [3, 3]
    node.state[BANS] += 1
    assert [come(), come()] == [4, 4]


@pytest.mark.parametrize("more", [{"keeps": False}, {"seconds": 0.0}])
def test_who_may_be_somebody_else_next_time_is_asked_for_each_time(node: Answering, more: dict[str, Any]) -> None:
    gate = gate_of(node)
    node.more = more
    for _ in range(3):
        asyncio.run(gate.authenticate(approach()))
    assert len(node.asked) == 3


def test_callers_that_are_known_are_bounded(node: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "MOST_KEPT", 3)
    gate = gate_of(node)

    async def come() -> None:
        for port in range(1, 5):
            await gate.authenticate(approach(port))
        await gate.authenticate(approach(4))
        assert len(node.asked) == 4
        await gate.authenticate(approach(1))
        assert len(node.asked) == 5

    asyncio.run(come())


def test_what_cannot_be_used_does_not_reach_the_node(node: Answering) -> None:
    with pytest.raises(Unauthorized):
        asyncio.run(gate_of(node).authenticate(Approach("Basic ###", "127.0.0.1:1")))
    assert node.asked == []


def test_without_a_node_it_is_unavailable(node: Answering) -> None:
    node.is_gone = True
    with pytest.raises(Refused) as found:
        asyncio.run(gate_of(node).authenticate(approach()))
    assert found.value.status == 503
