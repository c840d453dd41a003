from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions import EqualTo

from headwater.pipeline.catalogs.described import CatalogError
from headwater.pipeline.catalogs.iceberg import POSITIONS, VERSION, IcebergTable, IcebergTables
from headwater.pipeline.catalogs.settings import Iceberg
from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.lake.upkeep import tidy
from headwater.pipeline.tables import BRONZE
from tests.pipeline.jobs.a_lake import a_message, land


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    found = load_catalog("test", **words(tmp_path))
    found.create_namespace("hw")
    yield found
    found.engine.dispose()


def words(folder: Path) -> dict[str, str]:
    warehouse = folder / "warehouse"
    warehouse.mkdir(exist_ok=True)
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": warehouse.as_uri()}


def positions(catalog: Catalog, **how: Any) -> Counter[int]:
    rows = catalog.load_table("hw.bronze").scan(**how).to_arrow()
    return Counter(rows["position"].to_pylist())


def told(catalog: Catalog, lake: Lake) -> bool:
    return IcebergTable(catalog, "hw", lake, "bronze").bring(lake.snapshot(BRONZE))


def test_the_same_rows(tmp_path: Path, catalog: Catalog) -> None:
    lake = Lake(tmp_path / "lake")
    rows = [a_message(1), a_message(2), a_message(3, second=-90_000)]  # of two days
    land(lake, rows)
    assert told(catalog, lake)
    found = catalog.load_table("hw.bronze").scan().to_arrow().select(arrow_schema(BRONZE).names).sort_by("position")
    wanted = pa.Table.from_pylist(rows, arrow_schema(BRONZE))
    for name in wanted.column_names:
        assert found[name].to_pylist() == wanted[name].to_pylist(), name


def test_a_version_is_told_once(tmp_path: Path, catalog: Catalog) -> None:
    lake = Lake(tmp_path / "lake")
    land(lake, [a_message(1)])
    assert told(catalog, lake)
    assert not told(catalog, lake)
    land(lake, [a_message(2)])
    assert told(catalog, lake)
    assert positions(catalog) == Counter([1, 2])
    snapshots = catalog.load_table("hw.bronze").snapshots()
    assert len(snapshots) == 2
    summary = snapshots[-1].summary
    assert summary is not None
    assert summary[VERSION] == str(lake.snapshot(BRONZE).version)
    assert summary[f"{POSITIONS}a"] == "2"


def test_days_are_partitions(tmp_path: Path, catalog: Catalog) -> None:
    lake = Lake(tmp_path / "lake")
    land(lake, [a_message(1), a_message(2, second=90_000)])
    told(catalog, lake)
    day = a_message(2, second=90_000)["day"]
    table = catalog.load_table("hw.bronze")
    scan = table.scan(row_filter=EqualTo("day", day.isoformat()))
    assert scan.to_arrow()["position"].to_pylist() == [2]
    assert len(list(scan.plan_files())) == 1


def test_what_was_laid_out_anew_is_there_once(tmp_path: Path, catalog: Catalog) -> None:
    lake = Lake(tmp_path / "lake")
    for position in range(1, 21):
        land(lake, [a_message(position)])
        if position == 12:
            told(catalog, lake)
    tidy(lake, BRONZE)
    assert len(lake.snapshot(BRONZE).files) < 20
    told(catalog, lake)
    assert positions(catalog) == Counter(range(1, 21))
    files = [each.file.file_path for each in catalog.load_table("hw.bronze").scan().plan_files()]
    assert len(files) == len(lake.snapshot(BRONZE).files)


def test_columns_that_come_later(tmp_path: Path, catalog: Catalog) -> None:
    lake = Lake(tmp_path / "lake")
    land(lake, [a_message(1)])
    told(catalog, lake)
    log = lake.log(BRONZE)
    schema = arrow_schema(BRONZE).append(pa.field("battery", pa.float64()))
    batch = pa.RecordBatch.from_pylist([{**a_message(2), "battery": 0.5}], schema)
    log.commit(write_files([batch], str(log.folder), log.partition), {}, job="bronze", positions={"a": 2})
    told(catalog, lake)
    rows = catalog.load_table("hw.bronze").scan().to_arrow().sort_by("position")
    assert rows["battery"].to_pylist() == [None, 0.5]


def test_who_was_killed_in_between_compares_again(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog has committed, and the answer has not come: nothing is there twice."""
    lake = Lake(tmp_path / "lake")
    land(lake, [a_message(1)])
    told(catalog, lake)
    land(lake, [a_message(2)])
    commit = type(catalog).commit_table

    def killed(*given: Any) -> Any:
        commit(*given)
        raise SystemError("killed")

    monkeypatch.setattr(type(catalog), "commit_table", killed)
    with pytest.raises(CatalogError, match="killed"):
        told(catalog, lake)
    monkeypatch.setattr(type(catalog), "commit_table", commit)
    assert not told(catalog, lake)
    assert positions(catalog) == Counter([1, 2])


def test_who_was_overtaken_commits_nothing(tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that tell the same version at the same time."""
    lake = Lake(tmp_path / "lake")
    land(lake, [a_message(1)])
    told(catalog, lake)
    land(lake, [a_message(2)])
    files = IcebergTable._data_file
    overtaken = []

    def slowly(self: IcebergTable, *given: Any) -> Any:
        if not overtaken:
            overtaken.append(True)
            assert told(load_catalog("test", **words(tmp_path)), lake)
        return files(self, *given)

    monkeypatch.setattr(IcebergTable, "_data_file", slowly)
    with pytest.raises(CatalogError):
        told(catalog, lake)
    assert positions(catalog) == Counter([1, 2])


def test_old_snapshots_go_before_their_files(tmp_path: Path, catalog: Catalog) -> None:
    lake = Lake(tmp_path / "lake")
    lake.keeping = replace(lake.keeping, keep_replaced=0.0)
    for position in range(1, 5):
        land(lake, [a_message(position)])
        told(catalog, lake)
    assert len(catalog.load_table("hw.bronze").snapshots()) == 1
    assert positions(catalog) == Counter(range(1, 5))


def test_not_too_often(tmp_path: Path) -> None:
    lake, now = Lake(tmp_path / "lake"), [0.0]
    land(lake, [a_message(1)])
    settings = Iceberg(catalog=words(tmp_path), namespace="hw", tables=("bronze", "gold"), every=30.0)
    tables = IcebergTables(lake, settings, lambda: now[0])
    assert tables.bring(lake.existing()) == ["bronze"]
    land(lake, [a_message(2)])
    now[0] = 29.0
    assert tables.bring(lake.existing()) == []
    assert tables.bring(lake.existing(), at_once=True) == ["bronze"]
    now[0] = 61.0
    assert tables.bring(lake.existing()) == []  # nothing has changed


def test_a_catalog_that_is_not_there(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    land(lake, [a_message(1)])
    settings = Iceberg(catalog={"type": "rest", "uri": "http://127.0.0.1:9"}, tables=("bronze",))
    with pytest.raises(CatalogError, match=r"^iceberg: "):
        IcebergTables(lake, settings, lambda: 0.0).bring(lake.existing())
