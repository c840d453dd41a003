"""Who waits is released by the acknowledgements that it needs, and by nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.peering.barrier import Barrier

peers = st.sampled_from(("a", "b", "c"))


def test_all_peers_have_to_acknowledge() -> None:
    barrier: Barrier[str] = Barrier(0.2)
    assert not barrier.hold("nobody to wait for", 1, set(), 0.0)
    assert barrier.hold("first", 1, {"a", "b"}, 0.0)
    assert barrier.hold("second", 2, {"a", "b"}, 0.0)
    assert barrier.acknowledged("a", 2) == []
    assert barrier.acknowledged("b", 1) == ["first"]
    assert barrier.acknowledged("b", 2) == ["second"]
    assert len(barrier) == 0


def test_links_that_go_down_are_not_waited_for() -> None:
    barrier: Barrier[str] = Barrier(0.2)
    barrier.hold("one", 1, {"a", "b"}, 0.0)
    barrier.acknowledged("a", 1)
    assert barrier.gone("b") == ["one"]


def test_time_is_bounded() -> None:
    barrier: Barrier[str] = Barrier(0.2)
    barrier.hold("one", 1, {"a"}, 5.0)
    barrier.hold("two", 1, {"a"}, 5.1)
    assert barrier.next == 5.2
    assert barrier.expired(5.19) == []
    assert barrier.expired(5.25) == ["one"]
    assert barrier.acknowledged("a", 1) == ["two"]
    assert barrier.next is None


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("hold"), st.integers(1, 5), st.sets(peers, min_size=1)),
            st.tuples(st.just("acknowledge"), st.integers(1, 5), peers),
            st.tuples(st.just("gone"), st.just(0), peers),
        ),
        max_size=30,
    )
)
def test_each_is_released_once_and_when_nobody_is_missing(steps: list[tuple[str, int, set[str] | str]]) -> None:
    barrier: Barrier[int] = Barrier(1.0)
    missing: dict[int, tuple[int, set[str]]] = {}
    for at, (what, number, who) in enumerate(steps):
        released: list[int] = []
        if isinstance(who, set):
            barrier.hold(at, number, set(who), 0.0)
            missing[at] = (number, set(who))
        else:
            released = barrier.gone(who) if what == "gone" else barrier.acknowledged(who, number)
            for wanted, others in missing.values():
                if what == "gone" or wanted <= number:
                    others.discard(who)
        assert released == [token for token, (_, others) in missing.items() if not others]
        for token in released:
            del missing[token]
    assert barrier.expired(2.0) == list(missing)
