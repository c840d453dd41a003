"""Which objects count: many entries, two writers, what is damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.objects import Place, PlaceError, open_place
from headwater.store.history import manifest as module
from headwater.store.history.manifest import RECENT, Catalog, Conflict, Entry, Manifest


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return open_place(tmp_path.as_uri())


def entry(number: int) -> Entry:
    return Entry(f"s1/messages/{number}", number, number + 1, 1, 10, "sha", number, number, number)


def filled(catalog: Catalog, count: int) -> Manifest:
    manifest = catalog.load()
    for number in range(1, count + 1):
        catalog.place.put(f"s1/messages/{number}", b"x")
        manifest = catalog.add(manifest, entry(number))
    return manifest


def test_a_manifest_stays_small_and_loses_no_entry(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECENT", 8)
    manifest = filled(Catalog(place, "s1"), 50)
    catalog = Catalog(place, "s1")
    assert catalog.load() == manifest
    assert len(manifest.entries) <= 8 < RECENT
    assert [each.objects for each in manifest.pages] == [4] * len(manifest.pages)
    assert (manifest.first, manifest.end, manifest.objects, manifest.rows, manifest.size) == (1, 51, 50, 50, 500)
    assert [each.first for each in catalog.entries(manifest)] == list(range(1, 51))
    assert [each.first for each in catalog.entries(manifest, 6, 12)] == list(range(7, 12))
    dropped = catalog.drop_before(manifest, 7)  # in the middle of a page
    assert [each.first for each in catalog.entries(dropped)] == list(range(7, 51))
    replaced = catalog.replace(dropped, entry(9), entry(9)._replace(name="s1/messages/new", rows=0))
    assert [each.name for each in catalog.entries(replaced, 7, 11)] == [
        "s1/messages/8",
        "s1/messages/new",
        "s1/messages/10",
    ]
    place.put("s1/messages/new", b"y")
    left = {each.name for each in place.list("s1")}
    expected = {each.name for each in catalog.entries(replaced)} | {each.name for each in replaced.pages}
    assert left == expected | {"s1/manifest.json"}
    place.put("s1/messages/orphan", b"z")
    assert catalog.sweep(replaced) == 0  # somebody may be about to name it
    assert catalog.sweep(replaced, older=-1.0) == 1
    assert {each.name for each in place.list("s1")} == left
    everything = catalog.drop_before(replaced, 1000)
    assert (everything.first, everything.end, everything.objects) == (51, 51, 0)


def test_of_two_writers_one_is_told(place: Place) -> None:
    one, two = Catalog(place, "s1"), Catalog(place, "s1")
    empty = one.load()
    known = one.add(empty, entry(1))
    with pytest.raises(Conflict):
        two.add(two.load()._replace(etag=None), entry(1)._replace(name="other"))
    assert two.add(two.load(), entry(2)).end == 3
    with pytest.raises(Conflict):
        one.add(known, entry(2))
    assert one.sweep(known, older=-1.0) == 0  # by an old manifest nothing is removed


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"{", "damaged"),
        (b"[]", "damaged"),
        (json.dumps({"format": "other"}).encode(), "damaged"),
        (json.dumps({"format": "headwater-history", "schema": 2}).encode(), "has schema 2"),
        (Manifest("s2").pack(), "is of the store s2, not of s1"),
    ],
)
def test_what_is_no_manifest_of_this_store_is_an_error(content: bytes, complaint: str, place: Place) -> None:
    place.put("s1/manifest.json", content)
    with pytest.raises(PlaceError, match=complaint):
        Catalog(place, "s1").load()
