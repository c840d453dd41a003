"""A slice of the campaign that `scripts/bench fuzz` runs at length, against a broker process."""

from __future__ import annotations

import contextlib
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.wire import encode
from headwater.wire.packets import Connect, Pingreq
from headwater_lab.contenders import command_from, running
from headwater_lab.fuzz import PATIENCE, SETTINGS, Campaign, main
from tests.brokers import free_port, wait_until_listening

BATCHES = 12
WARM_UP = 4
GROWTH = 4 << 20
"""Bytes that the allocator may still need after the warm-up; a leak of a few KB per connection is more."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_campaign(seed: int, tmp_path: Path) -> None:
    settings = tmp_path / "fuzz.toml"
    settings.write_text(SETTINGS)
    command = command_from(f"{sys.executable} -m headwater broker --port {{port}} --config {settings}")
    with running(command, tmp_path) as broker:
        campaign = Campaign(broker, tmp_path / f"broker-{broker.port}.log", seed)
        warm = 0
        for number in range(BATCHES):
            campaign.batch(150)
            campaign.flood(100)
            campaign.check_files()
            if number == WARM_UP:
                warm = broker.resident_bytes()
        assert broker.resident_bytes() - warm < GROWTH


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--minutes", "0.001", "--seed", "3", "--batch", "20"]) == 0
    assert "seed 3: 70 connections" in capsys.readouterr().out


def test_a_broker_that_fails_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It accepts connections and answers everything with nonsense."""
    script = tmp_path / "mad.py"
    script.write_text(
        "import socketserver, sys\n"
        "class Mad(socketserver.BaseRequestHandler):\n"
        "    def handle(self):\n"
        "        self.request.recv(100)\n"
        "        self.request.sendall(b'\\x20\\x03\\x00\\x00\\x00')\n"
        "socketserver.ThreadingTCPServer(('127.0.0.1', int(sys.argv[1])), Mad).serve_forever()\n"
    )
    assert main(["--minutes", "0.1", "--seed", "3", "--command", f"{sys.executable} {script} {{port}}"]) == 1
    assert "a normal client is not served" in capsys.readouterr().err


def test_out_of_files(tmp_path: Path) -> None:
    """More connections than the system lets it open: it says so, its clients stay, and others can come."""

    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))

    port = free_port()
    log = tmp_path / "log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "headwater", "broker", "--port", str(port)],
            stdout=sink,
            stderr=sink,
            preexec_fn=few_files,  # noqa: PLW1509 (no threads here)
        )
    try:
        wait_until_listening(process, port)
        with contextlib.ExitStack() as peers:

            def comes() -> socket.socket:
                return peers.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))

            clients = [comes() for _ in range(5)]
            for peer in clients:
                peer.sendall(encode(Connect("", 5), 5))
                assert peer.recv(100)[0] == 0x20
            for _ in range(55):
                comes()  # and says nothing: strangers give way to each other, clients do not
            for peer in clients:
                peer.sendall(encode(Pingreq(), 5))
                assert peer.recv(100)[0] == 0xD0
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as peer:
            peer.sendall(encode(Connect("", 5), 5))
            assert peer.recv(100)[0] == 0x20
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 0
    said = log.read_text()
    assert "the limit of open files is 40" in said and "ulimit" in said
    assert "Traceback" not in said
