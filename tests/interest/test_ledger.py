"""Facts that are counted, and lines that are made of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.interest.ledger import MANY, Ledger
from headwater.interest.lines import Lines, fact_hash, has, line_of

facts = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**48 - 1))
LINES = 7


def line(home: int, lines: int = LINES) -> int:
    return int(line_of(home, lines))


@given(st.lists(st.tuples(facts, st.sampled_from([1, 1, 2, -1, MANY, -MANY])), max_size=60))
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
    for lines in (LINES, 3 * LINES, 1, 1000, 8, LINES):
        ledger.resize(lines)
        assert {(home, hash): count for home, hash, count in ledger.records()} == there
        for fact, count in counts.items():
            assert ledger.count(line(fact[0], lines), *fact) == count


@given(st.lists(facts, max_size=30), st.integers(1, 12), st.integers(1, 20))
def test_a_line_has_all_its_facts(several: list[tuple[int, int]], inner: int, terminal: int) -> None:
    ledger, lines = Ledger(LINES), Lines(LINES)
    for home, hash in several:
        ledger.change(line(home), home, hash, 1)
    lines.fill([ledger.line(number, inner, terminal) for number in range(LINES)])
    for home, hash in several:
        assert has(lines.line(line(home)), 0, hash, terminal if hash & 1 else inner)
    assert lines.whole() == b"".join(lines.line(number) for number in range(LINES))


def test_large_counts_are_exact() -> None:
    ledger = Ledger(1)
    count = 0
    for by in (MANY - 1, 1, 1, 10**9, -(10**9), -1, -1, -(MANY - 2), -1):
        count += by
        assert ledger.change(0, 1, 2, by) == count
        assert ledger.count(0, 1, 2) == count
        ledger.resize(1)
    assert ledger.buckets == [b""]
    assert not ledger._many


def test_what_looks_like_another_fact_is_none() -> None:
    """The bytes of one fact, found across the border of two."""
    ledger = Ledger(1)
    ledger.change(0, 7, 0, 1)
    ledger.change(0, 7, 5, 1)
    inside = ledger.buckets[0][6:16]
    home, fact = int.from_bytes(inside[:4], "little"), int.from_bytes(inside[4:], "little")
    assert ledger.count(0, home, fact) == 0
    assert ledger.count(0, 7, 5) == 1


def test_facts_of_a_prefix_differ() -> None:
    hashes = {int(fact_hash(12345, kind)) for kind in (1, 2, 4, 8)}
    assert len(hashes) == 4
    assert [int(fact_hash(12345, kind)) & 1 for kind in (1, 2, 4, 8)] == [0, 0, 1, 1]
    assert all(0 <= each < 2**48 for each in hashes)
