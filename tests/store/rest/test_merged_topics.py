"""Pages of topics of several stores, as one list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.store.rest.merged_topics import Part, merged_page

names = st.text("abc", min_size=1, max_size=2)


def page_of(store: str, topics: list[str], after: str, limit: int) -> Part:
    left = [topic for topic in topics if topic > after]
    rows = [{"topic": topic, "store": store} for topic in left[:limit]]
    return rows, left[limit - 1] if len(left) > limit else None


@given(st.lists(st.sets(names, max_size=8), min_size=1, max_size=4), st.integers(1, 5))
def test_all_pages_are_everything_each_once_and_in_order(stores: list[set[str]], limit: int) -> None:
    held = {f"s{number}": sorted(topics) for number, topics in enumerate(stores)}
    found: list[tuple[str, str]] = []
    after: str | None = ""
    while after is not None:
        rows, next_page = merged_page([page_of(id, topics, after, limit) for id, topics in held.items()], limit)
        found += [(row["topic"], row["store"]) for row in rows]
        assert next_page is None or next_page > after
        after = next_page
    assert found == sorted((topic, id) for id, topics in held.items() for topic in topics)
