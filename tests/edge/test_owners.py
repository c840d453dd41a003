"""One node's part in who owns which topics, by itself: bounds, and what it has over restarts."""

from __future__ import annotations

import json

import pytest

from headwater.edge.declaration import MOST_PIECES, Declaration, DeclaredClaim, Row, decode, encode, pieces_of
from headwater.edge.messages import View
from headwater.edge.owners import MOST_OWNED, MOST_ROWS, Owners, Part, Refused
from headwater.edge.ownership import Claim, Table

ROLES = ("receiving", "delivery")
BOTH = Part("b", "north", ROLES, True)


def owners(members: list[str] | None = None) -> Owners:
    found = Owners(BOTH, 1, lambda: members or [])
    found.begin([], 1, 0.0)
    assert found.next_view() is not None
    return found


def other(node: str, *claims: DeclaredClaim) -> Declaration:
    return Declaration("north", ROLES, f"s-{node}", "", claims, (Row("#", 0, 1, None, "#"),))


def test_filters_of_a_node_are_bounded() -> None:
    one = owners()
    one.part = BOTH._replace(keeps=False)
    for number in range(MOST_OWNED):
        one.claim(f"plant/{number}", False, [], 1, 0.0)
    with pytest.raises(Refused, match="no node may have more"):
        one.claim("plant/x", False, [], 1, 0.0)


def test_so_is_what_a_node_tells() -> None:
    one = owners()
    one.part = BOTH._replace(keeps=False)
    count = 0
    with pytest.raises(Refused, match="cannot tell the others of so many"):
        for count in range(MOST_OWNED):
            one.claim("".join(chr(0x4E00 + (count * 977 + at * 7919) % 20000) for at in range(80)), False, [], 1, 0.0)
    assert count > 10
    assert len(one.claims) == count
    assert len(encode(one.declaration(), 1)) <= MOST_PIECES


def test_rows_are_bounded() -> None:
    one = owners(["a"])
    one.declare("a", other("a", DeclaredClaim("x", 1, 0.0)))
    for epoch in range(2, 2 + MOST_ROWS):
        one.declare("a", other("a", DeclaredClaim(f"x/{epoch}", epoch, 0.0)))
        while one.next_view() is not None:
            pass
        one.hear("a", one.view)
        one.look(epoch)
    one.declare("a", other("a"))
    one.claim("y", False, ["a"], 1000, 0.0)
    assert len(one.rows) <= MOST_ROWS
    assert one.rows[0] == Row("#", 0, 1, None, "#")
    assert one.rows[-1] == Row("y", 2 + MOST_ROWS, 1000, None, "y")


def test_a_record_is_all_there_is() -> None:
    one = owners(["a"])
    one.declare("a", other("a", DeclaredClaim("x/#", 5, 0.0)))
    while one.next_view() is not None:
        pass
    one.claim("y", True, ["a"], 7, 12.5)
    while one.next_view() is not None:
        pass
    again = Owners(BOTH, 2, lambda: ["a"])
    again.restore(json.loads(json.dumps(one.record())), 2)
    was, found = (json.loads(json.dumps(each.record())) for each in (one, again))
    assert found == {**was, "view": found["view"]}
    assert again.view.table == one.view.table and again.view.number > one.view.number
    assert again.next_view() is None, "nobody has been heard of, and everything is as it was"
    again.begin(["y", "z"], 9, 0.0)
    assert sorted(again.claims) == ["y", "z"]


def test_who_is_no_delivery_node_any_more_owns_nothing() -> None:
    one = Owners(BOTH, 1, list)
    one.begin(["y/#"], 1, 0.0)
    assert list(one.claims) == ["y/#"]
    again = Owners(BOTH._replace(roles=("receiving",)), 2, list)
    again.restore(one.record(), 2)
    again.begin([], 1, 0.0)
    assert again.claims == {} and again.declaration().claims == ()


def test_a_view_waits_for_those_that_lose_by_it() -> None:
    one = owners(["a", "p"])
    one.declare("a", other("a", DeclaredClaim("x/#", 1, 0.0)))
    one.declare("p", Declaration("north", ("receiving",)))
    before = Table([Claim("x/#", 1, "a")], "a")
    first, second = View(10, before), View(11, before.with_claim(Claim("x/1", 2, "b")))
    assert one.must_wait("p", first) == set()
    one.hear("p", first)
    assert one.must_wait("p", second) == {"a"}
    one.has_seen("a", {"p": 10})
    assert one.must_wait("p", second) == {"a"}
    one.has_seen("a", {"p": 11})
    assert one.must_wait("p", second) == set()
    one.hear("a", first)
    assert one.must_wait("a", second) == set(), "what it publishes itself it has before it says so"


def test_a_declaration_in_pieces() -> None:
    found = other(
        "a", *(DeclaredClaim(f"plant/{n}/\N{SNOWMAN}", n, 1.5, ("b", "c"), "ending", ("b",)) for n in range(40))
    )
    values = encode(found, 7)
    assert decode(pieces_of({**values, "mqtt": b"x"})) == found
    later = encode(found._replace(edge="south"), 8)
    for key in values:
        if len(values) > 1:
            assert decode(pieces_of({**values, key: later.get(key, b"")})) is None, "pieces of two of them"
    assert decode(()) is None
    assert decode((b"",)) is None
    assert decode(tuple(each[:-1] for each in pieces_of(values))) is None


def test_old_rows_give_way_in_what_is_told() -> None:
    names = ["".join(chr(0x4E00 + (n * 977 + at * 7919) % 20000) for at in range(60)) for n in range(200)]
    rows = [Row(name, n, n, n, "#") for n, name in enumerate(names)]
    kept = decode(pieces_of(encode(Declaration("north", ROLES, "s", "", (), (Row("#", 0, 1, None, "#"), *rows)), 1)))
    assert kept is not None
    assert kept.rows[0] == Row("#", 0, 1, None, "#")
    assert 10 < len(kept.rows) < 201 and kept.rows[-1] == rows[-1]


def test_nobody_falls_back_to_an_owner_before_a_claim_that_was_dropped() -> None:
    """Who was the owner before may not have told yet that it is none any more."""
    one = owners(["a", "c"])
    one.declare("a", other("a", DeclaredClaim("x/#", 1, 0.0), DeclaredClaim("x/1", 5, 0.0)))
    one.declare("c", other("c", DeclaredClaim("x/1", 4, 0.0)))
    assert one.target().owner("x/1") == "a"
    dropped = other("a", DeclaredClaim("x/#", 1, 0.0))._replace(ended=(Claim("x/1", 5, "a"),))
    one.declare("a", dropped)
    assert one.target().owner("x/1") == "a"
    one.declare("c", other("c", DeclaredClaim("x/1", 4, 0.0)))
    assert one.target().owner("x/1") == "a", "told by a third node, from before"
    one.declare("c", other("c", DeclaredClaim("x/1", 6, 0.0)))
    assert one.target().owner("x/1") == "c"


def test_a_new_node_has_by_its_settings_what_was_dropped_once() -> None:
    one = owners(["a", "d"])
    dropped = other("a", DeclaredClaim("x/#", 1, 0.0))._replace(ended=(Claim("x/1", 5, "a"),))
    one.declare("a", dropped)
    one.declare("d", other("d", DeclaredClaim("x/1", 1, 0.0)))
    one.declare("a", dropped)
    assert one.target().owner("x/1") == "d"
    one.declare("d", other("d"))
    one.claim("x/1", False, ["a", "d"], 1, 0.0)
    assert one.claims["x/1"].epoch == 6, "behind all that is known, also of what was dropped"


def test_nor_to_an_owner_before_a_lost_one_that_had_all() -> None:
    one = owners(["a", "c"])
    one.declare("c", other("c", DeclaredClaim("x/1", 4, 0.0)))
    one.declare("a", other("a", DeclaredClaim("x/1", 5, 0.0)))
    one.forget("a")
    assert "x/1" not in one.target().claims
    one.declare("c", other("c", DeclaredClaim("x/2", 6, 0.0)))
    one.declare("a", other("a", DeclaredClaim("x/2", 7, 0.0, ("c",), "ending", ("c",))))
    one.forget("a")
    assert one.target().owner("x/2") == "c", "it was lost in the middle"
