"""What the samples of two brokers are made into, and how samples are taken."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from headwater.fleet.process import BrokerError
from headwater_lab.compare import MOSQUITTO, OURS, Comparison, Row
from headwater_lab.contenders import command_from, find_mosquitto, mosquitto_command, running
from headwater_lab.load import LoadGenerator, build
from tests.lab.rows import case, row


def test_ratio_is_of_medians_and_spread_is_of_single_rounds() -> None:
    compared = row("deep/W1", ours=[1.0, 2.0, 4.0], mosquitto=[30.0, 20.0, 10.0])
    assert compared.ratio == 10.0
    assert compared.spread == (30.0 / 1.0 - 10.0 / 4.0) / 2


def test_violations_of_any_round_fail_the_row() -> None:
    fine = row("deep/W1", [1.0], [2.0], lost=0, gaps=0, disorder=0)
    assert not fine.failed
    bad = row("deep/W1", [1.0, 1.0], [2.0, 2.0])
    bad.samples[OURS][1] |= {"lost": -1.0, "disorder": 2.0}
    assert bad.violations() == {"lost": -1, "disorder": 2}
    assert bad.violations(MOSQUITTO) == {}
    assert bad.failed


def test_losses_of_mosquitto_do_not_fail_the_row() -> None:
    compared = row("deep/W1", [1.0], [2.0])
    compared.samples[MOSQUITTO][0]["lost"] = 5.0
    assert not compared.failed


def test_row_survives_json() -> None:
    compared = row("paced/W1/mqtt5", [1.0, 3.0], [2.0, 4.0])
    again = Row.from_json(json.loads(json.dumps(compared.as_json())))
    assert (again.key, again.ratio, again.spread) == ("paced/W1/mqtt5", compared.ratio, compared.spread)


def test_broker_that_ends_is_reported_with_its_last_words(tmp_path: Path) -> None:
    command = command_from(f"{sys.executable} -c 'import sys; sys.exit(\"no such setting\")' {{port}}")
    with pytest.raises(BrokerError, match="no such setting"), running(command, tmp_path):
        pass


def test_failing_case_does_not_stop_the_others(tmp_path: Path) -> None:
    broken = command_from(f"{sys.executable} -c 'raise SystemExit(9)' {{port}}")
    comparison = Comparison(broken, LoadGenerator(tmp_path / "none"), tmp_path, mosquitto=broken)
    rows = list(comparison.run([case("deep/W1"), case("start/listen")]))
    assert [compared.key for compared in rows] == ["deep/W1", "start/listen"]
    assert all("ended with status 9" in compared.error for compared in rows)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.skipif(
    shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin") is None, reason="needs mosquitto"
)
def test_mosquitto_against_itself(tmp_path: Path) -> None:
    keys = ["deep/W4/mqtt5", "qos2/deep", "retained/deep", "storm/connect"]
    comparison = Comparison(mosquitto_command, build(tmp_path), tmp_path, rounds=1, seconds=0.1, warmup=0.05)
    rows = list(comparison.run([case(key) for key in keys]))
    assert [(compared.key, compared.error, compared.violations()) for compared in rows] == [
        (key, "", {}) for key in keys
    ]
    assert all(0.1 < compared.ratio < 10 for compared in rows)


def test_without_mosquitto_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(BrokerError, match="mosquitto is needed"):
        find_mosquitto()
