"""Facts that are counted, and lines that are made of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.interest.ledger import MOST, Ledger
from headwater.interest.lines import Lines, fact_hash, has, line_of

facts = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**62 - 1))
LINES = 7


def line(home: int, lines: int = LINES) -> int:
    return int(line_of(home, lines))


@given(st.lists(st.tuples(facts, st.sampled_from([1, 1, 2, -1])), max_size=60))
def test_it_counts_as_a_dictionary_does(changes: list[tuple[tuple[int, int], int]]) -> None:
    ledger, counts = Ledger(LINES), dict[tuple[int, int], int]()
    for fact, by in changes:
        if counts.get(fact, 0) + by < 0:
            with pytest.raises(KeyError):
                ledger.change(line(fact[0]), *fact, by)
            continue
        counts[fact] = counts.get(fact, 0) + by
        assert ledger.change(line(fact[0]), *fact, by) == counts[fact]
    there = {fact: count for fact, count in counts.items() if count}
    for each in (ledger, ledger.resized(LINES * 3).resized(LINES)):
        assert {(home, hash): count for home, hash, count in each.records()} == there
        for fact, count in counts.items():
            assert each.count(line(fact[0]), *fact) == count


@given(st.lists(facts, max_size=30), st.integers(1, 12), st.integers(1, 20))
def test_a_line_has_all_its_facts(several: list[tuple[int, int]], inner: int, terminal: int) -> None:
    ledger, lines = Ledger(LINES), Lines(LINES)
    for home, hash in several:
        ledger.change(line(home), home, hash, 1)
    lines.fill([ledger.line(number, inner, terminal) for number in range(LINES)])
    for home, hash in several:
        assert has(lines.line(line(home)), 0, hash, terminal if hash & 1 else inner)
    assert lines.whole() == b"".join(lines.line(number) for number in range(LINES))


def test_a_count_that_is_full_stays() -> None:
    ledger = Ledger(1)
    ledger.change(0, 1, 2, MOST - 1)
    assert ledger.change(0, 1, 2, 5) == MOST
    assert ledger.change(0, 1, 2, -1) == MOST


def test_what_looks_like_another_fact_is_none() -> None:
    """The bytes of one fact, found across the border of two."""
    ledger = Ledger(1)
    ledger.change(0, 0, 0, 1)
    ledger.change(0, 0, 1 << 32, 1)
    assert ledger.count(0, 1, 0) == 0
    assert ledger.count(0, 0, 0) == 1


def test_facts_of_a_prefix_differ() -> None:
    hashes = {int(fact_hash(12345, kind)) for kind in (1, 2, 4, 8)}
    assert len(hashes) == 4
    assert [int(fact_hash(12345, kind)) & 1 for kind in (1, 2, 4, 8)] == [0, 0, 1, 1]
    assert all(0 <= each < 2**62 for each in hashes)
