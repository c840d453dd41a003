"""`headwater edge mirror` as people use it."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli.app import app
from headwater.fleet.node import RunningNode
from headwater.fleet.process import free_port
from headwater.store.reader import StoreReader

PATIENCE = 30.0
COMMAND = [sys.executable, "-m", "headwater"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("node")) as node:
        reader = StoreReader(node.url)
        for number in range(6):
            reader.publish(f"a/{number % 2}", b"\xff" if number == 5 else f"{number}, text".encode())
        yield node


def mirror(node: RunningNode, *options: object) -> subprocess.CompletedProcess[bytes]:
    words = [*COMMAND, "edge", "mirror", "-p", str(node.port), "--rest", node.url, "--interval", "0.05"]
    return subprocess.run([*words, *map(str, options)], capture_output=True, timeout=PATIENCE, check=False)


def positions(text: str) -> list[int]:
    return [json.loads(line)["position"] for line in text.splitlines()]


def test_to_the_output(node: RunningNode) -> None:
    done = mirror(node, "-t", "a/#", "--until-complete")
    assert done.returncode == 0
    assert positions(done.stdout.decode()) == [1, 2, 3, 4, 5, 6]
    said = done.stderr.decode()
    assert re.search(r"100 % complete up to \w+:\d+: 6 made, 0 by MQTT, 6 recovered, 0 duplicate, 0 lost", said)


def test_nobody_wants_more(node: RunningNode) -> None:
    words = [*COMMAND, "edge", "mirror", "-p", str(node.port), "--rest", node.url, "-t", "a/#"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert said.count(b"\n") == 1
    assert b"0 lost" in said


def test_to_a_file_that_is_gone_on_with(node: RunningNode, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    for _ in range(2):
        done = mirror(node, "-t", "a/1", "-o", out, "--json", "--until-complete")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["made"], report["lost"], report["completeness"]) == (3, 0, 1.0)
    with out.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["position"] for row in rows] == ["2", "4", "6"]
    assert [row["payload"] for row in rows] == ["1, text", "3, text", ""]
    assert rows[2]["payload_base64"] == "/w=="


def test_to_a_folder(node: RunningNode, tmp_path: Path) -> None:
    done = mirror(node, "-t", "a/#", "-o", f"{tmp_path}/new/", "--seconds", "0")
    assert done.returncode == 0, done.stderr
    [file] = (tmp_path / "new").glob("*.ndjson")
    assert file.name == "00000000000000000001.ndjson"
    assert positions(file.read_text()) == [1, 2, 3, 4, 5, 6]


def test_it_stops_in_good_order_when_told_to(node: RunningNode, tmp_path: Path) -> None:
    words = [*COMMAND, "edge", "mirror", "-p", str(node.port), "--rest", node.url, "--interval", "30"]
    out = tmp_path / "out.ndjson"
    options = ["-t", "told/#", "-o", str(out), "--json", "--reader", "told", "--start", "next"]
    reader = StoreReader(node.url)
    with subprocess.Popen([*words, *options], stdout=subprocess.PIPE) as process:
        while (known := reader.reader("told")) is None:
            assert process.poll() is None
        last = reader.publish("told/a", b"now")
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert json.loads(said)["made"] == 1
    assert last is not None
    assert positions(out.read_text()) == [last]
    now = reader.reader("told")
    assert now is not None
    assert (known["position"], now["position"]) == (last - 1, last)
    reader.forget("told")


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--json"], 2, "--json needs --out"),
        (["-t", "a/#/b"], 2, "is not a topic filter"),
        (["-V", "311"], 2, "positions come with MQTT 5 only"),
        (["--rest", "ftp://x"], 2, "is no address such as"),
        (["--unix", "/tmp/x"], 2, "give --rest"),
    ],
)
def test_options_that_do_not_fit(options: list[str], status: int, words: str) -> None:
    done = CliRunner().invoke(app, ["edge", "mirror", *options])
    assert done.exit_code == status
    assert words in " ".join(done.stderr.replace("│", " ").split())


def test_nobody_there(node: RunningNode) -> None:
    nobody = str(free_port())
    done = mirror(node, "-p", nobody, "--seconds", "0")
    assert done.returncode == 1
    assert b"nobody listens there" in done.stderr
    words = [*COMMAND, "edge", "mirror", "-p", str(node.port), "--rest", f"http://127.0.0.1:{nobody}", "--seconds", "0"]
    late = subprocess.run(words, capture_output=True, timeout=PATIENCE, check=False)
    assert late.returncode == 1
    assert b"cannot ask REST (--rest)" in late.stderr
    assert b"Traceback" not in late.stderr + done.stderr


def test_an_output_that_cannot_be(node: RunningNode, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    done = mirror(node, "-o", tmp_path / "mine")
    assert (done.returncode, b"no mirror wrote it; name another file" in done.stderr) == (1, True)
    done = mirror(node, "-o", tmp_path / "no" / "folder.ndjson")
    assert (done.returncode, b"cannot write" in done.stderr) == (1, True)
    assert b"Traceback" not in done.stderr


def test_who_may_not_read_everything(tmp_path: Path) -> None:
    """A user mirrors what it may subscribe to; others are told what to check."""
    for user in ("boss", "cloud"):
        assert CliRunner().invoke(app, ["passwd", "-b", str(tmp_path / "users"), user, "secret"]).exit_code == 0
    (tmp_path / "rules").write_text("user boss\ntopic readwrite #\nuser cloud\ntopic read mine/#\n")
    settings = f'[access]\npassword_file = "{tmp_path}/users"\nacl_file = "{tmp_path}/rules"\n'
    (tmp_path / "node.toml").write_text(settings)
    with RunningNode(tmp_path / "node", options=["--config", str(tmp_path / "node.toml")]) as node:
        boss = StoreReader(node.url, user="boss", password="secret")
        for topic in ("mine/a", "theirs/a", "mine/b", "theirs/b"):
            boss.publish(topic, topic.encode())
        done = mirror(node, "-u", "cloud", "-P", "secret", "--until-complete")
        assert done.returncode == 0, done.stderr
        assert positions(done.stdout.decode()) == [1, 3]
        assert b"theirs" not in done.stdout
        for options in (["-P", "wrong"], ["-P", "secret", "--reader", "me"]):
            done = mirror(node, "-u", "cloud", *options, "--seconds", "0")
            assert done.returncode == 1
            assert b"check -u and -P, or --token" in done.stderr
        asked = ["store", "query", "--url", node.url, "-u", "cloud", "-P", "secret", "-f", "ndjson"]
        assert positions(CliRunner().invoke(app, asked).stdout) == [1, 3]
        asked = ["store", "stats", "--url", node.url, "-u", "cloud", "-P", "secret"]
        done_stats = CliRunner().invoke(app, asked)
        assert (done_stats.exit_code, "check --token, or -u and -P" in done_stats.stderr) == (1, True)
