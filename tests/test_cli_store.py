"""`headwater store` and `headwater fleet` as people use them: against a node that runs, and on the folder of one that
does not."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow
import pytest
from typer.testing import CliRunner

from headwater.cli.app import app
from headwater.fleet.devices import Fleet
from headwater.fleet.node import RunningNode
from headwater.store.disk_store import DiskStore
from headwater.store.intake import Intake
from headwater.store.reader import StoreReader

PATIENCE = 30.0
MESSAGES = 40


def headwater(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headwater", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def invoke(*arguments: object) -> tuple[int, str, str]:
    """In this process, which is quicker."""
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("node")) as node:
        done = headwater("fleet", "-p", node.port, "--rate", 1000, "-C", MESSAGES, "-q", 1)
        assert (done.returncode, done.stdout) == (0, "")
        assert f"headwater fleet: {MESSAGES} messages" in done.stderr
        yield node


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder that no node uses."""
    store = DiskStore(tmp_path / "messages", id="s1", block_messages=16, seal_in_background=False)
    intake = Intake(1)
    for reading, _ in zip(Fleet().readings(), range(MESSAGES), strict=False):
        payload = reading.payload(1_700_000_000_000_000)
        intake.take(
            reading.topic.encode(),
            payload,
            1,
            "device",
            1_700_000_000_000_000,
            {"properties": b'{"content_type":"text"}'},
        )
    intake.take(b"binary", b"\xff\x00", 4, "x", 1_700_000_000_000_000)
    taken = intake.hand_over()
    assert taken is not None
    store.append(taken)
    store.sync()
    store.close()
    return tmp_path


# ---- a node that runs --------------------------------------------------------------------------------------------


def test_statistics_of_a_node(node: RunningNode) -> None:
    status, said, _ = invoke("store", "stats", "--url", node.url, "--topics", "site/1/+")
    assert status == 0
    assert f"messages   {MESSAGES} of 20 topics" in said
    assert "site/1/temperature" in said
    assert "site/2/temperature" not in said
    status, said, _ = invoke("store", "stats", "--url", node.url, "--json")
    assert json.loads(said)["next"] == MESSAGES + 1


def test_a_query_of_a_node_in_every_format(node: RunningNode, tmp_path: Path) -> None:
    asked = ("store", "query", "--url", node.url, "-t", "site/1/#", "--after", 1, "-n", 3)
    _, table, _ = invoke(*asked)
    _, lines, _ = invoke(*asked, "-f", "ndjson")
    _, whole, _ = invoke(*asked, "-f", "json")
    _, sheet, _ = invoke(*asked, "-f", "csv")
    assert invoke(*asked, "-o", tmp_path / "out.arrow")[0] == 0
    rows = [json.loads(line) for line in lines.splitlines()]
    assert [row["position"] for row in rows] == [3, 4, 23]
    assert json.loads(whole) == rows
    assert [row["payload"] for row in csv.DictReader(io.StringIO(sheet))] == [row["payload"] for row in rows]
    with pyarrow.ipc.open_stream(tmp_path / "out.arrow") as stream:
        assert stream.read_all().column("position").to_pylist() == [3, 4, 23]
    assert [row["position"] for row in rows] == [int(line.split()[0]) for line in table.splitlines()[1:]]
    assert [path.name for path in tmp_path.iterdir()] == ["out.arrow"]


def test_what_rest_refuses_is_said(node: RunningNode) -> None:
    status, _, said = invoke("store", "query", "--url", node.url, "--from", "yesterday")
    assert status == 1
    assert "headwater store query: `from` must be ISO 8601 or a Unix timestamp" in said
    status, _, said = invoke("store", "query", "--url", node.url, "-t", "a/#/b")
    assert (status, "must be the last level" in said) == (1, True)


def test_readers_of_a_node(node: RunningNode) -> None:
    status, said, _ = invoke("store", "readers", "--url", node.url, "--commit", "lakehouse", 12, "--json")
    assert status == 0
    [reader] = json.loads(said)
    assert (reader["name"], reader["position"], reader["lag"]) == ("lakehouse", 12, MESSAGES - 12)
    _, said, _ = invoke("store", "readers", "--url", node.url)
    assert "lakehouse" in said
    assert invoke("store", "readers", "--url", node.url, "--forget", "lakehouse")[0] == 0
    status, _, said = invoke("store", "readers", "--url", node.url, "--forget", "lakehouse")
    assert (status, "there is no reader 'lakehouse'" in said) == (1, True)
    status, _, said = invoke("store", "readers", "--url", node.url, "--commit", "lakehouse", 1_000_000)
    assert (status, "has not been given yet" in said) == (1, True)


def test_a_tail_prints_what_comes(node: RunningNode) -> None:
    status, said, _ = invoke("store", "tail", "--url", node.url, "--after", 0, "-C", 2, "-t", "site/1/temperature")
    assert status == 0
    lines = said.splitlines()
    assert [line.split()[0] for line in lines] == ["3", "23"]
    assert lines[0].split()[2] == "site/1/temperature"
    command = [sys.executable, "-m", "headwater", "store", "tail", "--url", node.url, "-C", "1", "--json"]
    reader = StoreReader(node.url)
    with subprocess.Popen([*command, "-t", "tail/#"], stdout=subprocess.PIPE) as tail:
        while reader.status()["tails"] == 0:
            assert tail.poll() is None
        reader.publish("tail/me", b"now")
        said_last, _ = tail.communicate(timeout=PATIENCE)
        assert json.loads(said_last)["payload"] == "now"


def test_a_folder_that_a_node_uses(node: RunningNode) -> None:
    for command in (["stats"], ["query"], ["readers"], ["compact"]):
        status, _, said = invoke("store", *command, "--data-dir", node.data)
        assert status == 1
        assert f"headwater store {command[0]}: a node uses {node.data}: ask it, with --url." in said


def test_nobody_there() -> None:
    status, _, said = invoke("store", "stats", "--url", "http://127.0.0.1:9")
    assert status == 1
    assert "is a node running there?" in said


# ---- a folder ----------------------------------------------------------------------------------------------------


def test_statistics_of_a_folder(folder: Path) -> None:
    status, said, _ = invoke("store", "stats", "--data-dir", folder, "--topics", "#")
    assert status == 0
    assert "store      s1" in said
    assert f"positions  1 to {MESSAGES + 1}" in said
    assert "binary" in said
    _, said, _ = invoke("store", "stats", "--data-dir", folder, "--json", "--topics", "binary")
    assert json.loads(said)["listed"][0]["first"] == MESSAGES + 1


@pytest.mark.parametrize(
    ("options", "positions"),
    [
        (["-t", "site/1/temperature"], [3, 23]),
        (["--after", "s1:39"], [40, 41]),
        (["--after", "38", "--before", "40"], [39]),
        (["--from", "2023-11-14T22:13:20.100Z", "--to", "2023-11-14T22:13:20.200Z"], [3, 4]),
        (["--from", "1700000000.1", "--to", "1700000000200"], [3, 4]),
        (["--min", "-1000", "-n", "2"], [1, 2]),
        (["--max", "-1000"], []),
    ],
)
def test_queries_of_a_folder(folder: Path, options: list[str], positions: list[int]) -> None:
    status, said, _ = invoke("store", "query", "--data-dir", folder, "-f", "ndjson", *options)
    assert status == 0
    assert [json.loads(line)["position"] for line in said.splitlines()] == positions


def test_what_is_written_is_the_same_by_rest_and_from_the_folder(tmp_path: Path) -> None:
    forms = ("json", "ndjson", "csv", "arrow")
    with RunningNode(tmp_path) as node:
        reader = StoreReader(node.url)
        for number, payload in enumerate(
            (b'{"value": 1.5, "ts": 1700000000}', b"\xff\x00", b"", '"\u00fc",\n'.encode())
        ):
            assert reader.publish(f"a/{number}", payload, retain=number == 1) == number + 1
        for form in forms:
            assert invoke("store", "query", "--url", node.url, "-o", tmp_path / f"remote.{form}")[0] == 0
    for form in forms:
        assert invoke("store", "query", "--data-dir", node.data, "-o", tmp_path / f"local.{form}")[0] == 0
    for form in ("json", "ndjson", "csv"):
        assert (tmp_path / f"local.{form}").read_bytes() == (tmp_path / f"remote.{form}").read_bytes()
    tables = [
        pyarrow.ipc.open_stream(tmp_path / f"{name}.arrow").read_all().to_pylist() for name in ("local", "remote")
    ]
    assert tables[0] == tables[1]
    rows = json.loads((tmp_path / "local.json").read_text())
    assert [row["position"] for row in rows] == [1, 2, 3, 4]
    assert [row["value"] for row in rows] == [1.5, None, None, None]
    assert [row["retain"] for row in rows] == [False, True, False, False]
    assert rows[1]["payload_base64"] == "/wA="


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["query", "--from", "yesterday"], "--from is a time in ISO 8601"),
        (["query", "--after", "other:3"], "--after is a position of another store"),
        (["query", "--after", "soon"], "--after is a position such as 17 or s1:17"),
        (["query", "-t", "a/#/b"], "'a/#/b' is no topic filter"),
        (["stats", "--topics", "a/#/b"], "'a/#/b' is no topic filter"),
        (["readers", "--commit", "me", "100"], "has not been given yet"),
        (["readers", "--forget", "me"], "there is no reader 'me'"),
    ],
)
def test_mistakes_are_explained(folder: Path, arguments: list[str], words: str) -> None:
    status, said, errors = invoke("store", *arguments, "--data-dir", folder)
    assert (status, said) == (1, "")
    assert words in errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["query", "-o", "out.txt"], "does not end with"),
        (["query", "-f", "table", "-o", "out"], "a table is for the terminal"),
        (["tail", "--data-dir", "x"], "nothing comes to a folder"),
        (["stats", "--url", "http://x", "--data-dir", "x"], "not both"),
        (["stats", "--url", "ftp://x"], "is no address"),
    ],
)
def test_options_that_do_not_fit(arguments: list[str], words: str) -> None:
    status, _, errors = invoke("store", *arguments)
    assert status == 2
    assert words in " ".join(errors.replace("│", " ").split())


def test_a_folder_without_a_store(tmp_path: Path) -> None:
    status, _, said = invoke("store", "stats", "--data-dir", tmp_path)
    assert (status, "is it a node's data folder?" in said) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_readers_and_compaction_of_a_folder(folder: Path) -> None:
    assert invoke("store", "readers", "--data-dir", folder, "--commit", "me", "s1:7")[0] == 0
    _, said, _ = invoke("store", "readers", "--data-dir", folder, "--json")
    assert [(each["name"], each["position"], each["lag"]) for each in json.loads(said)] == [("me", 7, MESSAGES - 6)]
    status, said, _ = invoke("store", "compact", "--data-dir", folder)
    assert status == 0
    assert said.startswith(f"{folder}: ")


def test_a_file_is_there_only_when_all_of_it_is(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.ndjson"
    status, _, _ = invoke("store", "query", "--data-dir", folder, "--after", "other:1", "-o", out)
    assert status == 1
    assert not out.exists()
    assert not out.with_name("out.ndjson.unfinished").exists()


def test_nobody_wants_more(folder: Path) -> None:
    command = [sys.executable, "-m", "headwater", "store", "query", "--data-dir", str(folder), "-f", "ndjson"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as query:
        assert query.stdout is not None
        query.stdout.close()
        _, errors = query.communicate(timeout=PATIENCE)
    assert errors == b""


# ---- the fleet ---------------------------------------------------------------------------------------------------


def test_a_fleet_that_cannot_be() -> None:
    status, _, said = invoke("fleet", "-t", "a/#")
    assert status == 2
    assert "no pattern of topics" in said


def test_a_fleet_stops_when_told_to(node: RunningNode) -> None:
    command = [sys.executable, "-m", "headwater", "fleet", "-p", str(node.port), "-t", "stop/{n}", "--rate", "50"]
    reader = StoreReader(node.url)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as fleet:
        with contextlib.ExitStack() as stack:
            stack.callback(fleet.terminate)
            while reader.latest("stop/3") is None:
                assert fleet.poll() is None
        _, said = fleet.communicate(timeout=PATIENCE)
    assert fleet.returncode == 0
    assert "messages in" in said


def test_what_has_gone_to_object_storage(tmp_path: Path) -> None:
    place = tmp_path / "place"
    words = ["--set", "store.id=s1", "--set", f"store.history.url={place.as_uri()}", "--set", "store.history.after=0.5"]
    with RunningNode(tmp_path, options=[*words, "--set", "store.keep_for=1.0"]) as node:
        of = ("--url", node.url)
        assert headwater("fleet", "-p", node.port, "--rate", 1000, "-C", MESSAGES, "-q", 1).returncode == 0
        before = invoke("store", "query", *of, "-f", "ndjson")[1]
        reader = StoreReader(node.url)
        wait_until(lambda: reader.status()["disk_first"] == MESSAGES + 1)
        code, said, _ = invoke("store", "history", "status", *of, "--json")
        assert code == 0
        assert (json.loads(said)["first"], json.loads(said)["end"]) == (1, MESSAGES + 1)
        code, said, _ = invoke("store", "history", "status", *of)
        assert code == 0
        assert f"messages   {MESSAGES} in " in said
        assert f"positions  1 to {MESSAGES}\n" in said
        assert invoke("store", "query", *of, "-f", "ndjson")[1] == before
        direct = invoke("store", "query", *of, "--direct", "-f", "arrow", "-o", str(tmp_path / "out.arrow"))
        assert direct[0] == 0
        assert pyarrow.ipc.open_stream((tmp_path / "out.arrow").read_bytes()).read_all().num_rows == MESSAGES
        assert "history" in invoke("store", "stats", *of)[1]
        mirror = ("edge", "mirror", "-p", node.port, "--rest", node.url, "--direct", "-o", tmp_path / "all.ndjson")
        mirrored = headwater(*mirror, "--until-complete", "--interval", "0.1")
        assert mirrored.returncode == 0, mirrored.stderr
        assert [json.loads(line)["position"] for line in (tmp_path / "all.ndjson").read_text().splitlines()] == list(
            range(1, MESSAGES + 1)
        )


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_node_whose_messages_stay(node: RunningNode) -> None:
    code, _, said = invoke("store", "history", "status", "--url", node.url)
    assert code == 1
    assert "nothing goes to object storage; set store.history.url" in said
