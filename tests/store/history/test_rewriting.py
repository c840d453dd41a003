"""Messages are removed from history one by one, and the rest stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.store.history.manifest import Catalog, Conflict, Entry, Manifest
from headwater.store.history.rewriting import rewrite_without
from headwater.store.history.rows import Wanted
from tests.store.history.moving import Moving
from tests.store.messages import found
from tests.store.steady import written


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    moving = Moving(tmp_path, (tmp_path / "place").as_uri(), block_messages=10)
    for _ in range(5):
        written(moving.store, 10)
        moving.store.seal(everything=True)
    moving.move()
    moving.drop()
    yield moving
    moving.close()


def of_topic(name: str) -> object:
    def positions(rows: pa.RecordBatch) -> pa.Array:
        return rows.column("position").filter(pc.equal(rows.column("topic").dictionary_decode(), name))

    return positions


def test_what_is_removed_is_gone_and_all_else_is_as_it_was(moving: Moving) -> None:
    before = found(moving.tiered)  # with a manifest that is an old one then
    objects = {entry.name for entry in moving.catalog.entries(moving.manifest)}
    rewritten = list(rewrite_without(moving.catalog, of_topic("old")))
    assert [position for each in rewritten for position in each.removed] == [
        entry.position for entry in before if entry.topic == "old"
    ]
    assert found(moving.tiered) == [entry for entry in before if entry.topic != "old"]
    left = {each.name for each in moving.catalog.place.list("s1/messages")}
    assert not left & objects
    assert left == {entry.name for entry in moving.catalog.entries(moving.manifest)}
    assert not list(rewrite_without(moving.catalog, of_topic("old")))
    assert (moving.manifest.first, moving.manifest.end) == (1, 51)


def test_an_object_without_any_message_left_still_stands_for_its_positions(moving: Moving) -> None:
    list(rewrite_without(moving.catalog, lambda rows: rows.column("position"), Wanted(after=10, before=21)))
    assert [entry.position for entry in found(moving.tiered)] == [*range(1, 11), *range(21, 51)]


def test_who_meets_somebody_else_that_writes_loses_nothing_of_it(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(moving.store, 10)
    replace = Catalog.replace
    met: list[Entry] = []

    def meeting(catalog: Catalog, manifest: Manifest, old: Entry, new: Entry) -> Manifest:
        if not met:
            met.append(old)
            moving.move()
        return replace(catalog, manifest, old, new)

    monkeypatch.setattr(Catalog, "replace", meeting)
    before = found(moving.tiered)
    list(rewrite_without(moving.catalog, of_topic("a")))
    assert met
    moving.drop()
    assert found(moving.tiered) == [entry for entry in before if entry.topic != "a"]
    written(moving.store, 10)
    with pytest.raises(Conflict):  # the mover's manifest is an old one by now
        moving.move()
    moving.move()
    assert moving.manifest.end == 71
