"""The search for an order that explains a register, against trying all orders."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater_lab.check_broker.history import NEVER
from headwater_lab.check_broker.judges.linearizable import Decision, RegisterOperation, linearizable


def explains(order: Sequence[RegisterOperation]) -> bool:
    value = 0
    for place, operation in enumerate(order):
        if any(later.completed < operation.invoked for later in order[place + 1 :]):
            return False
        if operation.is_write:
            value = operation.value
        elif operation.value != value:
            return False
    return True


def by_trying_all(operations: Sequence[RegisterOperation]) -> bool:
    """A write without an answer may be left out."""
    unsure = [each for each in operations if each.is_write and each.completed == NEVER]
    sure = [each for each in operations if each not in unsure]
    for chosen in range(1 << len(unsure)):
        some = [each for place, each in enumerate(unsure) if chosen >> place & 1]
        if any(explains(order) for order in permutations([*sure, *some])):
            return True
    return False


@st.composite
def small_histories(draw: st.DrawFn) -> list[RegisterOperation]:
    count = draw(st.integers(0, 6))
    places = iter(draw(st.permutations(range(2 * count))))
    found = []
    for value in range(1, count + 1):
        invoked, completed = sorted((next(places), next(places)))
        if draw(st.booleans()):
            found.append(RegisterOperation(invoked, NEVER if draw(st.booleans()) else completed, value, True))
        else:
            found.append(RegisterOperation(invoked, completed, draw(st.integers(0, count)), False))
    return found


@settings(max_examples=400, deadline=None)
@given(small_histories())
def test_the_search_decides_as_trying_all_does(operations: list[RegisterOperation]) -> None:
    expected = Decision.LINEARIZABLE if by_trying_all(operations) else Decision.NOT_LINEARIZABLE
    assert linearizable(operations) is expected


def drawn(random: Random, count: int, width: int) -> list[RegisterOperation]:
    """Operations that took place one after the other, each within a span of its own; some without an answer."""
    found, value = [], 0
    for place in range(count):
        invoked = 10 * place - random.randrange(10 * width) + 1
        completed = 10 * place + random.randrange(10 * width) + 1
        if random.random() < 0.4:
            value = place + 1
            found.append(RegisterOperation(invoked, NEVER if random.random() < 0.1 else completed, value, True))
        else:
            found.append(RegisterOperation(invoked, completed, value, False))
    return found


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_long_histories_of_a_register_are_linearizable(seed: int) -> None:
    assert linearizable(drawn(Random(seed), 400, 3)) is Decision.LINEARIZABLE


def test_one_stale_read_among_many_is_found() -> None:
    operations = drawn(Random(3), 400, 3)
    first = next(each for each in operations if each.is_write and each.completed != NEVER)
    stale = RegisterOperation(10**6, 10**6 + 1, first.value, False)
    assert linearizable([*operations, stale]) is Decision.NOT_LINEARIZABLE


def test_beyond_its_bound_it_says_so() -> None:
    writes = [RegisterOperation(value, 10_000, value, True) for value in range(1, 30)]
    reads = [RegisterOperation(20_000, 20_001, 99, False)]
    assert linearizable([*writes, *reads], bound=100) is Decision.NOT_DECIDED
