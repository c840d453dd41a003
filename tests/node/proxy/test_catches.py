"""The own subscriptions on their way to what they should be, and who is told when."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.node.proxy.catches import Catches
from headwater.node.proxy.catching import Copies
from headwater.peering.frames.frame import Stamp


class FakeBroker:
    """Acknowledges when it is told to."""

    def __init__(self, catches: Catches) -> None:
        self.catches = catches
        self.has: set[str] = set()
        self.asked: tuple[bool, list[str]] | None = None

    def up(self, is_present: bool) -> None:
        self.asked = None
        if not is_present:
            self.has = set()
        self.catches.up(self._subscribe, self._unsubscribe, is_present)

    def _subscribe(self, filters: list[str]) -> None:
        assert self.asked is None, "one step at a time"
        self.asked = (True, filters)

    def _unsubscribe(self, filters: list[str]) -> None:
        assert self.asked is None, "one step at a time"
        assert not set(filters) & self.catches.wanted
        assert self.catches.wanted <= self.has, "what takes their place comes first"
        self.asked = (False, filters)

    def answer(self) -> bool:
        if self.asked is None:
            return False
        is_subscribing, filters = self.asked
        self.asked = None
        if is_subscribing:
            self.has.update(filters)
            self.catches.acknowledged([2] * len(filters))
        else:
            self.has.difference_update(filters)
            self.catches.acknowledged([])
        return True


FILTERS = st.sets(st.sampled_from(["a", "b", "c", "d", "e"]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("want"), FILTERS),
        st.tuples(st.just("answer"), st.none()),
        st.tuples(st.just("down"), st.none()),
        st.tuples(st.just("up"), st.booleans()),
    ),
    max_size=30,
)


@given(STEPS)
def test_in_the_end_the_broker_has_what_is_wanted_and_everybody_was_told(steps: list[tuple[str, object]]) -> None:
    told: list[int] = []
    expected: dict[int, set[str]] = {}

    def settled(token: dict[str, Stamp]) -> None:
        if token:
            number = token["n"].number
            told.append(number)
            if broker.catches.subscribe is not None:
                assert expected[number] <= broker.has or number < len(expected), "told before it was so"

    catches = Catches(None, settled)
    broker = FakeBroker(catches)
    broker.up(False)
    is_up = True
    for kind, what in steps:
        if kind == "want":
            assert isinstance(what, set)
            expected[len(expected) + 1] = what
            catches.want(set(what), {"n": Stamp(1, len(expected))})
        elif kind == "answer":
            broker.answer()
        elif kind == "down" and is_up:
            is_up = False
            catches.down()
        elif kind == "up" and not is_up:
            is_up = True
            broker.up(bool(what))
    if not is_up:
        broker.up(True)
    while broker.answer():
        pass
    assert broker.has == catches.at_broker == catches.wanted
    assert not expected or told[-1] == len(expected)
    assert told == sorted(told)


def test_what_was_subscribed_in_an_earlier_life_is_unsubscribed(tmp_path: Path) -> None:
    catches = Catches(tmp_path, lambda token: None)
    broker = FakeBroker(catches)
    catches.want({"a", "b"}, {})
    broker.up(False)
    broker.answer()
    catches = Catches(tmp_path, lambda token: None)
    assert catches.at_broker == {"a", "b"}
    broker.catches = catches
    catches.want({"b", "c"}, {})
    broker.up(True)
    while broker.answer():
        pass
    assert broker.has == {"b", "c"}


def test_a_filter_that_is_refused_is_not_asked_for_again_until_the_broker_comes_anew() -> None:
    catches = Catches(None, lambda token: None)
    broker = FakeBroker(catches)
    broker.up(False)
    catches.want({"a", "b"}, {})
    broker.asked = None
    catches.acknowledged([0x87, 2])
    assert catches.refused == {"a": 0x87} and not catches.is_busy
    catches.want({"a", "b", "c"}, {})
    assert broker.asked == (True, ["c"])
    broker.answer()
    broker.up(True)
    assert broker.asked == (True, ["a", "b", "c"])


def test_of_two_copies_one_is_a_message_and_of_four_two() -> None:
    copies = Copies({"t/a"}, {"t/#"})
    assert [copies.is_copy("t/a", b"same", 1) for _ in range(4)] == [False, True, False, True]
    assert [copies.is_copy("t/b", b"same", 1) for _ in range(2)] == [False, False], "one filter matches it"
    assert [copies.is_copy("t/a", b"x", qos) for qos in (0, 1, 0, 1)] == [False, False, True, True]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_behind_unsuback_only_qos_2_that_is_alike_may_be_a_copy(qos: int) -> None:
    copies = Copies({"t/a"}, {"t/#"})
    assert not copies.is_copy("t/a", b"same", qos)
    copies.is_unsubscribed = True
    assert copies.is_copy("t/a", b"same", qos) == (qos == 2)
