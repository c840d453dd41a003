"""What every interest filter promises: it never says no to a topic that a filter in it matches."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.interest.filter import Incompatible
from headwater.interest.methods import EXACT_ENOUGH, NAMES, Counted, decode, make
from headwater.interest.summary import Summary
from headwater.routing.topics import matches
from tests.interest.adversaries import filters, topics

every_method = pytest.mark.parametrize("name", EXACT_ENOUGH)
sets = st.lists(filters, max_size=12)
SEED = 5


def made(name: str, content: list[str] = []) -> Counted:  # noqa: B006 # nobody changes it
    filter = make(name, 200, seed=SEED)
    for each in content:
        filter.add(each)
    return filter


def inner(filter: str) -> str:
    return filter.split("/", 2)[2] if filter.startswith("$share/") else filter


def wanted(content: list[str], topic: str) -> bool:
    return any(matches(inner(each), topic) for each in content)


def assert_empty(filter: Counted, topic: str) -> None:
    """Every bit is as it was at first, so that it says no, unless it has to give up."""
    filter.encode()
    assert not any(filter.lines.whole() if isinstance(filter, Summary) else filter.bloom.ones)
    assert not filter.may_match(topic) or filter.statistics().given_up


@every_method
@settings(deadline=None)
@given(content=sets, topic=topics)
def test_what_is_wanted_is_found(name: str, content: list[str], topic: str) -> None:
    filter = made(name, content)
    shared = decode(filter.encode())
    if wanted(content, topic):
        assert filter.may_match(topic)
        assert shared.may_match(topic)
    else:
        assert filter.may_match(topic) == shared.may_match(topic), "both err, or neither"


@every_method
@settings(deadline=None)
@given(content=sets, gone=st.lists(st.integers(0, 11), unique=True), topic=topics)
def test_what_is_left_is_found(name: str, content: list[str], gone: list[int], topic: str) -> None:
    filter = made(name, content)
    removed = [content[at] for at in gone if at < len(content)]
    for each in removed:
        filter.remove(each)
    left = [each for at, each in enumerate(content) if at not in gone]
    assert filter.statistics().filters == len(left)
    if wanted(left, topic):
        assert filter.may_match(topic)
    for each in left:
        filter.remove(each)
    assert_empty(filter, topic)


@every_method
@settings(deadline=None)
@given(one=sets, two=sets, topic=topics)
def test_put_together(name: str, one: list[str], two: list[str], topic: str) -> None:
    both = made(name, one)
    both.merge(made(name, two))
    if wanted([*one, *two], topic):
        assert both.may_match(topic)
    for each in one:
        both.remove(each)
    if wanted(two, topic):
        assert both.may_match(topic)
    for each in two:
        both.remove(each)
    assert_empty(both, topic)


@every_method
@settings(deadline=None)
@given(one=sets, two=sets, topic=topics)
def test_what_others_have_sent_put_together(name: str, one: list[str], two: list[str], topic: str) -> None:
    first, second = made(name, one), made(name, two)
    both = decode(first.encode())
    if isinstance(first, Summary) and isinstance(second, Summary) and first.geometry != second.geometry:
        with pytest.raises(Incompatible, match="different seeds or sizes"):
            both.merge(decode(second.encode()))
        return
    both.merge(decode(second.encode()))
    if wanted([*one, *two], topic):
        assert both.may_match(topic)


@every_method
def test_what_is_not_there_cannot_go(name: str) -> None:
    filter = made(name, ["a/b", "a/+/#"])
    with pytest.raises(KeyError):
        filter.remove("a/c")
    filter.remove("a/b")
    with pytest.raises(KeyError):
        filter.remove("a/b")
    assert filter.may_match("a/b/c")
    assert filter.statistics().filters == 1


@every_method
def test_filters_of_different_makes_stay_apart(name: str) -> None:
    other = made("bf" if name != "bf" else "prefix", ["a"])
    for stranger in (other, make(name, 200, seed=SEED + 1), decode(other.encode())):
        with pytest.raises(Incompatible):
            made(name, ["a"]).merge(stranger)


@every_method
def test_look_ups_are_counted_and_bounded(name: str) -> None:
    filter = make(name, 200, seed=SEED, most_probes=2)
    for each in ("a/b/c/d", "+/b/+/d", "a/+/c/x"):
        filter.add(each)
    assert filter.may_match("q/b/c/z"), "maybe, as it had to give up"
    assert filter.statistics().given_up == 1
    assert (filter.probes, filter.statistics().probes, filter.statistics().lookups) == (2, 2, 1)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_damaged_bytes_are_refused(name: str, data: st.DataObject) -> None:
    whole = made(name, ["a/+/c", "b/#"]).encode()
    at = data.draw(st.integers(0, len(whole) - 1))
    bit = data.draw(st.integers(0, 7))
    with pytest.raises(Incompatible):
        decode(whole[:at] + bytes((whole[at] ^ 1 << bit,)) + whole[at + 1 :])
    with pytest.raises(Incompatible):
        decode(whole[:at])


@given(st.binary(max_size=40))
def test_strange_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Incompatible):
        decode(data)


def test_names_that_are_not_known() -> None:
    with pytest.raises(ValueError, match="there is no method 'trie'; there are bf-paper, bf,"):
        make("trie")
