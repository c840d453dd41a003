"""The command, with canned results in place of brokers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.fleet.process import BrokerError
from headwater_lab import broker, figure, machine, report
from headwater_lab.compare import Comparison, Row
from headwater_lab.load import LoadError, LoadGenerator
from tests.lab.rows import MACHINE, failed_row, row

FINE = [row("deep/W1", [0.1, 0.11], [7.0, 7.4]), row("lock/W3", [10.0], [8.0]), row("start/listen", [0.2], [0.01])]


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """The rows that the next run of the command will find."""
    rows: list[Row] = []
    monkeypatch.setattr(broker, "find_mosquitto", lambda: "mosquitto")
    monkeypatch.setattr(broker, "build", LoadGenerator)
    monkeypatch.setattr(Comparison, "run", lambda self, cases: iter(rows))
    return rows


def test_slow_is_no_failure_but_lost_and_broken_are(canned: list[Row]) -> None:
    canned[:] = FINE
    assert broker.main(["--quick"]) == 0
    canned[:] = [*FINE, row("deep/W2", [1.0], [2.0], disorder=1)]
    assert broker.main(["--quick"]) == 1
    canned[:] = [failed_row("deep/W2", "no answer")]
    assert broker.main(["--quick"]) == 1


def test_full_run_writes_the_documentation(canned: list[Row], tmp_path: Path) -> None:
    canned[:] = FINE
    (tmp_path / "performance.md").write_text("# Speed\n\nBy hand.\n")
    assert broker.main(["--docs", str(tmp_path)]) == 0
    page = (tmp_path / "performance.md").read_text()
    assert page.startswith("# Speed\n\nBy hand.\n")
    assert report.BEGIN in page
    assert "| deep W1 |" in page
    (file,) = (tmp_path / "results").glob("broker-????-??-??.json")
    data = json.loads(file.read_text())
    assert [result["key"] for result in data["results"]] == [compared.key for compared in FINE]
    assert {"cpu", "cores", "kernel", "python", "headwater", "mosquitto", "commit", "date"} <= set(data["machine"])


@pytest.mark.parametrize("option", ["--no-docs", "--quick", "--self", "--only=deep"])
def test_partial_runs_leave_the_documentation_alone(canned: list[Row], tmp_path: Path, option: str) -> None:
    canned[:] = FINE
    assert broker.main(["--docs", str(tmp_path / "docs"), "--json", str(tmp_path / "out.json"), option]) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["out.json"]


@pytest.mark.parametrize(
    ("missing", "problem"),
    [("build", LoadError("gcc is needed")), ("find_mosquitto", BrokerError("mosquitto is needed"))],
)
def test_missing_tools_are_a_message(
    canned: list[Row],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    missing: str,
    problem: Exception,
) -> None:
    def fail(*_: object) -> None:
        raise problem

    monkeypatch.setattr(broker, missing, fail)
    assert broker.main(["--quick"]) == 2
    assert str(problem) in capsys.readouterr().err


def test_list_and_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert broker.main(["--list", "--only", "qos2"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["qos2/deep", "qos2/lock"]
    assert broker.main(["--only", "nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_figure_has_a_label_for_every_result_and_is_reproducible(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [*FINE, failed_row("qos2/deep", "no answer"), row("deep/W4/mqtt5", [1.0], [9.0])]
    figure.draw(rows, tmp_path / "one.svg")
    figure.draw(rows, tmp_path / "two.svg")
    text = (tmp_path / "one.svg").read_text()
    assert text == (tmp_path / "two.svg").read_text()
    assert "deep W1" in text
    assert "deep W4, MQTT 5" in text
    assert "QoS 2" not in text


def test_machine_is_described() -> None:
    assert set(MACHINE) <= set(machine.describe("x"))
