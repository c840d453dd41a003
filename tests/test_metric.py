from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from headwater.metric import added, counter, gauge, plus_counters


@dataclass
class View:
    name: str
    counted: int = counter("Counted.")
    held: int = gauge("Held.")
    by_reason: dict[str, int] = counter("By reason.", default=dict)
    highest: float = gauge("Highest.", default=0.0, together="most")
    lowest: int = gauge("Lowest.", together="least")
    is_so: bool = gauge("Whether.", default=False)


small = st.integers(0, 9)
views = st.builds(
    View, st.just("a"), small, small, st.dictionaries(st.sampled_from("xyz"), small), small, small, st.booleans()
)


@given(st.lists(views, min_size=1))
def test_several_processes_together(some: list[View]) -> None:
    found = added(some)
    assert found.name == "a"
    assert found.counted == sum(each.counted for each in some)
    assert found.held == sum(each.held for each in some)
    assert sum(found.by_reason.values()) == sum(sum(each.by_reason.values()) for each in some)
    assert set(found.by_reason) == {key for each in some for key in each.by_reason}
    assert found.highest == max(each.highest for each in some)
    assert found.lowest == min((each.lowest for each in some if each.lowest), default=0)
    assert found.is_so is any(each.is_so for each in some)


@given(views, views)
def test_what_a_process_had_counted_stays(view: View, gone: View) -> None:
    found = plus_counters(view, gone)
    assert found.counted == view.counted + gone.counted
    assert sum(found.by_reason.values()) == sum(view.by_reason.values()) + sum(gone.by_reason.values())
    assert (found.held, found.highest, found.lowest, found.is_so) == (
        view.held,
        view.highest,
        view.lowest,
        view.is_so,
    ), "it holds nothing any more"
