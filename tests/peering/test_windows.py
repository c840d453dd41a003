"""Nothing of an origin counts twice; what is late and was not seen is QoS ≥ 1 all the same; memory is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.peering.forwarding import GRAPH, Forwarding
from headwater.peering.frames.frame import MalformedFrame, Run
from headwater.peering.windows import LIVES, ORIGINS, WINDOW, Window, Windows

runs = st.lists(st.tuples(st.integers(0, 200_000), st.integers(1, 6)), max_size=40)


@settings(max_examples=60)
@given(runs)
def test_qos_1_is_new_once_as_long_as_it_is_in_the_window(taken: list[tuple[int, int]]) -> None:
    window = Window()
    seen: set[int] = set()
    newest = -1
    for counter, count in taken:
        newest = max(newest, counter + count - 1)
        fresh = window.take(counter, count)
        for index in range(count):
            each = counter + index
            assert bool(fresh >> index & 1) == (each not in seen and each > newest - WINDOW)
            seen.add(each)


@settings(max_examples=40)
@given(runs, runs)
def test_a_window_comes_back_from_its_chunks(before: list[tuple[int, int]], behind: list[tuple[int, int]]) -> None:
    window, disk = Window(), {}
    for counter, count in before:
        window.take(counter, count)
        disk.update(window.chunks(counter, count))
    again = Window()
    for number, chunk in disk.items():
        assert len(chunk) == 64
        again.restore(number, chunk)
    for counter, count in behind:
        assert again.take(counter, count) == window.take(counter, count)


def test_qos_0_is_new_if_it_is_newer_than_all_before() -> None:
    windows = Windows()
    assert windows.take0("a", 1, 5, 3) == 0
    assert windows.take0("a", 1, 6, 3) == 2, "two of three were there"
    assert windows.take0("a", 1, 0, 3) == 3, "late"
    assert windows.take0("b", 1, 0, 1) == 0
    assert windows.take0("a", 2, 0, 1) == 0, "another life"
    assert windows.take0("a", 1, 100, 1) == 1, "what is left of the life before"


def test_lives_are_apart_and_bounded() -> None:
    windows = Windows()
    for boot in range(LIVES):
        assert windows.take1("a", boot, 7, 1) == 1
    for boot in range(LIVES):
        assert windows.take1("a", boot, 7, 1) == 0
    windows.take1("a", LIVES, 7, 1)
    assert len(windows._windows["a"]) == LIVES
    assert windows.take1("a", LIVES, 7, 1) == 0
    windows.forget("a")
    assert windows.take1("a", LIVES, 7, 1) == 1


def test_origins_are_bounded() -> None:
    assert WINDOW // 8 * LIVES * ORIGINS == 32 << 20
    windows = Windows(origins=3)
    for number in range(10):
        windows.take1(f"n{number}", 1, 0, 1)
        windows.take0(f"n{number}", 1, 0, 1)
    assert len(windows._windows) == len(windows._newest) == 3


# ---- forwarding ---------------------------------------------------------------------------------------------------


def run(origin: str, hops: int, counter: int, count: int = 1, position: int = 0) -> Run:
    return Run(5, hops, count, 1, counter, origin, 1, position, b"\x30\0" * count)


def test_counters_of_both_kinds() -> None:
    node = Forwarding("a", 1)
    assert (node.number0(3), node.number0(1), node.number1(2), node.number1(1)) == (0, 3, 0, 2)


def test_in_a_full_mesh_nothing_goes_on() -> None:
    node = Forwarding("a", 1)
    assert node.admit(run("", 0, 0), "b") == ("b", 1, False)
    assert node.admit(run("c", 1, 0), "b").fresh == 0, "relayed to a node that wants none of that"
    assert node.stopped == 1


def test_where_neighbours_are_configured_it_goes_on_and_never_twice() -> None:
    node = Forwarding("a", 1, GRAPH)
    assert node.admit(run("", 0, 0, 3), "b") == ("b", 0b111, True)
    assert node.admit(run("b", 1, 1, 3), "c") == ("b", 0b100, True), "by another way"
    assert node.admit(run("b", 1, 2, 3, position=9), "c") == ("b", 0b111, True), "QoS 1 counts apart"
    assert node.admit(run("a", 2, 0), "c").fresh == 0, "its own"
    assert node.repeated == 3


def test_the_hop_limit() -> None:
    node = Forwarding("a", 1, 3)
    assert node.admit(run("c", 1, 0), "b").may_go_on
    assert node.admit(run("c", 2, 1), "b") == ("c", 1, False)
    assert node.admit(run("c", 3, 2), "b").fresh == 0
    assert node.stopped == 2


@pytest.mark.parametrize(("origin", "hops"), [("c", 0), ("b", 1), ("", 1)])
def test_a_peer_speaks_for_itself_and_for_others_as_what_it_is(origin: str, hops: int) -> None:
    with pytest.raises(MalformedFrame):
        Forwarding("a", 1, GRAPH).admit(run(origin, hops, 0), "b")


@given(st.lists(st.tuples(st.integers(0, 3 * WINDOW), st.integers(1, 70)), max_size=20), st.integers(0, 3 * WINDOW))
def test_looking_says_what_taking_says_and_changes_nothing(taken: list[tuple[int, int]], counter: int) -> None:
    window = Window()
    for each, count in taken:
        window.take(each, count)
    assert window.fresh(counter, 70) == window.fresh(counter, 70) == window.take(counter, 70)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1), st.integers(0, 40), st.integers(1, 70)), max_size=20)
)
def test_what_is_known_of_qos_0_in_a_mesh_is_what_is_not_admitted(come: list[tuple[str, int, int, int]]) -> None:
    """Of the same runs, some of this node itself, some relayed though nothing is here."""
    one, other = Forwarding("a", 1), Forwarding("a", 1)
    for origin, hops, counter, count in come:
        peer = origin if hops == 0 else "z"
        each = run("" if origin == "c" and hops == 0 else origin, hops, counter, count)
        fresh = one.admit(each, peer).fresh
        known = other.known0(each, peer)
        assert fresh == (1 << count) - 1 >> known << known
    assert (one.repeated, one.stopped) == (other.repeated, other.stopped)
