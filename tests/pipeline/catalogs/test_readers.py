"""The tables, read by programs that nobody here wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from headwater.pipeline.catalogs.registrar import Registrar
from headwater.pipeline.catalogs.settings import Iceberg
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.upkeep import tidy
from headwater.pipeline.tables import BRONZE
from tests.pipeline.jobs.a_lake import a_message, land

Rows = list[tuple[int, str]]


def by_delta_rs(lake: Lake, _: Path) -> Any:
    return DeltaTable(str(lake.path(BRONZE))).to_pyarrow_table()


def by_polars(lake: Lake, _: Path) -> Any:
    return polars.read_delta(str(lake.path(BRONZE))).to_arrow()


def by_polars_from_iceberg(_: Lake, folder: Path) -> Any:
    return polars.scan_iceberg(iceberg(folder).load_table("hw.bronze")).collect().to_arrow()


def by_duckdb(lake: Lake, _: Path) -> Any:
    return asked(DeltaTable(str(lake.path(BRONZE))).to_pyarrow_dataset())


def by_duckdb_from_iceberg(_: Lake, folder: Path) -> Any:
    return asked(iceberg(folder).load_table("hw.bronze").scan().to_arrow())


def asked(rows: Any) -> Any:
    with duckdb.connect() as connection:
        return connection.register("rows", rows).sql("select * from rows where position > 0").to_arrow_table()


def iceberg(folder: Path) -> Any:
    return load_catalog("headwater", **words(folder))


def words(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": folder.as_uri()}


@pytest.mark.filterwarnings("ignore:Iceberg scan planning with the polars_iceberg")  # a faster way, not another one
@pytest.mark.parametrize("read", [by_delta_rs, by_polars, by_polars_from_iceberg, by_duckdb, by_duckdb_from_iceberg])
def test_who_reads_the_tables_reads_each_row_once(read: Callable[[Lake, Path], Any], tmp_path: Path) -> None:
    """Compacted in between: plain Parquet readers would count rows twice."""
    lake = Lake(tmp_path / "lake")
    for position in range(1, 21):
        land(lake, [a_message(position, second=position * 20_000.0)])
    tidy(lake, BRONZE)
    land(lake, [a_message(21)])
    Registrar(lake, [], Iceberg(catalog=words(tmp_path), namespace="hw", tables=("bronze",))).once()
    rows = read(lake, tmp_path)
    found = sorted(zip(rows["position"].to_pylist(), map(str, rows["topic"].to_pylist()), strict=True))
    assert found == [(position, f"plant/{position % 3}") for position in range(1, 22)]
