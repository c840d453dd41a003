"""The comparison with TLS: canned results in place of brokers, and a slice with real ones."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from headwater_lab import tls
from headwater_lab.compare import MOSQUITTO, OURS, Comparison, Row
from headwater_lab.load import LoadError, LoadGenerator
from tests.lab.rows import failed_row, row


def with_goal(found: Row) -> Row:
    return dataclasses.replace(found, case=found.case | {"floor": tls.GOAL})


FINE = [with_goal(row("deep/W1", [0.1, 0.11], [7.0, 7.4])), with_goal(row("paced/W2/mqtt5", [10.0], [10.5]))]
BEHIND = with_goal(row("lock/W3", [10.0], [8.0]))


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """The rows that the next run of the command will find."""
    rows: list[Row] = []
    monkeypatch.setattr(tls, "build", lambda folder, tls: LoadGenerator(folder))
    monkeypatch.setattr(tls, "agreed", lambda commands, load, folder: "TLSv9 BEST")
    monkeypatch.setattr(Comparison, "run", lambda self, cases: iter(rows))
    return rows


def test_a_full_run_writes_the_documentation(canned: list[Row], tmp_path: Path) -> None:
    canned[:] = [*FINE, BEHIND, row("memory/connections", [20.0], [15.0])]
    (tmp_path / "performance.md").write_text("# Speed\n\nBy hand.\n")
    assert tls.main(["--docs", str(tmp_path)]) == 0
    page = (tmp_path / "performance.md").read_text()
    assert page.startswith("# Speed\n\nBy hand.\n")
    assert "- TLS: TLSv9 BEST" in page and "- load at the end: " in page
    assert "| paced W2 | 5.0 | 1.05 ± 0.00 | 10.0 | 10.5 | 5,000 | 1,000 | 120 | 100 |" in page
    assert "An idle connection takes 20.0 KiB (Mosquitto: 15.0)." in page
    assert "- lock W3 (lock/W3): below the floor of 1." in page
    (file,) = (tmp_path / "results").glob("tls-????-??-??.json")
    assert [each["key"] for each in json.loads(file.read_text())["results"]] == [each.key for each in canned]


@pytest.mark.parametrize("option", ["--no-docs", "--quick", "--self", "--only=deep", "--mqtt=4"])
def test_partial_runs_leave_the_documentation_alone(canned: list[Row], tmp_path: Path, option: str) -> None:
    canned[:] = FINE
    assert tls.main(["--docs", str(tmp_path / "docs"), "--json", str(tmp_path / "out.json"), option]) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["out.json"]


def test_slow_is_no_failure_but_lost_and_broken_are(canned: list[Row]) -> None:
    for rows, status in (
        ([BEHIND], 0),
        ([row("deep/W2", [1.0], [2.0], disorder=1)], 1),
        ([failed_row("deep/W2", "no answer")], 1),
    ):
        canned[:] = rows
        assert tls.main(["--quick"]) == status
        assert "failed" not in tls.markdown([BEHIND])


def test_every_regime_has_the_same_goal() -> None:
    found = tls.cases("both")
    assert {(case.scenario, case.name, case.mqtt) for case in found if case.measure == "traffic"} == {
        (regime, f"W{number}", mqtt)
        for regime in ("deep", "mid", "lock", "paced")
        for number in (1, 2, 3, 4)
        for mqtt in (4, 5)
    }
    assert {case.floor for case in found if case.measure == "traffic"} == {1.0}


def test_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert tls.main(["--only", "nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_different_ciphers_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(("TLSv1.3 A", "TLSv1.3 B"))
    load = LoadGenerator(tmp_path)
    monkeypatch.setattr(load, "cipher", lambda port: next(answers))
    certificate = tls.Certificate.make(tmp_path)
    commands = {OURS: certificate.mosquitto, MOSQUITTO: certificate.mosquitto}
    with pytest.raises(LoadError, match="different things"):
        tls.agreed(commands, load, tmp_path)


def test_both_brokers_for_real(tmp_path: Path) -> None:
    """Numbers of such a short run mean nothing, but nothing may be lost."""
    file = tmp_path / "out.json"
    options = ["--quick", "--seconds", "0.2", "--only", "lock/W4,memory", "--mqtt", "4", "--json", str(file)]
    assert tls.main(options) == 0
    data = json.loads(file.read_text())
    assert data["machine"]["TLS"].startswith("TLSv1.3 ")
    for each in data["results"]:
        assert not each["error"] and not each["violations"]
        assert each[OURS] > 0 and each[MOSQUITTO] > 0
