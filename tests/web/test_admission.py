"""Who has a place, and who gives way."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from headwater.web.admission import SPARE, Bounds, Place, Places


class Crowd:
    """Places of callers with names, and who was ended."""

    def __init__(self, **bounds: int) -> None:
        self.places = Places(Bounds(**bounds))
        self.ended: list[str] = []

    def come(self, name: str, address: str = "a", is_trusted: bool = False) -> Place:
        place = self.places.admit(address, is_trusted)
        place.end = self._ends(name)
        return place

    def _ends(self, name: str) -> Callable[[], None]:
        return lambda: self.ended.append(name)


def test_a_newcomer_takes_the_place_of_who_has_waited_longest() -> None:
    crowd = Crowd(connections=3, per_address=3)
    first = crowd.come("first")
    crowd.come("second")
    crowd.come("third")
    first.answer()
    first.wait()  # it has had its answer, and waits again
    assert not crowd.come("fourth").is_spare
    assert (crowd.ended, len(crowd.places)) == (["second"], 3)


def test_who_answers_does_not_give_way() -> None:
    crowd = Crowd(connections=2, per_address=2)
    for name in ("first", "second"):
        crowd.come(name).answer()
    assert crowd.come("third").is_spare
    assert crowd.ended == []


def test_an_address_has_its_share_and_takes_nothing_of_others() -> None:
    crowd = Crowd(connections=4, per_address=2)
    crowd.come("other", "b")
    crowd.come("first")
    crowd.come("second")
    assert not crowd.come("third").is_spare
    assert crowd.ended == ["first"]
    for name in ("x", "y"):
        assert not crowd.come(name, "c").is_spare
    assert crowd.ended == ["first", "other"]


def test_an_address_whose_requests_are_all_being_answered_has_health_alone() -> None:
    crowd = Crowd(connections=4, per_address=2)
    for name in ("first", "second"):
        crowd.come(name).answer()
    assert crowd.come("third").is_spare
    assert not crowd.come("other", "b").is_spare
    assert not crowd.come("proxy", is_trusted=True).is_spare


def test_spare_places_are_few_and_give_way_to_each_other() -> None:
    crowd = Crowd(connections=1, per_address=1)
    crowd.come("first").answer()
    for number in range(SPARE + 1):
        assert crowd.come(f"{number}").is_spare
    assert (crowd.ended, len(crowd.places)) == (["0"], 1 + SPARE)


def test_unfinished_heads_are_bounded_together_and_the_oldest_gives_way() -> None:
    crowd = Crowd(connections=9, per_address=9, heads_size=100)
    first, second = crowd.come("first"), crowd.come("second")
    first.unfinished(30)
    second.unfinished(40)
    first.unfinished(60)
    assert crowd.ended == []
    crowd.come("third").unfinished(1)
    assert crowd.ended == ["first"]
    second.answer()
    second.wait()
    crowd.come("fourth").unfinished(99)
    assert crowd.ended == ["first"]
    crowd.come("fifth").unfinished(101)  # more than there may be of all
    assert crowd.ended == ["first", "third", "fourth", "fifth"]
    assert len(crowd.places) == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["come", "answer", "wait", "leave", "head"]))))
def test_there_are_never_more_than_there_may_be(steps: list[tuple[str, str]]) -> None:
    places = Places(Bounds(connections=4, per_address=2, heads_size=50))
    here: dict[str, list[Place]] = {"a": [], "b": [], "c": []}
    for address, step in steps:
        if step == "come":
            place = places.admit(address)
            place.end = lambda place=place, address=address: here[address].remove(place)  # type: ignore[misc]
            here[address].append(place)
        elif here[address]:
            place = here[address][0]
            if step == "answer":
                place.answer()
            elif step == "wait":
                place.wait()
            elif step == "head":
                place.unfinished(20)
            else:
                here[address].remove(place)
                place.leave()
        everybody = [place for some in here.values() for place in some]
        assert len(places) == len(everybody)
        assert sum(not place.is_spare for place in everybody) <= 4
        assert sum(place.is_spare for place in everybody) <= SPARE
        assert all(sum(not place.is_spare for place in some) <= 2 for some in here.values())
