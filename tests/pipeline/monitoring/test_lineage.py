from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from headwater.fleet.process import free_port
from headwater.pipeline.jobs.pipeline import Round
from headwater.pipeline.lake.commits import Commit, DataFile, parse_commit
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.monitoring.lineage import Follower, Sender, Told, events_of, ranges_of, run_id
from headwater.pipeline.monitoring.monitor import Monitor, MonitoringError
from headwater.pipeline.monitoring.settings import Settings
from headwater.pipeline.tables import BRONZE, BY_NAME, TABLES
from tests.pipeline.jobs.a_lake import a_message, land
from tests.pipeline.mqtt.queries import wait_until

MADE = datetime(2026, 1, 31, 12, microsecond=500_000, tzinfo=UTC)
TOLD = Told(
    "4f1c0d2ab9e7",
    "file:///lake/tables/silver",
    "silver",
    Commit(7, MADE, (DataFile("one.parquet", 900, rows=3),), (), {"silver/a": 12, "silver/b": 4, "settings": 1}),
    {"a": 9, "b": 4},
    (("store", "string"), ("value", "double")),
)


def lake_of(folder: Path) -> Lake:
    lake = Lake(folder)
    lake.folder.mkdir(exist_ok=True)
    lake.make_id()
    return lake


def test_a_commit_as_delta_writes_it(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    land(lake, [a_message(1), a_message(2)])
    folder = lake.path(BRONZE) / "_delta_log"
    newest = max(folder.glob("*.json"))
    found = parse_commit(int(newest.stem), newest.read_text(encoding="utf-8"))
    assert found.rows == 2 and len(found.added) == 1 and found.changes
    assert found.size == sum(path.stat().st_size for path in lake.path(BRONZE).rglob("*.parquet"))
    assert found.positions("bronze") == {"a": 2}
    assert found.made.year >= 2026


def test_each_commit_is_told_once_with_its_positions(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    land(lake, [a_message(1), a_message(2)])
    follower = Follower(lake)
    assert [ranges_of(each) for each in follower.new()] == [{"a": (1, 2)}]
    land(lake, [a_message(3)])
    land(lake, [a_message(4), a_message(1, store="b")])
    assert [ranges_of(each) for each in follower.new()] == [{"a": (3, 3)}, {"a": (4, 4), "b": (1, 1)}]
    assert list(follower.new()) == []
    assert follower.missed == 0


def test_another_pipeline_goes_on_where_it_was_noted(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    land(lake, [a_message(1)])
    follower = Follower(lake)
    told = list(follower.new())
    follower.note()
    land(lake, [a_message(2)])
    unnoted = list(follower.new())
    again = list(Follower(lake_of(tmp_path)).new())  # it was killed before it noted that
    assert [run_id(each) for each in again] == [run_id(each) for each in unnoted]
    assert [ranges_of(each) for each in again] == [{"a": (2, 2)}]
    assert run_id(told[0]) not in {run_id(each) for each in again}


def test_what_only_lays_out_anew_is_no_run(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    land(lake, [a_message(1)])
    follower = Follower(lake)
    list(follower.new())
    log = lake.log(BRONZE)
    files = lake.snapshot(BRONZE).written()
    log.commit([replace(each, made=each.made + 1) for each in files], {}, replaced=[], changes=False)
    assert list(follower.new()) == []
    land(lake, [a_message(2)])
    assert [ranges_of(each) for each in follower.new()] == [{"a": (2, 2)}]


def test_commits_that_the_log_has_forgotten_are_missed(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    for position in range(1, 5):
        land(lake, [a_message(position)])
    log = lake.log(BRONZE)
    log.open().create_checkpoint()
    newest = log.look().version
    for number in range(newest):
        (log.folder / "_delta_log" / f"{number:020d}.json").unlink()
    follower = Follower(lake)
    assert list(follower.new()) == []
    assert follower.missed == newest + 1
    land(lake, [a_message(5)])
    assert [ranges_of(each) for each in follower.new()] == [{"a": (5, 5)}]


def test_events_as_openlineage_has_them() -> None:
    start, complete = (as_json(event) for event in events_of(TOLD))
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"] == run_id(TOLD)
    assert complete["eventTime"] == "2026-01-31T12:00:00.500+00:00"
    assert (complete["job"]["namespace"], complete["job"]["name"]) == ("headwater", "4f1c0d2ab9e7.silver")
    assert [(each["namespace"], each["name"]) for each in complete["inputs"]] == [("file", "/lake/tables/bronze")]
    output = complete["outputs"][0]
    assert (output["namespace"], output["name"]) == ("file", "/lake/tables/silver")
    statistics = output["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"], statistics["fileCount"]) == (3, 900, 1)
    assert output["facets"]["headwater_positions"]["stores"] == [{"store": "a", "first": 10, "last": 12}]
    assert output["facets"]["version"]["datasetVersion"] == "7"
    assert [each["name"] for each in output["facets"]["schema"]["fields"]] == ["store", "value"]
    assert complete["schemaURL"].startswith("https://openlineage.io/spec/")


def test_bronze_comes_from_stores_and_their_topics() -> None:
    commit = replace(TOLD.commit, notes={"bronze/a": 3})
    told = replace(TOLD, table="bronze", url="s3://bucket/lake/tables/bronze", before={}, commit=commit)
    complete = as_json(events_of(replace(told, filters=("plant/#",)))[1])
    assert [(each["namespace"], each["name"]) for each in complete["inputs"]] == [("headwater://a", "messages")]
    assert complete["inputs"][0]["facets"]["headwater_topics"]["filters"] == ["plant/#"]
    assert (complete["outputs"][0]["namespace"], complete["outputs"][0]["name"]) == (
        "s3://bucket",
        "lake/tables/bronze",
    )


def test_every_table_says_what_it_is_made_of() -> None:
    happened = {"bronze", "live", "erased", "devices", "forgotten"}
    for table in TABLES:
        assert set(table.made_of) <= set(BY_NAME) - {table.name}
        assert table.made_of or table.name in happened, table.name


def as_json(event: Any) -> dict[str, Any]:
    from openlineage.client.serde import Serde

    found: dict[str, Any] = json.loads(Serde.to_json(event))
    return found


# ---- sending ---------------------------------------------------------------------------------------------------------


def test_the_oldest_are_dropped_while_the_receiver_is_away() -> None:
    go, taken = threading.Event(), []

    def emit(event: Any) -> None:
        go.wait(30)
        taken.append(event.run.runId)

    sender = Sender(emit, most=2)
    sender.send(TOLD)
    wait_until(lambda: sender.seen().waiting == 0, "taken from the queue")  # the thread has it
    versions = [replace(TOLD, commit=replace(TOLD.commit, version=number)) for number in range(8, 12)]
    for each in versions:
        sender.send(each)
    assert sender.seen().dropped == 2 and sender.seen().waiting == 2
    go.set()
    sender.stop()
    assert list(dict.fromkeys(taken)) == [run_id(each) for each in (TOLD, *versions[2:])]
    assert sender.seen().sent == 3


def test_a_commit_that_was_not_taken_is_tried_again() -> None:
    outcomes: list[Exception | None] = [OSError("away"), None, None]
    taken: list[str] = []

    def emit(event: Any) -> None:
        error = outcomes.pop(0)
        if error is not None:
            raise error
        taken.append(event.eventType.name)

    sender = Sender(emit, pause=0.0)
    sender.send(TOLD)
    wait_until(lambda: sender.is_idle, "it is sent")
    sender.stop()
    assert taken == ["START", "COMPLETE"]
    assert (sender.seen().failures, sender.seen().sent) == (0, 1)


def test_one_that_is_never_taken_is_counted_and_keeps_no_other_back() -> None:
    other = replace(TOLD, commit=replace(TOLD.commit, version=8))

    def emit(event: Any) -> None:
        if event.run.runId == run_id(TOLD):
            raise ValueError("malformed")

    sender = Sender(emit, tries=3, pause=0.0)
    sender.send(TOLD)
    sender.send(other)
    wait_until(lambda: sender.is_idle, "both are settled")
    sender.stop()
    assert (sender.seen().failures, sender.seen().sent) == (1, 1)


def test_what_waits_when_a_pipeline_is_killed_is_told_by_the_next(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake")
    land(lake, [a_message(1)])
    nowhere = Settings(lineage=f"http://127.0.0.1:{free_port()}")
    with Monitor(lake, nowhere) as monitor:
        monitor.saw(Round())
        assert [ranges_of(each) for each in Follower(lake).new()] == [{"a": (1, 1)}]  # nothing is noted
    file = tmp_path / "lineage.ndjson"
    with Monitor(lake, Settings(lineage=file.as_uri())) as monitor:
        monitor.saw(Round())
    assert len(file.read_text(encoding="utf-8").splitlines()) == 2
    assert list(Follower(lake).new()) == []


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[tuple[str, str | None, dict[str, Any]]]]]:
    """An HTTP server that takes events, and what has come."""
    came: list[tuple[str, str | None, dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            came.append((self.path, self.headers["authorization"], body))
            self.send_response(201)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", came
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_monitor_tells_a_receiver_and_prometheus(
    tmp_path: Path, receiver: tuple[str, list[tuple[str, str | None, dict[str, Any]]]]
) -> None:
    url, came = receiver
    lake = lake_of(tmp_path)
    land(lake, [a_message(1)])
    settings = Settings(metrics="127.0.0.1:0", lineage=url, lineage_key="key")
    with Monitor(lake, settings, ("plant/#",)) as monitor:
        monitor.saw(Round(did={"silver": 1}))
        wait_until(lambda: len(came) == 2, "both events")
        monitor.saw(Round())
        assert monitor.endpoint is not None
        with urllib.request.urlopen(f"http://127.0.0.1:{monitor.endpoint.port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    assert {path for path, _, _ in came} == {"/api/v1/lineage"}
    assert {authorization for _, authorization, _ in came} == {"Bearer key"}
    assert [body["eventType"] for _, _, body in came] == ["START", "COMPLETE"]
    assert 'headwater_pipeline_step_rows_total{step="silver"} 1.0' in text
    assert "headwater_pipeline_lineage_dropped_commits_total 0.0" in text


def test_lineage_in_a_file(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake")
    land(lake, [a_message(1)])
    file = tmp_path / "lineage.ndjson"
    with Monitor(lake, Settings(lineage=file.as_uri())) as monitor:
        monitor.saw(Round())
    found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [each["eventType"] for each in found] == ["START", "COMPLETE"]


def test_what_fails_costs_the_pipeline_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: Follower) -> Iterator[Told]:
        raise OSError("no space left on device")

    monkeypatch.setattr(Follower, "new", fails)
    with Monitor(lake_of(tmp_path), Settings(lineage=(tmp_path / "out").as_uri())) as monitor:
        monitor.saw(Round())
    assert "no space left on device" in caplog.text


def test_where_lineage_cannot_go(tmp_path: Path) -> None:
    with pytest.raises(MonitoringError, match="http://"), Monitor(lake_of(tmp_path), Settings(lineage="marquez:5000")):
        raise AssertionError("it began")


def test_settings() -> None:
    assert Settings.from_settings({"metrics": "127.0.0.1:9464"}).metrics == "127.0.0.1:9464"
    with pytest.raises(ValueError, match="metrics_token"):
        Settings.from_settings({"metrics_tokn": "x"})
    with pytest.raises(ValueError, match="seconds above 0"):
        Settings.from_settings({"unhealthy_after": 0})
    with pytest.raises(ValueError, match="a text"):
        Settings.from_settings({"lineage": 5})
    assert "key" not in repr(Settings(lineage_key="key", metrics_token="key")).replace("lineage_key", "")
