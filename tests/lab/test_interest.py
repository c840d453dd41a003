"""`scripts/bench interest`: the tower of voxels, and that every contender is asked the same."""

from __future__ import annotations

from pathlib import Path

from headwater.routing.topics import check_filter, matches
from headwater_lab.interest import CONTENDERS, GOALS, ROWS, Given, contend, count_prefixes, six_levels
from headwater_lab.voxels import ZOOM, interests, tower


def test_a_tower() -> None:
    place = tower(1_000_000)
    assert place.voxels > 1_900_000
    assert place.topic(0).startswith(f"{ZOOM}/0/")
    assert len({place.topic(number) for number in range(5000)}) == 5000


def test_what_clients_want_of_it() -> None:
    found = interests(3000, seed=1, most_unwanted=200)
    assert len(found.filters) == len(set(found.filters)) == 3000
    for each in found.filters:
        check_filter(each, 4)
    wild = [each for each in found.filters if "+" in each or "#" in each]
    assert {each[-1] for each in wild} == {"+", "#"}
    assert len(found.unwanted) == 200
    for topic in found.unwanted:
        assert topic not in found.filters
        assert not any(matches(each, topic) for each in wild)


def test_prefixes_are_those_that_the_paper_stores() -> None:
    assert count_prefixes(["a/b/c", "a/b/#", "a"]) == len({"a", "a/b", "a/b/c$", "a/b/#$", "a$"})


def test_every_contender(tmp_path: Path) -> None:
    given = Given(tmp_path)
    given.write(interests(1500, seed=1, most_unwanted=300))
    assert list(given.filters()) != given.unwanted()
    for name in CONTENDERS:
        found = contend(name, given)
        assert set(found) <= set(ROWS)
        assert found["denied"] == 0 or name == "set"
        assert found["seen_per_s"] > 0
    assert contend("trie", given)["false_positive_rate"] == 0
    assert contend("shared", given)["wire_per_prefix"] < 10


def test_goals_are_of_what_is_measured() -> None:
    names = {f"{contender}/{row}" for contender in CONTENDERS for row in ROWS}
    assert set(GOALS) - names == {"six_levels/summary_us"}
    assert set(six_levels()) == {"summary_us", "prefix_us", "bfp_us", "bf_us"}
