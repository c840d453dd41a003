"""What is known of devices: spans that never overlap, and readings joined with the one that was valid then."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headwater.cli.app import app
from headwater.pipeline.jobs.devices import FIRST, DevicesError, load, read_rows
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.light import answer
from headwater.pipeline.sql import Question, Refused
from headwater.pipeline.tables import DEVICES, SILVER
from headwater.pipeline.views import answer as answer_by_spark
from headwater.pipeline.views import register_views
from tests.pipeline.derive.rows import NOON, reading
from tests.pipeline.jobs.a_lake import contents
from tests.pipeline.test_provisional import put
from tests.spark_of_the_process import borrowed

HOUR = timedelta(hours=1)
CSV = "device,site,owner\npress-1,north,Ada\npress-2,south,\n"


@pytest.fixture
def spark(one_spark: SparkSession) -> Iterator[SparkSession]:
    with borrowed(one_spark, {"spark.sql.codegen.wholeStage": "false"}) as session:
        yield session


def written(folder: Path, text: str, name: str = "devices.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def spans(lake: Lake) -> list[tuple[Any, ...]]:
    rows = contents(lake, DEVICES)
    return [(row["device"], row["valid_from"], row["valid_to"], row.get("site"), row.get("owner")) for row in rows]


def test_a_change_ends_one_span_and_begins_another(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    first = load(lake, read_rows(written(tmp_path, CSV)), NOON)
    assert (first.rows, first.devices) == (2, 2)
    assert spans(lake) == [("press-1", FIRST, None, "north", "Ada"), ("press-2", FIRST, None, "south", None)]
    assert load(lake, read_rows(written(tmp_path, CSV)), NOON + HOUR).changed == 0
    version = lake.snapshot(DEVICES).version
    moved = "device,site,owner\npress-1,east,Ada\npress-3,west,Bo\n"
    load(lake, read_rows(written(tmp_path, moved)), NOON + HOUR)
    assert lake.snapshot(DEVICES).version == version + 1
    now = [
        ("press-1", FIRST, NOON + HOUR, "north", "Ada"),
        ("press-1", NOON + HOUR, None, "east", "Ada"),
        ("press-2", FIRST, None, "south", None),
        ("press-3", FIRST, None, "west", "Bo"),
    ]
    assert spans(lake) == now
    with pytest.raises(DevicesError, match="something is known from"):
        load(lake, read_rows(written(tmp_path, "device,site\npress-1,north\n")), NOON)
    assert spans(lake) == now


def test_a_history_takes_the_place_of_what_is_there(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    load(lake, read_rows(written(tmp_path, CSV)), NOON)
    lines = '{"device": "press-1", "site": "a", "valid_from": "2026-01-31T12:00:00Z"}\n'
    lines += '{"device": "press-1", "site": {"x": 1}, "valid_from": "2026-01-31T14:00:00+01:00",'
    lines += ' "valid_to": "2026-01-31T15:00"}\n'
    load(lake, read_rows(written(tmp_path, lines, "devices.jsonl")), NOON)
    assert spans(lake) == [
        ("press-1", NOON, NOON + HOUR, "a", None),
        ("press-1", NOON + HOUR, NOON + 3 * HOUR, '{"x": 1}', None),
    ]


def test_spans_do_not_overlap(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    head = "device,valid_from,valid_to\n"
    for rows in (
        "a,2026-01-01,2026-01-03\na,2026-01-02,\n",
        "a,2026-01-01,\na,2026-01-01,\n",
        "a,2026-01-02,2026-01-02\n",
    ):
        with pytest.raises(DevicesError, match=r"of device a, the spans from .* overlap or are empty"):
            load(lake, read_rows(written(tmp_path, head + rows)), NOON)
    assert contents(lake, DEVICES) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("device,site\n,north\n", "row 1 has no device"),
        ("site\nnorth\n", "row 1 has no device"),
        ("device,valid_from\na,yesterday\n", "row 1: valid_from is 'yesterday'"),
        ("device,site\na,b\na,b,c\n", "row 2 has another number of columns"),
        ("device,a,a\nx,1,2\n", "the same name"),
        ("device,a b,a-b\nx,1,2\n", "row 1: two columns become 'a_b'"),
        (
            "device," + ",".join(f"c{n}" for n in range(100)) + "\nx" + ",1" * 100 + "\n",
            "101 columns, and 100 are allowed",
        ),
    ],
)
def test_a_file_that_cannot_be_loaded_says_which_row(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(DevicesError, match=words):
        read_rows(written(tmp_path, text))


def test_lines_that_are_no_objects_are_named(tmp_path: Path) -> None:
    with pytest.raises(DevicesError, match="row 2 is no JSON"):
        read_rows(written(tmp_path, '{"device": "a"}\n\n{\n', "a.json"))
    with pytest.raises(DevicesError, match="row 1 is no object"):
        read_rows(written(tmp_path, "[]\n", "a.json"))
    with pytest.raises(DevicesError, match="No such file"):
        read_rows(tmp_path / "none.csv")


def test_each_reading_is_joined_with_what_its_device_was_then(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    rows = [
        reading(n, NOON + n * HOUR, float(n), device=device) for n, device in enumerate(["a", "a", "a", "b", None], 1)
    ]
    put(lake, SILVER, rows)
    with pytest.raises(Refused, match="there is no table silver_devices"):
        answer(lake, Question("select * from silver_devices"))
    history = "device,site,valid_from,valid_to\na,north,2026-01-31T13:30Z,2026-01-31T14:30Z\n"
    history += "a,south,2026-01-31T14:30Z,\nc,x,,\n"
    load(lake, read_rows(written(tmp_path, history)), NOON)
    asked = "select position, device_site from silver_devices order by position"
    expected = [(1, None), (2, "north"), (3, "south"), (4, None), (5, None)]
    found = answer(lake, Question(asked)).to_pylist()
    assert [tuple(row.values()) for row in found] == expected
    assert "silver_devices" in register_views(spark, lake)
    assert [tuple(row.values()) for row in answer_by_spark(spark, asked).to_pylist()] == expected


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    put(lake, SILVER, [])
    file = written(tmp_path, CSV)
    done = CliRunner().invoke(app, ["pipeline", "devices", str(file), "--lake", str(lake.folder), "--at", "2026-01-31"])
    assert done.stdout == "devices: 2, in 2 rows, of which 2 changed\n"
    assert spans(Lake(lake.folder))[0][0] == "press-1"
    file.write_text("device\n\n,\n")
    done = CliRunner().invoke(app, ["pipeline", "devices", str(file), "--lake", str(lake.folder)])
    assert done.exit_code == 1 and "row 1 has another number of columns" in done.stderr
    assert datetime.now(UTC) > FIRST
