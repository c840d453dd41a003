"""The simulation of clusters can fail: each barrier of `headwater.peering` that is left out is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater_lab.peering_simulation.__main__ import main
from headwater_lab.peering_simulation.mutants import MUTANTS, Edit, Mutant, StaleError, judge

PROJECT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_is_left_out_is_found(mutant: Mutant) -> None:
    assert judge(mutant, PROJECT) != ""


def test_a_mutant_that_does_not_fit_is_stale() -> None:
    with pytest.raises(StaleError):
        judge(Mutant("none", "", (Edit("spool.py", "what nobody wrote", ""),)), PROJECT)


def test_the_campaign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "4", "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert (found["seeds"], found["failed"]) == (4, 0)
    assert found["deliveries"] > 0
    assert "4 seeds in" in capsys.readouterr().out
