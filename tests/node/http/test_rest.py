"""Callers of REST, as the HTTP process knows them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.node.delivery.caller import AT_ONCE
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
        self.judged: list[list[str]] = []
        self.is_gone = False

    async def ask(self, name: str, body: bytes = b"", /, **arguments: Any) -> Any:
        self.asked.append(name)
        if self.is_gone:
            raise LinkLost
        known = {"number": 1, "name": "alice", "asks": False, "steers": False, "sees_all": False, "seconds": None}
        rules = {"rules": [["a/#", 7, False, False], ["a/private", 7, True, False]], "subscribing": "overlap"}
        numbers = {"generation": self.state[GENERATION], "bans": self.state[BANS]}
        return {**known, "rights": rules, **numbers, "keeps": True, **self.more}

    def ask_and_wait(self, name: str, /, caller: int, topics: list[str]) -> list[bool]:
        """Guards that forbid every third topic."""
        if self.is_gone:
            raise LinkLost
        assert (name, caller) == ("allows", 1)
        self.judged.append(list(topics))
        return [int(topic.rpartition("/")[2]) % 3 > 0 for topic in topics]


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


def test_guards_are_asked_of_many_topics_at_once_and_of_none_twice(node: Answering) -> None:
    node.more = {"asks": True}
    caller = asyncio.run(gate_of(node).authenticate(approach()))
    topics = [f"a/{number}" for number in range(100)]
    assert caller.may_read("a/4")
    assert caller.may_read_each(["b/1", *topics, "a/5"]) == [False, *(number % 3 > 0 for number in range(100)), True]
    assert [len(some) for some in node.judged] == [1, AT_ONCE, AT_ONCE, AT_ONCE, 99 - 3 * AT_ONCE]
    assert [topic for some in node.judged for topic in some] == ["a/4", *(each for each in topics if each != "a/4")]
    assert caller.may_read_each(topics[:2]) == [False, True]
    assert len(node.judged) == 5


def test_more_topics_than_are_remembered_are_each_asked_for_once(
    node: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.node.delivery.caller.MOST_REMEMBERED", 10)
    node.more = {"asks": True}
    caller = asyncio.run(gate_of(node).authenticate(approach()))
    topics = [f"a/{number}" for number in range(100)]
    assert caller.may_read_each(topics) == [number % 3 > 0 for number in range(100)]
    assert sum(map(len, node.judged)) == 100


def test_guards_that_cannot_be_asked_allow_nothing(node: Answering) -> None:
    node.more = {"asks": True}
    caller = asyncio.run(gate_of(node).authenticate(approach()))
    node.is_gone = True
    assert caller.may_read_each(["a/1", "a/2"]) == [False, False]
    assert not caller.may_read("a/4")
