"""The soak: what it makes of its samples, and a slice of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import pytest

from headwater_lab import soak
from headwater_lab.soak import FIGURES, Sample, draw, judge, line, main, slope


def samples(seconds: int, **growing: float) -> list[Sample]:
    """One each second; the figures named grow by so much each second, and all of them are noisy."""
    random = Random(1)
    names = [figure.name for figure in FIGURES]
    return [
        {"time": float(second), "cpu": second / 2}
        | {name: 1000 + growing.get(name, 0) * second + random.uniform(-20, 20) for name in names}
        for second in range(seconds)
    ]


def test_the_slope_is_not_moved_by_a_few_peaks() -> None:
    times = [float(number) for number in range(100)]
    values = [3 * each for each in times]
    assert slope(times, values) == 3
    values[50] = values[70] = 1e9
    assert abs(slope(times, values) - 3) < 0.1
    assert slope([1.0], [5.0]) == 0.0


def test_noise_is_no_growth() -> None:
    assert all(verdict.holds for verdict in judge(samples(200)) if verdict.figure != "tasks")


@pytest.mark.parametrize("figure", [figure.name for figure in FIGURES])
def test_growth_is_found(figure: str) -> None:
    verdicts = {verdict.figure: verdict for verdict in judge(samples(200, **{figure: 100.0}))}
    assert not verdicts[figure].holds
    assert verdicts[figure].growth == pytest.approx(10_000, rel=0.02)
    assert line(verdicts[figure]).endswith("GROWS")


def test_the_first_half_is_for_warming_up() -> None:
    rows = samples(200)
    for row in rows[:100]:
        row["resident"] /= 10
    assert next(verdict for verdict in judge(rows) if verdict.figure == "resident").holds


def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(samples(20), tmp_path / "soak.svg")
    assert "<svg" in (tmp_path / "soak.svg").read_text()


def test_a_broker_that_does_not_start(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "build", lambda folder: None)
    assert main(["--minutes", "0.01", "--no-docs", "--broker-arguments=--no-such-option"]) == 1
    assert "FAILED" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_a_slice(tmp_path: Path) -> None:
    """Half a minute is too short for what memory does in the long run; what is counted has settled by then."""
    file = tmp_path / "soak.json"
    main(["--minutes", "0.5", "--rate", "300", "--no-docs", "--json", str(file)])
    result = json.loads(file.read_text())
    verdicts = {verdict["figure"]: verdict for verdict in result["verdicts"]}
    assert all(verdicts[name]["holds"] for name in ("files", "tasks", "sessions"))
    assert verdicts["timers"]["level"] < 1000, "those that were cancelled go in time"
    assert verdicts["resident"]["growth"] < 10, "MiB in a quarter of a minute"
    assert all(result["churn"][f"connections over {kind}"] > 0 for kind in ("tcp", "tls", "websocket"))
    assert result["samples"][-1]["messages"] > 1000
