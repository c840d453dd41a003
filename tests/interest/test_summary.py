"""`summary`: how many lines it reads, how often it errs, how large it is, and what the worst costs."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from headwater.interest.filter import Incompatible
from headwater.interest.methods import decode
from headwater.interest.shared_summary import MOST_ANSWERS
from headwater.interest.sizing import LINE_BYTES, Geometry, bloom, geometry
from headwater.interest.summary import Summary
from headwater.interest.written import Writing
from headwater.routing.topics import matches


def name(random: Random) -> str:
    return "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=10))


def wild(levels: list[str], random: Random) -> list[str]:
    """Some of the levels become `+`, and from some level on `#` may stand for all."""
    made = ["+" if random.random() < 0.5 else level for level in levels]
    return [*made[: random.randrange(1, len(made))], "#"] if random.random() < 0.3 else made


def mixed(count: int, depth: int, random: Random) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        levels = [name(random) for _ in range(depth)]
        levels = wild(levels, random) if random.random() < 0.5 else levels
        if set(levels) - {"+", "#"}:
            found.append("/".join(levels))
    return found


def voxels(count: int, random: Random) -> list[str]:
    places = {f"25/{random.randrange(40)}/{random.randrange(200)}/{random.randrange(200)}" for _ in range(count)}
    return [*sorted(places), "25/3/+/+", "25/7/10/#"]


def test_an_answer_that_is_known_costs_nothing_until_the_filter_changes() -> None:
    summary = Summary(seed=1)
    summary.add("a/b")
    assert summary.may_match("a/b")
    assert summary.probes == 3
    assert summary.may_match("a/b")
    assert summary.probes == 0
    assert not summary.may_match("a/c")
    summary.add("a/c")
    assert summary.may_match("a/c")
    summary.remove("a/c")
    assert not summary.may_match("a/c")
    assert summary.statistics().lookups == 5


def test_answers_that_are_remembered_are_bounded() -> None:
    summary = Summary(seed=1)
    summary.add("a")
    for number in range(MOST_ANSWERS + 5):
        summary.may_match(f"b/{number}")
    assert len(summary._answers) == 5
    summary.may_match("b/0")
    assert summary.probes > 0


def test_of_a_run_of_plus_every_second_is_free() -> None:
    summary = Summary(seed=1)
    summary.add("+/+/+/+/x")
    assert not summary.may_match("a/b/c/d/e")
    assert summary.probes == 4, "the root with +, +/+ with +/+/+, +/+/+/+, and the name behind it"


def test_nothing_is_read_of_levels_that_no_filter_has() -> None:
    summary = Summary(seed=1)
    summary.add("a/b")
    assert not summary.may_match("a/b" + "/c" * 30_000)
    assert summary.probes <= 3


@pytest.mark.parametrize("content", ["mixed", "voxels", "flat"])
def test_it_errs_as_rarely_as_asked_for(content: str) -> None:
    """The bound is 1.5 times that, and what chance adds."""
    random = Random(7)
    p, lookups = 0.02, 4000
    made = {
        "mixed": lambda: mixed(1000, 5, random),
        "voxels": lambda: voxels(4000, random),
        "flat": lambda: [name(random) for _ in range(4000)],
    }
    filters = made[content]()
    summary = Summary(p=p, seed=3)
    for each in filters:
        summary.add(each)
    with_wildcards = [each for each in filters if "+" in each or "#" in each]
    exact = set(filters)
    errors = asked = 0
    while asked < lookups:
        if content == "voxels":
            topic = f"25/{random.randrange(40)}/{random.randrange(200)}/{random.randrange(200)}"
        else:
            topic = "/".join(name(random) for _ in range(5 if content == "mixed" else 1))
        if topic in exact or any(matches(each, topic) for each in with_wildcards):
            continue
        asked += 1
        errors += summary.may_match(topic)
    assert errors <= 1.5 * p * lookups + 3 * (p * lookups) ** 0.5


def test_it_grows_and_shrinks_with_its_content() -> None:
    summary = Summary(seed=1)
    random = Random(1)
    empty = summary.encode()
    filters = mixed(3000, 4, random)
    for each in filters:
        summary.add(each)
    grown = summary.statistics()
    assert grown.elements is not None
    assert grown.shared_bytes / grown.elements < 2.5
    assert decode(summary.encode()).statistics().shared_bytes == grown.shared_bytes
    for each in filters:
        summary.remove(each)
    left = summary.statistics()
    assert (left.filters, left.elements) == (0, 0)
    assert left.shared_bytes < grown.shared_bytes / 8
    assert not any(summary.lines.whole())
    assert summary.kinds == b"\0"
    assert len(empty) <= 9 * LINE_BYTES


def test_counts_do_not_wear_out() -> None:
    summary = Summary(seed=1)
    for _ in range(1000):
        summary.add("a/b")
    for _ in range(999):
        summary.remove("a/b")
    assert summary.may_match("a/b")
    summary.remove("a/b")
    assert not summary.may_match("a/b")


@pytest.mark.parametrize("most", [10, 2000])
def test_the_worst_case_costs_no_more_than_the_bound(most: int) -> None:
    """Every prefix of the topic goes on with `+` and with its name: 2^8 of them, and none ends."""
    summary = Summary(seed=1, most_probes=most)
    for chosen in range(1 << 8):
        levels = ["+" if chosen >> at & 1 else "a" for at in range(8)]
        summary.add("/".join([*levels, "end"]))
    assert summary.may_match("/".join(["a"] * 8 + ["other"])) is (most == 10)
    assert summary.probes <= most
    assert summary.statistics().given_up == (most == 10)


def test_the_deepest_filters_and_topics() -> None:
    summary = Summary(seed=1)
    deep = "/".join(["a"] * 32_000)
    summary.add(deep)
    summary.add("+/" * 5000 + "b")
    assert summary.may_match("/".join(["a"] * 32_000)), "found, or maybe"
    assert summary.probes <= summary.most_probes
    assert not summary.may_match("b/c")
    summary.remove("+/" * 5000 + "b")
    assert len(summary.kinds) == 32_001


def test_only_summaries_of_the_same_seed_go_together() -> None:
    one, two = Summary(seed=1), Summary(seed=2)
    with pytest.raises(Incompatible, match="the same seed"):
        one.merge(two)
    with pytest.raises(Incompatible, match="the same seed"):
        one.merge(decode(one.encode()))


@pytest.mark.parametrize(
    "numbers", [(1, 0, 6, 9), (1, 1, 0, 9), (1, 1, 6, 0), (1, 1, 6, 10**9), (1, 1, 10**9, 6), (1, 2, 6, 9)]
)
def test_a_shape_that_cannot_be_is_refused(numbers: tuple[int, ...]) -> None:
    for kinds in (b"\0", b""):
        made = Writing("summary")
        for number in numbers if kinds else (1, 1, 6, 9):
            made.number(number)
        made.runs(kinds)
        made.block(bytes(LINE_BYTES))
        with pytest.raises(Incompatible, match="malformed"):
            decode(made.done())


def test_sizes() -> None:
    assert geometry(0, 0, 1, 0.001).lines == 8
    small, large = geometry(1000, 1000, 4, 0.01), geometry(1000, 1000, 4, 0.0001)
    assert small.lines < large.lines
    assert small.terminal < large.terminal
    flat = geometry(0, 1_000_000, 2, 0.001)
    assert flat.lines * LINE_BYTES <= 2.2e6, "a fifth more than a classical filter, which reads ten lines"
    assert flat.lines * LINE_BYTES >= bloom(1_000_000, 0.0005).bits / 8
    for wrong in (0.0, 1.0, -1.0):
        with pytest.raises(ValueError, match="between 0 and 1"):
            geometry(1, 1, 1, wrong)
    assert isinstance(small, Geometry)


@pytest.mark.parametrize("before", [0, 50])
def test_many_at_once_are_what_they_are_one_by_one(before: int) -> None:
    random = Random(11)
    some, many = mixed(before, 5, random), mixed(2000, 5, random)
    one_by_one, at_once = Summary(seed=1), Summary(seed=1)
    for each in (*some, *many):
        one_by_one.add(each)
    for each in some:
        at_once.add(each)
    known = "/".join(name(random) for _ in range(5))
    at_once.may_match(known)
    generation = at_once.generation
    at_once.add_all([*many, known])
    assert at_once.generation != generation  # so that others get all of it
    assert at_once.may_match(known)
    at_once.remove(known)
    assert at_once.encode() == one_by_one.encode()
    assert at_once.statistics().filters == before + 2000


def test_what_was_added_before_an_error_is_there() -> None:
    def failing() -> Iterator[str]:
        yield "a/b"
        raise OSError

    summary = Summary(seed=1)
    with pytest.raises(OSError):
        summary.add_all(failing())
    assert summary.may_match("a/b")
    summary.add("a/c")
    assert summary.may_match("a/c")
