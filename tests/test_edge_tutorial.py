"""docs/edge-tutorial.md: its commands are run as they stand there, with other ports."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.fleet.process import free_port

PAGE = (Path(__file__).parent.parent / "docs" / "edge-tutorial.md").read_text(encoding="utf-8")
TOKEN = "0123456789abcdef0123456789abcdef"
PORTS = ("1883", "1884", "8080", "8081", "11883", "11884", "18830", "18831")
SPARK = ("headwater pipeline", "watch")
SENT = 600


def commands() -> list[list[str]]:
    """Of the page, but for those that need Spark, the words behind `headwater`."""
    text = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)).replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith(("export ", *SPARK))]
    assert all(line.startswith("headwater ") for line in lines)
    return [shlex.split(line)[1:] for line in lines]


class Tutorial:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {each: str(free_port()) for each in PORTS}
        self.running: list[subprocess.Popen[bytes]] = []
        sources = os.pathsep.join(os.path.abspath(each) for each in sys.path if each)  # the commands run elsewhere
        self.environment = {**os.environ, "HEADWATER_ADMIN__TOKEN": TOKEN, "PYTHONPATH": sources}

    def words(self, words: list[str]) -> list[str]:
        """With ports of this test, which the page leaves to defaults or names."""
        port = self.ports
        moved = [re.sub(r"\d{4,}$", lambda found: port.get(found[0], found[0]), each) for each in words]
        match words[0], words[1]:
            case "node", _ if "-p" in words:
                moved[moved.index("--join") + 1] = f"localhost:{port['11883']}"
            case "node", _:
                moved += ["-p", port["1883"], "--rest-port", port["8080"], "--cluster-port", port["11883"]]
                moved += ["--set", f"admin.port={port['18830']}"]
            case "fleet", _:
                moved += ["-p", port["1883"], "--count", str(SENT)]
            case "edge", "mirror":
                moved += ["-p", port["1883"], "--rest", f"http://localhost:{port['8080']}"]
            case "edge", _:
                moved += ["--admin", f"http://localhost:{port['18830']}"]
            case "store", _:
                moved += ["--url", f"http://localhost:{port['8080']}"]
        return [sys.executable, "-m", "headwater", *moved]

    def begin(self, words: list[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self.words(words), cwd=self.folder, env=self.environment)
        self.running.append(process)
        return process

    def run(self, words: list[str]) -> str:
        done = subprocess.run(
            self.words(words),
            check=False,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout

    def wait_for_nodes(self, count: int) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                nodes = json.loads(self.run(["edge", "status", "--json"]))["nodes"]
            except AssertionError:
                nodes = []  # it has not started yet
            if sum(each["ready"] and bool(each["store"]) for each in nodes) == count:
                return
        raise AssertionError(f"{count} nodes did not come in a minute")


@pytest.fixture
def tutorial(tmp_path: Path) -> Iterator[Tutorial]:
    tutorial = Tutorial(tmp_path)
    try:
        yield tutorial
    finally:
        for each in reversed(tutorial.running):
            each.terminate()
        for each in tutorial.running:
            each.wait(30)


def test_one_node_becomes_an_edge_of_two_tiers_and_nothing_is_lost(tutorial: Tutorial) -> None:
    nodes = 0
    fleet: subprocess.Popen[bytes] | None = None
    mirror: list[str] = []
    for words in commands():
        if words[0] == "node":
            tutorial.begin(words)
            nodes += 1
            tutorial.wait_for_nodes(nodes)
        elif words[0] == "fleet":
            fleet = tutorial.begin(words)
        elif words[:2] == ["edge", "mirror"]:
            mirror = words
        else:
            tutorial.run(words)
    assert nodes == 2
    assert fleet is not None
    assert fleet.wait(60) == 0
    tutorial.run(mirror)
    assert len((tutorial.folder / "all.ndjson").read_text(encoding="utf-8").splitlines()) == SENT
    stores = json.loads(tutorial.run(["edge", "status", "--json"]))["stores"]
    assert {row["node"] for row in stores if row["to"] is None or row["to"] >= row["from"]} == {"one", "two"}
