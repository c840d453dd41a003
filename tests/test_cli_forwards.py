"""`headwater edge forwards` as people use it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli.app import app
from headwater.client.sync import Client
from tests.brokers import free_port, wait_until_listening
from tests.node.forwarding.scene import forward
from tests.node.forwarding.test_kills import command

TOKEN = "t" * 20


def ask(port: int, *options: str) -> str:
    words = ["edge", "forwards", "--admin", f"http://127.0.0.1:{port}", *options]
    found = CliRunner().invoke(app, words, env={"HEADWATER_ADMIN__TOKEN": TOKEN})
    assert found.exit_code == 0, found.output
    return found.output


def test_what_it_shows(tmp_path: Path) -> None:
    port, admin = free_port(), free_port()
    words = command(tmp_path / "near", port, forward(free_port()))
    words += ["--set", "admin.enabled=true", "--set", f"admin.port={admin}", "--set", f"admin.token={TOKEN}"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_until_listening(process, port)
        wait_until_listening(process, admin)
        with Client("127.0.0.1", port) as client:
            for number in range(3):
                client.publish("a", str(number), qos=1)
        [found] = json.loads(ask(admin, "--json"))
        assert (found["name"], found["up"], found["behind"], found["position"]) == ("cloud", False, 3, 0)
        shown = ask(admin)
        assert "cloud" in shown and "down" in shown and "nobody listens there" in shown
    finally:
        process.terminate()
        process.communicate(timeout=15)


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    found = CliRunner().invoke(app, ["edge", "forwards", "--admin", f"http://127.0.0.1:{free_port()}"])
    assert found.exit_code != 0
    assert "is the admin API there?" in found.output
