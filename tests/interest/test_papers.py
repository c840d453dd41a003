"""What the papers say of their methods: worked examples, counts, and where the printed algorithm loses messages."""

from __future__ import annotations

import pytest

from headwater.interest.bf import Bf
from headwater.interest.bfp import Bfp, apply, pattern_of
from headwater.interest.bloom import Bloom
from headwater.interest.elements import Asking, Method
from headwater.interest.methods import Counted, make
from headwater.interest.prefix import Prefix, PrintedPrefix, prefixes
from headwater.interest.sizing import bloom
from headwater.routing.topics import matches


class Recorded(Asking):
    """Asks a plain set, and remembers what for."""

    def __init__(self, content: set[str]) -> None:
        super().__init__(Bloom(8, 1, 0), 10**9)
        self.content = content
        self.asked: list[str] = []

    def has(self, element: str) -> bool:
        self.probes += 1
        self.asked.append(element)
        return element in self.content


def stored(method: Method, filters: list[str]) -> set[str]:
    for each in filters:
        method.added(each.split("/"))
    return {element for each in filters for element in method.elements(each.split("/"))}


def search(method: Method, filters: list[str], topic: str) -> tuple[bool, list[str]]:
    asking = Recorded(stored(method, filters))
    return method.search(topic.split("/"), asking), asking.asked


def filled(name: str, filters: list[str]) -> Counted:
    filter = make(name, 1000, seed=1)
    for each in filters:
        filter.add(each)
    return filter


# ---- worked examples -------------------------------------------------------------------------------------------------

FIGURE_2 = ["a/+/c/d", "a/+/e/f", "x/y/+", "x/y/#"]


def test_the_size_of_section_4_1() -> None:
    bits, positions = bloom(100_000, 0.001)
    assert bits == pytest.approx(1_437_759, abs=1)
    assert positions == 10


def test_figure_2_prefixes_are_stored() -> None:
    assert prefixes(["a", "+", "c", "d"], "$") == ["a", "a/+", "a/+/c", "a/+/c/d$"]
    wanted = {"a", "a/+", "a/+/c", "a/+/c/d$", "a/+/e", "a/+/e/f$", "x", "x/y", "x/y/+$", "x/y/#$"}
    assert stored(Prefix(is_mended=False), FIGURE_2) == wanted


def test_figure_3_a_search() -> None:
    found, asked = search(Prefix(is_mended=False), FIGURE_2, "a/b/c/d")
    assert found
    levels = [["#$", "+", "a"], ["a/#$", "a/+", "a/b"], ["a/+/#$", "a/+/+", "a/+/c"]]
    last = ["a/+/c/#$", "a/+/c/+$", "a/+/c/d$"]
    assert asked == [each for level in levels for each in level] + last


def test_the_patterns_of_section_3() -> None:
    filters = ["a/+/c", "x/+/z", "a/+/+", "+/+/#"]
    patterns = [pattern_of(each.split("/")) for each in filters]
    assert patterns == [((1,), -1), ((1,), -1), ((1, 2), -1), ((0, 1), 2)]
    method = Bfp(is_mended=False)
    stored(method, filters)
    assert set(method.patterns) == {((1,), -1), ((1, 2), -1), ((0, 1), 2)}
    assert ["/".join(apply(each, ["x", "y", "z"])) for each in method.patterns] == ["+/+/#", "x/+/+", "x/+/z"]
    found, asked = search(Bfp(is_mended=False), filters, "x/y/q")
    assert found
    assert asked == ["+/+/#"]
    assert pattern_of(["a", "b"]) is None


def test_questions_of_a_search_that_finds_nothing() -> None:
    topic = "/".join("abcdefghij")
    for mended, wanted in ((False, 2047), (True, 3071)):
        found, asked = search(Bf(mended), [], topic)
        assert (found, len(asked), len(set(asked))) == (False, wanted, wanted)
        assert all(matches(each, topic) for each in asked)
    assert len(search(Bf(is_mended=False), ["#"], topic)[1]) == 1, "general forms are asked for first"
    assert len(search(Bfp(), ["x/y"], topic)[1]) == 1, "no wildcards, no patterns"
    assert len(search(Prefix(is_mended=False), ["x/y"], topic)[1]) == 3


# ---- what is wrong with what was printed -----------------------------------------------------------------------------

LOST = [
    pytest.param("prefix-printed", ["/+/x", "/a/b"], "/a/b", id="only the first branch that goes on is followed"),
    pytest.param("prefix-printed", ["a/b"], "a/b", id="a slash before the first level that was not stored"),
    pytest.param("prefix-printed", ["#"], "a", id="even # is not found"),
    pytest.param("prefix-printed", ["/sport/#"], "/sport", id="the parent level of #, as printed"),
    pytest.param("prefix-paper", ["sport/#"], "sport", id="the parent level of #, in the prose"),
    pytest.param("bf-paper", ["sport/#"], "sport", id="the parent level of #, in the count of forms"),
    pytest.param("bfp-paper", ["sport/#"], "sport", id="the parent level of #, with patterns"),
]


@pytest.mark.parametrize(("name", "filters", "topic"), LOST)
def test_a_message_that_is_lost(name: str, filters: list[str], topic: str) -> None:
    assert any(matches(each, topic) for each in filters)
    assert not filled(name, filters).may_match(topic)
    for mended in ("bf", "bfp", "prefix", "summary"):
        assert filled(mended, filters).may_match(topic)


NEEDLESS = [
    pytest.param("prefix-paper", ["#"], "$SYS/load", id="# at the first level"),
    pytest.param("prefix-paper", ["+/load"], "$SYS/load", id="+ at the first level"),
    pytest.param("bf-paper", ["#"], "$SYS/load", id="# among the forms"),
    pytest.param("bfp-paper", ["+/load"], "$SYS/load", id="+ among the patterns"),
    pytest.param("prefix-paper", ["a$/b"], "a", id="the end mark inside a topic"),
]


@pytest.mark.parametrize(("name", "filters", "topic"), NEEDLESS)
def test_a_message_that_nobody_wants(name: str, filters: list[str], topic: str) -> None:
    assert not any(matches(each, topic) for each in filters)
    assert filled(name, filters).may_match(topic)
    for mended in ("bf", "bfp", "prefix", "summary"):
        assert not filled(mended, filters).may_match(topic)


def test_the_printed_algorithm_finds_what_its_slashes_allow() -> None:
    found, asked = search(PrintedPrefix(), ["/a/+"], "/a/b")
    assert not found, "registration stores '' and '/a', the search asks for '/' first"
    assert asked == ["/#$", "/+", "/"]
