"""How far time has come, as far as a table knows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headwater.pipeline.jobs.clocks import Clock, ask, clocks, slowest
from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.snapshot import Snapshot
from headwater.pipeline.options import OptionError
from headwater.pipeline.source.addresses import Addresses
from headwater.pipeline.source.settings import read_settings
from headwater.pipeline.tables import BRONZE
from headwater.store.memory import MemoryStore
from tests.brokers import free_port
from tests.pipeline.jobs.bronze_rows import bronze_rows
from tests.store.messages import NOON
from tests.store.rest.served import EVERYTHING, serving

SECOND = timedelta(seconds=1)
MOMENT = datetime(2026, 2, 1, tzinfo=UTC)


def bronze(folder: Path, last: int) -> Snapshot:
    lake = Lake(folder)
    log = lake.log(BRONZE)
    rows = bronze_rows("a", 1, last)
    log.commit(write_files([rows], str(log.folder), log.partition), {}, job="bronze", positions={"a": last})
    return lake.snapshot(BRONZE)


def test_a_table_that_has_everything_goes_by_the_stores_clock(tmp_path: Path) -> None:
    found = clocks(bronze(tmp_path, 5), {"a": 5}, {"a": (MOMENT, 6)})
    assert found == [Clock("a", MOMENT, 0)]


def test_one_that_has_not_goes_by_its_last_message(tmp_path: Path) -> None:
    table = bronze(tmp_path, 5)
    arrivals = {row["position"]: row["arrival"] for row in bronze_rows("a", 1, 5).to_pylist()}
    assert clocks(table, {"a": 3}, {"a": (MOMENT, 6)}) == [Clock("a", arrivals[3], 2)]
    assert clocks(table, {"a": 5}, {}) == [Clock("a", arrivals[5], None)]  # the store does not answer


def test_a_store_of_which_nothing_has_come_yet_holds_everything_up(tmp_path: Path) -> None:
    found = clocks(bronze(tmp_path, 5), {"a": 5}, {"a": (MOMENT, 6), "b": (MOMENT, 3)})
    assert [each.store for each in found] == ["a", "b"] and slowest(found) is None
    without = clocks(bronze(tmp_path / "2", 5), {"a": 5}, {"a": (MOMENT, 6), "b": (MOMENT, 3)}, ["b"])
    assert slowest(without) == MOMENT


def test_a_store_without_messages_holds_up_nothing(tmp_path: Path) -> None:
    found = clocks(bronze(tmp_path, 5), {"a": 5}, {"a": (MOMENT + SECOND, 6), "b": (MOMENT, 1)})
    assert slowest(found) == MOMENT


def test_a_store_that_nobody_knows_and_that_does_not_answer_holds_everything_up(tmp_path: Path) -> None:
    """It was there when the stream began, died before anything of it was read, and comes back with old messages."""
    table = bronze(tmp_path, 5)
    silent = {"http://b": "refused"}
    assert slowest(clocks(table, {"a": 5}, {"a": (MOMENT, 6)}, silent=silent)) is None
    assert slowest(clocks(table, {"a": 5}, {"a": (MOMENT, 6)}, silent={})) == MOMENT
    arrival = bronze_rows("a", 1, 5).to_pylist()[-1]["arrival"]
    assert slowest(clocks(table, {"a": 5}, {}, silent=silent)) == arrival  # that is the one that does not answer


def test_no_store_no_clock() -> None:
    assert slowest([]) is None


def test_stores_are_asked() -> None:
    with serving(MemoryStore("s1")) as served:
        served.writer.write("x", "y")
        served.gate.clock = NOON
        away = f"http://127.0.0.1:{free_port()}"
        source = read_settings({"url": f"{served.url},{away}", "token": EVERYTHING})
        assert ask(Addresses(source)) == {"s1": (datetime.fromtimestamp(NOON // 1_000_000, UTC), 3)}


def test_a_line_that_is_no_address_is_a_store_that_does_not_answer_and_a_file_that_is_away_changes_nothing(
    tmp_path: Path,
) -> None:
    file = tmp_path / "stores"
    with serving(MemoryStore("s1")) as served:
        addresses = Addresses(read_settings({"urlsFile": str(file), "token": EVERYTHING}))
        with pytest.raises(OptionError, match=r"the file of addresses .*stores cannot be read"):
            ask(addresses)
        file.write_text(f"{served.url}\nnot an address\n")
        silent: dict[str, str] = {}
        assert list(ask(addresses, silent)) == ["s1"]
        assert list(silent) == ["not an address"]
        file.unlink()
        assert list(ask(addresses)) == ["s1"]
