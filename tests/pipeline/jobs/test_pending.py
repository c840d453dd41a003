"""What a step takes: never anything twice, never anything left out, and after a crash the same again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.pipeline.jobs.silver import pending

positions = st.dictionaries(st.sampled_from("abc"), st.integers(0, 50))


@given(positions, st.integers(1, 20))
def test_steps_cover_everything_once(there: dict[str, int], most: int) -> None:
    done: dict[str, int] = {}
    seen = set()
    for _ in range(200):
        ranges = pending(there, [done, done], most)
        if not ranges:
            break
        assert sum(last - after for after, last in ranges.values()) <= most + len(there)
        for store, (after, last) in ranges.items():
            assert after == done.get(store, 0) < last <= there[store]
            fresh = {(store, position) for position in range(after + 1, last + 1)}
            assert not fresh & seen
            seen |= fresh
            done[store] = last
    assert seen == {(store, position) for store, last in there.items() for position in range(1, last + 1)}


@given(positions.filter(lambda there: any(there.values())), st.integers(1, 20), st.integers(1, 20))
def test_a_step_that_one_table_has_and_the_other_lacks_is_done_again(
    there: dict[str, int], most: int, other: int
) -> None:
    """Whatever the setting is by then, and whatever has come since."""
    first = pending(there, [{}, {}], most)
    ahead = {store: last for store, (_, last) in first.items()}
    more = {store: last + 7 for store, last in there.items()}
    assert pending(more, [ahead, {}], other) == first
    assert pending(more, [{}, ahead], other) == first
