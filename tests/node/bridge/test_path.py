"""The path of a message over bridges, by which loops are found."""

from __future__ import annotations

import pytest

from headwater.node.bridge.path import BRIDGE, BROKER, PATH, broker_of, crossed, introduce
from headwater.wire.packets import V5, Connect, Properties


def path(*ids: str) -> list[tuple[str, str]]:
    return [(PATH, each) for each in ids]


def test_a_message_gets_the_id_of_the_broker_that_it_leaves() -> None:
    assert crossed(None, "a", "b", 16) == path("a")
    assert crossed([("colour", "red"), *path("a")], "b", "c", 16) == [("colour", "red"), *path("a", "b")]


@pytest.mark.parametrize("found", [path("c"), path("a", "c", "x"), path("b"), path("b", "a")])
def test_a_message_that_has_been_there_or_has_come_back_goes_no_further(found: list[tuple[str, str]]) -> None:
    assert crossed(found, "b", "c", 16) is None


def test_strangers_are_counted_and_never_taken_for_each_other() -> None:
    once = crossed(None, "", "a", 3)
    assert once == path("?")
    twice = crossed(once, "a", "", 3)
    assert twice == path("?", "a")
    assert crossed(twice, "", "b", 3) == path("?", "a", "?")


def test_hops_are_bounded() -> None:
    assert crossed(path("a", "b"), "c", "d", 3) is not None
    assert crossed(path("a", "b", "c"), "d", "e", 3) is None


def test_other_properties_are_no_hops() -> None:
    assert crossed([("other", "b")], "b", "c", 1) == [("other", "b"), *path("b")]


def test_a_broker_says_its_id_to_bridges_only() -> None:
    grants = Properties(user_properties=[("x", "y")])
    introduce(Connect(version=V5, properties=Properties(user_properties=[("x", "y")])), grants, "me")
    introduce(Connect(version=V5), grants, "me")
    assert broker_of(grants) == ""
    introduce(Connect(version=V5, properties=Properties(user_properties=[(BRIDGE, "you")])), grants, "me")
    assert grants.user_properties == [("x", "y"), (BROKER, "me")]
    assert broker_of(grants) == "me"
    assert broker_of(Properties()) == ""
