"""The broker that the wire scenarios run against: our own, started once, or the one that `--target` names."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from headwater.fleet.process import free_port

from .peer import Target, drop_all

START_DEADLINE = 15.0
PROJECT = Path(__file__).parent.parent.parent
PROGRAM = (sys.executable, "-m", "headwater", "broker", "--port")

_left_out = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    name = config.getoption("--skip-deviating")
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    left_out = config.stash.setdefault(_left_out, [])
    for item in items:
        if {"own_broker", "door"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("own_settings")
        deviations = [text for mark in item.iter_markers("deviates") for text in mark.args if name]
        known = [text for text in deviations if text.startswith(name)]
        left_out.extend(f"{item.name}: {text}" for text in known)
        foreign = config.getoption("--target") and item.get_closest_marker("own_settings")
        (dropped if known or foreign else kept).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if left_out := config.stash.get(_left_out, []):
        terminalreporter.section("left out: known deviations")
        for line in left_out:
            terminalreporter.write_line(line)


class OwnBroker:
    """`python -m headwater broker` in a process of its own."""

    def __init__(self, folder: Path, settings: str | None = None, program: Sequence[str] = PROGRAM) -> None:
        """`settings` is the text of a TOML configuration file. Another `program` is started as it is, with a port."""
        self.target = Target("127.0.0.1", free_port(), ours=True)
        self.log = folder / f"broker-{self.target.port}.log"
        command = [*program, str(self.target.port)]
        if settings is not None:
            file = folder / f"broker-{self.target.port}.toml"
            file.write_text(settings)
            command += ["--config", str(file)]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=PROJECT)
        self._wait_until_listening()

    def _wait_until_listening(self) -> None:
        until = time.monotonic() + START_DEADLINE
        while self.process.poll() is None and time.monotonic() < until:
            try:
                socket.create_connection(self.target[:2], timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        self.process.kill()
        self.process.wait()
        pytest.fail(f"the broker does not listen; it said:\n{self.log.read_text()}", pytrace=False)

    def stop(self) -> None:
        """Ends the process; one that did not end well, or met an error it did not expect, fails the test."""
        self.process.terminate()
        try:
            self.process.wait(START_DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        said = self.log.read_text()
        if self.process.returncode or "Traceback" in said:
            pytest.fail(f"the broker ended with {self.process.returncode}; it said:\n{said[-10_000:]}", pytrace=False)


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The broker under test: with default settings, shared by all scenarios."""
    if named := request.config.getoption("--target"):
        host, _, port = named.rpartition(":")
        yield Target(host.strip("[]"), int(port), ours=False)
        return
    broker = OwnBroker(tmp_path_factory.mktemp("broker"))
    yield broker.target
    broker.stop()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Callable[..., OwnBroker]]:
    """Starts a broker of our own with the given TOML settings. Scenarios that use it are marked `own_settings`."""
    brokers: list[OwnBroker] = []

    def start(settings: str = "") -> OwnBroker:
        brokers.append(OwnBroker(tmp_path, settings))
        return brokers[-1]

    yield start
    drop_all()  # a broker waits a moment for its clients to go
    for broker in brokers:
        broker.stop()


@pytest.fixture
def broker_with(own_broker: Callable[..., OwnBroker]) -> Callable[[str], Target]:
    """Like `own_broker`, for scenarios that only talk to it."""
    return lambda settings: own_broker(settings).target


@pytest.fixture
def name() -> str:
    """A word no other scenario uses: for client ids (f"{name}sub", at most 23 letters and digits) and topics."""
    return "s" + secrets.token_hex(5)


@pytest.fixture(autouse=True)
def _no_connection_outlives_its_scenario() -> Iterator[None]:
    yield
    drop_all()
