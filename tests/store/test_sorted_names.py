"""Names in order, compared with a sorted list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.store import sorted_names as module
from headwater.store.sorted_names import SortedNames

NAMES = st.text("ab/", max_size=4)


@given(st.lists(st.tuples(st.booleans(), NAMES), max_size=60), NAMES, NAMES)
def test_it_is_as_a_sorted_list(steps: list[tuple[bool, str]], after: str, begin: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LONGEST", 3)
        names, expected = SortedNames(), set[str]()
        for add, name in steps:
            if add:
                names.add(name)
                expected.add(name)
            else:
                names.remove(name)
                expected.discard(name)
    assert len(names) == len(expected)
    assert list(names.behind("")) == sorted(expected)
    wanted = [each for each in sorted(expected) if (not after or each > after) and each >= begin]
    assert list(names.behind(after, begin)) == wanted
