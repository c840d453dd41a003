"""Who is remembered to have which session."""

from __future__ import annotations

from headwater.peering.retained.clock import NEVER_WRITTEN, Stamp
from headwater.peering.sessions.holders import EACH, Holders
from headwater.peering.sessions.messages import Held


def test_the_latest_claim_counts() -> None:
    holders = Holders()
    holders.tell(Held("x", Stamp(2, "b"), True))
    holders.tell(Held("x", Stamp(1, "a"), True))
    assert holders.latest("x") == Stamp(2, "b")
    holders.release("x", Stamp(1, "a"))  # of an earlier life of it
    assert holders.latest("x") == Stamp(2, "b")
    holders.release("x", Stamp(2, "b"))
    assert holders.latest("x") == NEVER_WRITTEN and holders.bytes == 0


def test_what_a_forgotten_node_had_is_forgotten() -> None:
    holders = Holders()
    holders.tell(Held("x", Stamp(1, "a"), True))
    holders.tell(Held("y", Stamp(1, "b"), True))
    holders.forget("a")
    assert [held.client_id for held in holders] == ["y"]


def test_bytes_are_bounded() -> None:
    holders = Holders(10 * (EACH + 2))
    for number in range(100):
        holders.tell(Held(f"{number:02}", Stamp(1, "a"), True))
    assert len(holders) == 10 and holders.bytes == 10 * (EACH + 2)
    holders.tell(Held("00", Stamp(2, "b"), True))  # what is known is kept true
    assert holders.latest("00") == Stamp(2, "b")
    for number in range(100):
        holders.release(f"{number:02}", Stamp(9, "z"))
    assert holders.bytes == 0
