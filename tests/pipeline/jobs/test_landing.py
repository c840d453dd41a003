"""Under which name stores know a lake, and where it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.pipeline.jobs import landing
from headwater.pipeline.jobs.bronze import APP
from headwater.pipeline.jobs.clocks import ask, clocks
from headwater.pipeline.jobs.facts import before_first
from headwater.pipeline.jobs.settings import Settings, make_settings
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.source.addresses import Addresses
from headwater.pipeline.source.datasource import StreamReader
from headwater.pipeline.source.reading import SCHEMA
from headwater.pipeline.tables import BRONZE
from headwater.store.reader import StoreReader
from tests.brokers import free_port
from tests.pipeline.jobs.a_lake import a_message, land
from tests.pipeline.source.some_stores import EXPIRED, fill
from tests.store.rest.served import EVERYTHING, Served


def settings_of(*served: Served, **more: object) -> Settings:
    return make_settings({"urls": [each.url for each in served], "token": EVERYTHING, **more})


def readers(served: Served) -> dict[str, int]:
    found = StoreReader(served.url, token=EVERYTHING).readers()
    return {each["name"]: each["position"] for each in found}


def test_what_one_lake_has_read_is_kept_for_the_other(one: Served, tmp_path: Path) -> None:
    fill(one, 20)
    lakes = [Lake(tmp_path / name) for name in "ab"]
    for lake in lakes:
        lake.folder.mkdir()
    streams = [StreamReader(landing.named(lake, settings_of(one)).source(), SCHEMA) for lake in lakes]
    for each in streams:
        each.initialOffset()
    streams[0].commit({"s1": 20})
    one.store.trim(EXPIRED)
    assert one.store.first == 1, "what the other has not read is gone"
    streams[1].commit({"s1": 20})
    one.store.trim(EXPIRED)
    assert one.store.first == 21


def test_a_lake_keeps_its_name(one: Served, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    name = landing.named(lake, settings_of(one)).reader
    assert name == f"lakehouse-{lake.id()}" == landing.named(Lake(tmp_path), settings_of(one)).reader
    assert landing.named(lake, settings_of(one, reader="plant")).reader == f"plant-{lake.id()}"


def test_a_lake_from_before_takes_the_shared_name_over(
    one: Served, two: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(one, 20)
    fill(two, 20)
    for served, position in ((one, 12), (two, 20)):
        StoreReader(served.url, token=EVERYTHING).commit("lakehouse", position)
    lake = Lake(tmp_path)
    for store in ("s1", "s2"):
        land(lake, [a_message(position, store=store) for position in range(1, 13)])
    bare = settings_of(one)  # the other does not answer yet
    named = landing.named(lake, bare)
    landing.take_over(lake, bare.reader, named)
    assert readers(one) == {named.reader: 12}
    assert readers(two) == {"lakehouse": 20}
    both = landing.named(lake, settings_of(one, two))
    StoreReader(two.url, token=EVERYTHING).commit(both.reader, 12)  # as the stream does when the store is back
    landing.take_over(lake, bare.reader, both)
    assert readers(two) == {"lakehouse": 20, both.reader: 12}  # somebody else is further with it
    assert "--forget lakehouse" in caplog.text
    landing.take_over(lake, bare.reader, both)
    assert not (tmp_path / landing.FORMER).exists()


def test_a_new_lake_takes_nothing_over(one: Served, tmp_path: Path) -> None:
    StoreReader(one.url, token=EVERYTHING).commit("lakehouse", 0)
    lake = Lake(tmp_path)
    landing.take_over(lake, "lakehouse", landing.named(lake, settings_of(one)))
    assert readers(one) == {"lakehouse": 0}


@pytest.mark.parametrize("starting", ["latest", "earliest"])
def test_a_store_that_has_nothing_to_give_is_not_waited_for(one: Served, tmp_path: Path, starting: str) -> None:
    """From now on; or retention has removed everything."""
    fill(one, 10)
    if starting == "earliest":
        one.store.trim(EXPIRED)
    lake, settings = Lake(tmp_path), settings_of(one, starting=starting)
    landing.begin(lake, settings)
    bronze = lake.snapshot(BRONZE)
    assert (bronze.positions(APP), before_first(bronze)) == ({"s1": 10}, {"s1": 10})
    [clock] = clocks(bronze, bronze.positions(APP), ask(Addresses(settings.source())))
    assert clock.lag == 0 and clock.moment is not None
    landing.begin(lake, settings_of(one, starting="earliest"))  # it has begun
    assert lake.log(BRONZE).positions(APP) == {"s1": 10}


def test_what_does_not_answer_at_first_is_left_for_later(one: Served, tmp_path: Path) -> None:
    fill(one, 3)
    settings = make_settings({"urls": [one.url, f"http://127.0.0.1:{free_port()}"], "token": EVERYTHING})
    landing.begin(Lake(tmp_path), settings)
    assert Lake(tmp_path).log(BRONZE).positions(APP) == {"s1": 0}
