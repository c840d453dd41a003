"""Messages are erased from history and from the node's disk by the same call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.test_stores_erasing import erase
from tests.store.history.moving import Moving
from tests.store.messages import found
from tests.store.steady import written


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    moving = Moving(tmp_path, (tmp_path / "place").as_uri(), block_messages=10)
    for _ in range(6):
        written(moving.store, 10)
        moving.store.seal(everything=True)
    yield moving
    moving.close()


@pytest.mark.parametrize("dropped", [True, False])
def test_of_a_topic_and_at_positions_wherever_they_are(moving: Moving, dropped: bool) -> None:
    moving.move()
    if dropped:
        moving.drop()
    written(moving.store, 15)
    before = found(moving.tiered)
    left = [entry for entry in before if entry.topic != "old"]
    assert erase(moving.tiered, "old") == len(before) - len(left)
    assert found(moving.tiered) == left
    gone = {5, 8, 60, 61, 75}
    assert erase(moving.tiered, positions=[(5, 5), (8, 8), (60, 61), (75, 75)]) == len(
        [entry for entry in left if entry.position in gone]
    )
    left = [entry for entry in left if entry.position not in gone]
    assert found(moving.tiered) == left
    there = {entry.position for entry in left}
    told = [each for low, high in moving.tiered.erased(0, 1000) for each in range(low, high + 1)]
    assert told == [each for each in range(1, 76) if each not in there]


def test_what_was_erased_does_not_come_to_history(moving: Moving) -> None:
    moving.blocks.look()  # what a mover has seen before
    list(map(moving.blocks.chunk, moving.blocks.behind(0)))
    erase(moving.store, "old")
    erase(moving.store, positions=[(21, 30)])  # a whole block
    left = found(moving.store)
    moving.move()
    moving.drop()
    assert found(moving.tiered) == left
