"""What a pipeline's lag is taken to be, of tables that are there. Times are for the benchmark."""

from __future__ import annotations

from pathlib import Path

from headwater.pipeline.jobs import bronze
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.tables import BRONZE
from headwater_lab.pipeline_lag import Part, Sample, extent, line, parts_of, samples_of


def test_lag_is_what_the_store_has_and_a_table_has_not(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    log = lake.log(BRONZE)
    log.declare(BRONZE)
    log.commit([], {}, job=bronze.APP, positions={"4f1c0d2ab9e7": 900, "0a1c0d2ab9e7": 600})
    landed, decoded, newest = samples_of(lake, 2000, 100.0, 7.0)
    assert (landed.table, landed.lag, landed.at) == ("bronze", 5.0, 7.0)
    assert landed.files > 0 and landed.bytes > 0
    assert [(each.table, each.lag, each.files) for each in (decoded, newest)] == [
        ("silver", 20.0, 0),
        ("latest", 20.0, 0),
    ]


def test_four_parts_without_the_start() -> None:
    samples = [Sample(at, "bronze", at / 10, int(at), 100) for at in range(0, 450, 10)]
    parts = parts_of(samples, 30.0, 430.0)
    assert [(each.start, each.end) for each in parts] == [(30, 130), (130, 230), (230, 330), (330, 430)]
    assert parts[0] == Part(30, 130, "bronze", 7.5, 12.0, 120, 100)
    assert "0.5-2.2" in line(parts[0]) and "12.0 s" in line(parts[0])


def test_files_that_go_meanwhile_are_not_counted(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "stays").write_bytes(b"12345")
    (tmp_path / "goes").symlink_to(tmp_path / "gone")
    assert extent(tmp_path) == (1, 5)
