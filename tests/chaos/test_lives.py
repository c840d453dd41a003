"""Brokers that are started again and again."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from headwater_lab.chaos import lives
from headwater_lab.contenders import free_port

COMMAND = f"{sys.executable} -m headwater broker --port {{port}} --data-dir {{data}}"


def test_a_port_that_somebody_else_takes_meanwhile_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        taken = int(other.getsockname()[1])
        ports = iter([taken])
        monkeypatch.setattr(lives, "free_port", lambda: next(ports, 0) or free_port())
        started = lives.Lives(tmp_path, None, COMMAND)
        try:
            assert started.start()
            assert started.port != taken
        finally:
            started.kill()


def test_any_other_failure_is_one(tmp_path: Path) -> None:
    with pytest.raises(lives.BrokerFailed, match="No such option"):
        lives.Lives(tmp_path, None, f"{COMMAND} --no-such-option").start()
