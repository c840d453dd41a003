"""The mutation run: its data fits the source, three of its mutants are caught, and it tells right from wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater_lab import mutants
from headwater_lab.clauses import shown_by
from headwater_lab.mutants import BROKEN, CAUGHT, SURVIVED, Edit, Mutant, Verdict, judge, load, stale

PROJECT = Path(__file__).parent.parent.parent
ALL = load(PROJECT)
LEAST_CLAUSES = 60

PING = Mutant(
    "MQTT-3.12.4-1",
    "PINGREQ is not answered",
    (Edit("node/protocol/server.py", "self.send(channel, Pingresp())", "pass"),),
    ("tests/broker/test_09_keep_alive.py::test_ping",),
)


def test_no_mutant_is_stale() -> None:
    assert stale(ALL, PROJECT) == []


def test_there_are_enough_and_none_twice() -> None:
    clauses = [mutant.clause for mutant in ALL]
    assert len(set(clauses)) >= LEAST_CLAUSES
    assert len({(mutant.clause, mutant.edits) for mutant in ALL}) == len(ALL)


def test_tests_of_a_mutant_exist() -> None:
    shown = shown_by(PROJECT)
    assert all(test.partition("[")[0] in shown[mutant.clause] for mutant in ALL for test in mutant.tests)


@pytest.mark.parametrize("clause", ["MQTT-3.3.1-7", "MQTT-3.8.3-5", "MQTT-4.7.2-1"])
def test_mutants_are_caught(clause: str) -> None:
    """A slice of `scripts/bench mutants`."""
    (mutant,) = [each for each in ALL if each.clause == clause]
    verdict = judge(mutant, PROJECT)
    assert verdict.verdict == CAUGHT, verdict.said


def test_source_that_does_the_same_survives() -> None:
    harmless = Edit("node/plane/sending.py", "channel.write(answers)", "channel.write(bytes(answers))")
    assert judge(Mutant(PING.clause, "", (harmless,), PING.tests), PROJECT).verdict == SURVIVED


def test_a_broker_that_fails_proves_nothing() -> None:
    """Neither one that does not start nor one that raises is caught by the clause's test."""
    for new in ("raise RuntimeError('mutant')", "channel.write("):
        broken = Mutant(PING.clause, "", (Edit("node/plane/sending.py", "channel.write(answers)", new),), PING.tests)
        verdict = judge(broken, PROJECT)
        assert verdict.verdict == BROKEN
        assert "mutant" in verdict.said or "SyntaxError" in verdict.said


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (Mutant(PING.clause, "", (Edit("node/protocol/server.py", "no such text", ""),), PING.tests), "0 times"),
        (
            Mutant(PING.clause, "", (Edit("node/protocol/server.py", "self.", ""),), PING.tests),
            "times in node/protocol/server.py",
        ),
        (Mutant(PING.clause, "", (Edit("node/none.py", "self.", ""),), PING.tests), "0 times in node/none.py"),
        (Mutant(PING.clause, "", PING.edits, ("tests/broker/test_01_connect.py::test_mqtt_31",)), "not marked"),
        (Mutant("MQTT-3.1.2-20", "", PING.edits, ()), "no test"),
    ],
)
def test_stale_mutants_are_told(wrong: Mutant, why: str) -> None:
    assert stale([PING], PROJECT) == []
    (problem,) = stale([PING, wrong], PROJECT)
    assert problem.startswith(f"{wrong.clause}: mutant is stale") and why in problem


def test_survivors_and_broken_mutants_are_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A whole run, with canned verdicts, tells them and writes both reports."""
    monkeypatch.setattr(mutants, "copy_project", lambda project, copy: None)
    monkeypatch.setattr(mutants, "check_unchanged", lambda chosen, project: "")
    monkeypatch.setattr(mutants, "load", lambda project: [PING])
    monkeypatch.setattr(mutants, "stale", lambda chosen, project: [])
    for verdict, status in ((CAUGHT, 0), (SURVIVED, 1), (BROKEN, 1)):
        canned = [Verdict(PING, verdict, 1.5, "test_09_keep_alive.py::test_ping[v311]")]
        monkeypatch.setattr(mutants, "run", lambda chosen, project, jobs, canned=canned: iter(canned))
        assert mutants.main(["--project", str(tmp_path)]) == status
        assert ("NOT CAUGHT" in capsys.readouterr().err) == (status == 1)
    page, data = (next((tmp_path / "docs/results").glob(f"mutants-*.{kind}")).read_text() for kind in ("md", "json"))
    assert (
        "| PINGREQ is not answered | node/protocol/server.py: `self.send(channel, Pingresp())` → `pass` | broken |"
        in page
    )
    assert '"verdict": "broken"' in data
