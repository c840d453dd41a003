"""Rows of claims that are void: topics that are by several other claims, and by whose; and a world of queues
(rows_world.py) in which filters that overlap are split and joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from headwater.edge import owners as owners_module
from headwater.edge.declaration import Row
from headwater.edge.owners import Owners
from headwater.edge.ownership import Claim, Table
from headwater.edge.rows import handed_over, regained, takers
from headwater.edge.status import EdgeStatus, Stretch, stretches_of
from tests.edge.rows_world import run

ALL = Claim("plant/#", 1, "a")
EACH_A = Claim("plant/+/a", 2, "a")
NARROW = Claim("plant/0/#", 3, "a")
OPEN = Row("plant/0/#", 3, 10, None, "plant/0/#")


def seen(rows: list[Row], topic: str) -> list[tuple[str, int, int | None]]:
    stores = tuple(Stretch("s", "a", "", (each.filter,), each.claim, each.epoch, *each[2:4]) for each in rows)
    return [(each.claim, each.first, each.last) for each in stretches_of(EdgeStatus("", "a", stores=stores), topic)]


def test_topics_without_a_claim_are_by_the_most_specific_ones_that_are_left() -> None:
    exact = Claim("plant/0/a", 4, "b")
    assert takers(Table([ALL, EACH_A, NARROW, exact]), "plant/0/#") == [EACH_A, ALL]
    assert takers(Table([ALL, EACH_A, NARROW, exact]), "plant/0/a") == [NARROW]
    assert takers(Table([ALL, Claim("other/#", 5, "b")]), "plant/#") == []


def test_a_row_goes_on_by_each_claim_that_has_some_of_it() -> None:
    rows = handed_over([OPEN], "plant/0/#", Table([ALL, EACH_A, NARROW]))
    assert seen(rows, "plant/0/a") == [("plant/+/a", 10, None)]
    assert seen(rows, "plant/0/b") == [("plant/#", 10, None)]
    assert handed_over([OPEN], "plant/0/#", Table([ALL, NARROW])) == [OPEN._replace(claim="plant/#")]


def test_also_when_that_claim_is_dropped_in_turn() -> None:
    rows = handed_over([OPEN], "plant/0/#", Table([ALL, EACH_A, NARROW]))
    rows = handed_over([*rows, Row("plant/+/a", 2, 5, None, "plant/+/a")], "plant/+/a", Table([ALL, EACH_A]))
    assert seen(rows, "plant/0/a")[-1][2] is None and seen(rows, "plant/0/a")[0] == ("plant/#", 5, None)
    assert seen(rows, "plant/0/b") == [("plant/#", 10, None)]
    assert {row.claim for row in rows} == {"plant/#"}


def test_what_has_ended_of_a_row_has_ended_of_what_becomes_of_it() -> None:
    part = Row("plant/0/b", 3, 10, 20, "plant/0/#")
    before = Row("plant/0/#", 1, 2, 5, "plant/0/#")
    rows = handed_over([before, OPEN, part], "plant/0/#", Table([ALL, NARROW]))
    assert rows[0] == before, "what has ended as a whole stays what it was"
    assert seen(rows, "plant/0/b") == [("plant/0/#", 2, 5), ("plant/#", 10, 20)]


def test_what_ended_for_a_claim_of_a_lost_node_goes_on_where_it_ended() -> None:
    rows = [
        Row("plant/#", 1, 1, None, "plant/#"),
        Row("plant/+/a", 1, 1, 4, "plant/#"),
        Row("plant/+/a", 2, 5, None, "plant/+/a"),
        Row("plant/0/#", 1, 1, 9, "plant/#"),
        Row("plant/0/a", 2, 5, 9, "plant/+/a"),
    ]
    found, others = regained(rows, Claim("plant/0/#", 3, "b"), [EACH_A, ALL], "a", set())
    assert others == []
    assert seen([*rows, *found], "plant/0/a") == [("plant/#", 1, 4), ("plant/+/a", 5, 9), ("plant/+/a", 10, None)]
    assert seen([*rows, *found], "plant/0/b") == [("plant/#", 1, 9), ("plant/#", 10, None)]


def test_but_not_what_others_have() -> None:
    rows = [Row("plant/#", 1, 1, None, "plant/#"), Row("plant/0/#", 1, 1, 9, "plant/#")]
    other = Claim("plant/+/a", 4, "c")
    found, others = regained(rows, Claim("plant/0/#", 3, "b"), [other, ALL], "a", set())
    assert (found, others) == ([Row("plant/0/#", 3, 10, None, "plant/#")], [other]), "some may still send it here"
    found, others = regained(rows, Claim("plant/0/#", 3, "b"), [other, ALL], "a", {other})
    assert others == [] and seen(found, "plant/0/a") == [] and seen(found, "plant/0/b") == [("plant/#", 10, None)]
    assert regained(rows, Claim("plant/0/#", 3, "b"), [Claim("plant/0/+", 9, "c"), other], "a", set()) == ([], [])


# ---- anything happens ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_each_position_is_in_one_stretch_and_in_order(seed: int) -> None:
    assert run(seed, 600, names="abc"[: 2 + seed % 2], keeps=seed % 5 > 0).moved > 0


@pytest.mark.parametrize("seed", range(100, 140))
def test_each_position_is_in_one_stretch_if_moves_begin_at_the_same_moment(seed: int) -> None:
    run(seed, 400, one_by_one=False)


@pytest.mark.parametrize("seed", range(200, 240))
def test_each_position_is_in_one_stretch_if_a_node_is_lost(seed: int) -> None:
    run(seed, 600, names="abcd", forgets=True)


# ---- what is found if a rule is left out -----------------------------------------------------------------------------


def takes_the_wider_filter_alone(patch: pytest.MonkeyPatch) -> None:
    def handed_over(rows: list[Row], filter: str, table: Table) -> list[Row]:
        wider = takers(table, filter)[-1].filter
        return [row._replace(claim=wider) if row.claim == filter else row for row in rows]

    patch.setattr(owners_module, "handed_over", handed_over)


def ends_while_a_dropped_claim_is_sent_by(patch: pytest.MonkeyPatch) -> None:
    def lags(self: Owners, filter: str, members: Any) -> bool:
        return False

    patch.setattr(Owners, "_lags", lags)


def falls_back_to_who_was_before(patch: pytest.MonkeyPatch) -> None:
    def dropped_by(node: str, ended: Iterable[Claim]) -> list[Claim]:
        return []

    patch.setattr(owners_module, "_dropped_by", dropped_by)


def regains_nothing(patch: pytest.MonkeyPatch) -> None:
    def regains(self: Owners, claim: Claim, after: Table) -> None:
        return

    patch.setattr(Owners, "_regains", regains)


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    takes_the_wider_filter_alone,
    ends_while_a_dropped_claim_is_sent_by,
    falls_back_to_who_was_before,
    regains_nothing,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.__name__)
def test_a_rule_that_is_left_out_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    for seed in range(600):
        try:
            run(seed, 600, names="abc"[: 2 + seed % 2], forgets=mutant is regains_nothing)
        except AssertionError:
            return
    raise AssertionError(f"600 worlds did not find that a node {mutant.__name__.replace('_', ' ')}")
