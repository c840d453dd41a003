"""docs/proxy.md: its first commands are run as they stand there, with other ports, in front of two Mosquittos."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import find_mosquitto, free_port, running, wait_until_listening

PAGE = (Path(__file__).parent.parent / "docs" / "proxy.md").read_text(encoding="utf-8")
PATIENCE = 60.0


def commands() -> list[list[str]]:
    """Of the page's first part, the words behind `headwater`."""
    part = PAGE.partition("## How it works")[0]
    lines = "".join(re.findall(r"```bash\n(.*?)```", part, re.DOTALL)).splitlines()
    assert all(line.startswith("headwater ") for line in lines)
    return [shlex.split(line.removesuffix("&"))[1:] for line in lines]


class Tour:
    """`ports`: those of the page by those of this test."""

    def __init__(self, folder: Path, homes: dict[str, int]) -> None:
        self.folder = folder
        self.ports = {name: str(port) for name, port in homes.items()}
        self.processes: list[subprocess.Popen[bytes]] = []

    def words(self, words: list[str]) -> list[str]:
        if words[0] == "proxy" and "--cluster-port" not in words:
            words = [*words, "--cluster-port", "11883"]
        moved = [re.sub(r"\d{4,5}$", self._port, each) for each in words]
        return [sys.executable, "-m", "headwater", *moved]

    def _port(self, found: re.Match[str]) -> str:
        return self.ports.setdefault(found[0], str(free_port()))

    def begin(self, words: list[str]) -> Path:
        """Where its output goes."""
        said = self.folder / f"said-{len(self.processes)}"
        with said.open("wb") as sink:
            self.processes.append(subprocess.Popen(self.words(words), stdout=sink, stderr=subprocess.STDOUT))
        return said

    def publish_until(self, words: list[str], said: Path, payload: str) -> None:
        """The subscriber may not be there yet."""
        words = [payload if each == "hello" else each for each in words]
        until = time.monotonic() + PATIENCE
        while payload not in said.read_text():
            assert time.monotonic() < until, said.read_text()
            subprocess.run(self.words(words), check=False, capture_output=True, timeout=PATIENCE)

    def end(self) -> None:
        for each in reversed(self.processes):
            each.terminate()
        for each in self.processes:
            each.wait(30)


@pytest.fixture
def tour(tmp_path: Path) -> Iterator[Tour]:
    find_mosquitto()
    with contextlib.ExitStack() as stack:
        folders = [tmp_path / "one", tmp_path / "two"]
        for folder in folders:
            folder.mkdir()
        one, two = (stack.enter_context(running("mosquitto", folder)) for folder in folders)
        tour = Tour(tmp_path, {"1884": one, "1885": two})
        stack.callback(tour.end)
        yield tour


def test_two_brokers_and_a_node_are_one_in_three_commands(tour: Tour) -> None:
    first, second, node, subscriber, *publishers = commands()
    assert [each[0] for each in (first, second, node, subscriber, *publishers)] == [
        *("proxy", "proxy", "broker", "sub", "pub", "pub")
    ]
    for words, port in ((first, "1883"), (second, "2883"), (node, "3883")):
        tour.begin(words)
        wait_until_listening(tour.processes[-1], int(tour.ports[port]))
    said = tour.begin(subscriber)
    for number, words in enumerate(publishers):
        tour.publish_until(words, said, f"from publisher {number}")
