"""What `edge-chaos` says of a store that went to another node with its topics; `scripts/bench edge-chaos` kills at all
steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.store.disk_store import DiskStore
from headwater_lab.edge_chaos.abstraction import STORE, TOPIC, measure, wrong_in
from tests.store.messages import Writer


@pytest.mark.parametrize(
    ("numbers", "wrong"),
    [
        ([0, 1, 2], {}),
        ([0, 1, 2, 3], {}),  # stored, and not acknowledged
        ([0, 2], {"lost": 1}),
        ([0, 1, 1, 2], {"stored_twice": 1}),
        ([0, 2, 1], {"disorder": 1}),
    ],
)
def test_what_is_wrong_is_found(tmp_path: Path, numbers: list[int], wrong: dict[str, int]) -> None:
    store = DiskStore(tmp_path / "messages", id=STORE)
    writer = Writer(store)
    for number in numbers:
        writer.take(TOPIC, b"%d" % number)
    writer.sync()
    store.close()
    found = wrong_in(tmp_path / "messages", acknowledged=3)
    assert {name: count for name, count in found.items() if count} == wrong


def test_another_store_is_none(tmp_path: Path) -> None:
    DiskStore(tmp_path / "messages", id="another").close()
    assert wrong_in(tmp_path / "messages", acknowledged=0)["unreadable"] == 1


def test_a_target_that_is_killed_takes_the_store_over_all_the_same(tmp_path: Path) -> None:
    found = measure(tmp_path, points=("hand-over-ready",))
    assert found["failures"] == []
    assert found["figures"].pop("kills/hand-over-ready") == 1
    assert set(found["figures"].values()) == {0}
