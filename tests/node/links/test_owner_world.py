"""Anything happens at any time to nodes of an edge (owner_world.py): each message is stored once, in order, and comes
to all; and leaving out any one barrier is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headwater.edge.messages import View, is_view
from headwater.edge.owners import Owners
from headwater.edge.ownership import Table
from headwater.node.links.end import PeerEnd
from headwater.node.links.owning import Owning
from headwater.node.links.post import Post, Service
from tests.node.links.owner_world import OwnerWorld, run

Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_or_stored_twice_and_order_is_kept(seed: int) -> None:
    run(seed, 400)


@pytest.mark.parametrize("seed", range(100, 110))
def test_moves_that_begin_at_the_same_moment_lose_nothing(seed: int) -> None:
    run(seed, 300, one_by_one=False)


@pytest.mark.parametrize("seed", range(200, 205))
def test_nothing_depends_on_what_is_held(seed: int) -> None:
    run(seed, 300, hold=0.0)


@pytest.mark.parametrize("seed", range(400, 420))
def test_a_new_owner_stores_nothing_before_the_former_one_has_what_was_before(seed: int) -> None:
    run(seed, 400, hold=600.0)


@pytest.mark.parametrize("seed", range(500, 520))
def test_where_nothing_breaks_no_message_of_any_qos_is_lost(seed: int) -> None:
    assert run(seed, 400, breaks=False).breaks == 0


def test_there_were_moves_and_crashes() -> None:
    worlds = [run(seed, 300) for seed in range(300, 315)]
    assert sum(world.moved for world in worlds) >= 5
    assert sum(world.crashes for world in worlds) >= 10


# ---- what is found if a barrier is left out ----------------------------------------------------------------------


def stores_by_its_own_view(patch: pytest.MonkeyPatch) -> None:
    def use(self: Owning, node: str) -> None:
        link = self.links.up.get(node)
        if link is not None and link.receiving is not None:
            fanouts = self.fanouts_of(self.owners.view.table)
            link.receiving.use(fanouts, fanouts)

    def changed(self: Owning, table: Table) -> None:
        before(self, table)
        for node in self.links.up:
            self._use(node)

    before = Owning._view_changed
    patch.setattr(Owning, "_use", use)
    patch.setattr(Owning, "_view_changed", changed)


def does_not_tell_one_node(patch: pytest.MonkeyPatch) -> None:
    def tell(self: Owning, node: str, end: PeerEnd, view: View) -> None:
        if node != "a":
            before(self, node, end, view)

    before = Owning._tell_view
    patch.setattr(Owning, "_tell_view", tell)


def ends_before_all_have_switched(patch: pytest.MonkeyPatch) -> None:
    def unswitched(self: Owners, filter: str, rank: Any, members: Any) -> list[str]:
        return []

    patch.setattr(Owners, "_unswitched", unswitched)


def forgets_views_of_others(patch: pytest.MonkeyPatch) -> None:
    before = Owning._restore

    def restore(self: Owning) -> None:
        before(self)
        self.owners.heard.clear()

    patch.setattr(Owning, "_restore", restore)


def forgets_its_own_view(patch: pytest.MonkeyPatch) -> None:
    before = Owners.restore

    def restore(self: Owners, record: dict[str, Any], boot: int) -> None:
        before(self, record, boot)
        self.view = View(self.view.number, Table([], self.view.table.rest))

    patch.setattr(Owners, "restore", restore)


def takes_what_is_behind_at_once(patch: pytest.MonkeyPatch) -> None:
    def must_wait(self: Owners, node: str, view: View) -> set[str]:
        return set()

    patch.setattr(Owners, "must_wait", must_wait)


def says_what_is_not_on_disk(patch: pytest.MonkeyPatch) -> None:
    def when_durable(self: Owning, tell: Callable[[], None]) -> None:
        tell()

    patch.setattr(Owning, "_when_durable", when_durable)


def tells_nothing_of_qos_0(patch: pytest.MonkeyPatch) -> None:
    def note(self: Post, node: str, service: Service, body: bytes, is_needed: bool = False) -> bool:
        return is_view(body) or before(self, node, service, body, is_needed)

    before = Post.note
    patch.setattr(Post, "note", note)


MUTANTS: list[Patch] = [
    stores_by_its_own_view,
    does_not_tell_one_node,
    ends_before_all_have_switched,
    forgets_views_of_others,
    forgets_its_own_view,
    takes_what_is_behind_at_once,
    says_what_is_not_on_disk,
    tells_nothing_of_qos_0,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.__name__)
def test_a_barrier_that_is_left_out_is_found(mutant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    monkeypatch.setattr(OwnerWorld, "patience", 30)
    for seed in range(60):
        try:
            run(seed, 400, hold=600.0, breaks=seed % 3 > 0)
        except AssertionError:
            return
    raise AssertionError(f"60 worlds did not find that a node {mutant.__name__.replace('_', ' ')}")
