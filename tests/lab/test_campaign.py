"""The command that contests share, with canned outcomes in place of brokers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater_lab import campaign, report, shared
from headwater_lab.campaign import Benchmark
from headwater_lab.contest import Case, Contest, ContestOutcome
from headwater_lab.load import LoadGenerator
from tests.lab.outcomes import outcome

DEEP, LOCK = Case("deep/1", "deep traffic", ()), Case("lock/1", "lock traffic", (), mqtt=5)


def cases(mqtt: int | None, quick: bool) -> list[Case]:
    return [DEEP, LOCK]


BENCHMARK = Benchmark(
    name="trial",
    about="A trial.",
    cases=cases,
    line=lambda outcome: "a line",
    markdown=lambda outcomes: f"{len(outcomes)} outcomes",
    dispatchers=("adaptive", "sticky"),
    rounds=4,
    seconds=3.0,
    quick_seconds=0.5,
)


@pytest.fixture
def contests(monkeypatch: pytest.MonkeyPatch) -> list[Contest]:
    """What was run; every case ends well, but for one that is called broken."""
    seen: list[Contest] = []

    def run(contest: Contest, chosen: list[Case]) -> list[ContestOutcome]:
        seen.append(contest)
        return [outcome(case, **{name: [1.0] for name in contest.contenders}) for case in chosen]

    monkeypatch.setattr(campaign, "find_mosquitto", lambda: "mosquitto")
    monkeypatch.setattr(campaign, "build", LoadGenerator)
    monkeypatch.setattr(Contest, "run", run)
    return seen


def test_full_run_writes_result_file_and_its_own_part_of_the_page(contests: list[Contest], tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(report.insert("# Speed\n\nBy hand.\n", "of another"))
    assert campaign.main(BENCHMARK, ["--docs", str(tmp_path)]) == 0
    assert campaign.main(BENCHMARK, ["--docs", str(tmp_path)]) == 0
    text = page.read_text()
    begin, end = report.markers("trial")
    assert text.startswith("# Speed\n\nBy hand.\n")
    assert "of another" in text
    assert text.count(begin) == text.count(end) == 1
    assert "- commit: " in text
    assert "- rounds: 4 of 3 s\n" in text
    assert "2 outcomes" in text
    (file,) = (tmp_path / "results").glob("trial-????-??-??.json")
    data = json.loads(file.read_text())
    assert [ContestOutcome.from_json(each).case for each in data["results"]] == [DEEP, LOCK]
    assert {"cpu", "cores", "kernel", "python", "headwater", "mosquitto", "commit", "date"} <= set(data["machine"])


def test_contenders_are_the_dispatchers_and_mosquitto(contests: list[Contest]) -> None:
    assert campaign.main(BENCHMARK, ["--no-docs"]) == 0
    assert campaign.main(BENCHMARK, ["--quick", "--dispatchers", "random", "--no-mosquitto"]) == 0
    full, quick = contests
    assert list(full.contenders) == ["adaptive", "sticky", "mosquitto"]
    assert (full.rounds, full.seconds, full.warmup) == (4, 3.0, 0.5)
    assert list(quick.contenders) == ["random"]
    assert (quick.rounds, quick.seconds, quick.warmup) == (1, 0.5, 0.25)


@pytest.mark.parametrize(
    "option", ["--no-docs", "--quick", "--only=deep", "--no-mosquitto", "--mqtt=4", "--dispatchers=random"]
)
def test_partial_runs_leave_the_documentation_alone(contests: list[Contest], tmp_path: Path, option: str) -> None:
    assert campaign.main(BENCHMARK, ["--docs", str(tmp_path), "--json", str(tmp_path / "out.json"), option]) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["out.json"]


def test_only_takes_beginnings(contests: list[Contest], capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign.main(BENCHMARK, ["--list", "--only", "lock"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["lock/1"]
    assert campaign.main(BENCHMARK, ["--only", "nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_unknown_dispatcher_is_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        campaign.main(BENCHMARK, ["--dispatchers", "fairest"])
    assert "fairest" in capsys.readouterr().err


def test_exit_status_tells_of_lost_messages_but_not_of_mosquittos(
    contests: list[Contest], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    canned = outcome(DEEP, adaptive=[9.0], mosquitto=[1.0])
    monkeypatch.setattr(Contest, "run", lambda contest, chosen: [canned])
    canned.samples["mosquitto"][0]["lost"] = 2.0
    assert campaign.main(BENCHMARK, ["--quick"]) == 0
    assert "MOSQUITTO: LOST 2" in capsys.readouterr().out
    canned.samples["adaptive"][0]["repeated"] = 1.0
    assert campaign.main(BENCHMARK, ["--quick"]) == 1
    assert "failed: deep/1" in capsys.readouterr().err


def test_losses_name_errors_wrong_messages_and_what_is_said_against() -> None:
    lossy = outcome(DEEP, adaptive=[1.0])
    lossy.samples["adaptive"][0]["lost"] = 3.0
    said = campaign.losses([lossy, ContestOutcome(LOCK, error="no answer")], lambda outcome: ["too slow"])
    assert "- deep traffic, MQTT 3.1.1: adaptive: lost 3; too slow." in said
    assert "- lock traffic, MQTT 5.0: no answer." in said
    assert "None" in campaign.losses([outcome(DEEP, adaptive=[1.0])], lambda outcome: [])


def test_whole_campaign_runs_all_benchmarks_and_returns_the_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, list[str]]] = []

    def main(benchmark: Benchmark, arguments: list[str]) -> int:
        ran.append((benchmark.name, arguments))
        return 1 if benchmark.name == "shared-fleet" else 0

    monkeypatch.setattr(campaign, "main", main)
    assert shared.main(["--quick", "--docs", "there"]) == 1
    assert [name for name, _ in ran] == ["shared-cost", "shared-fleet", "topologies"]
    assert all(arguments == ["--docs", "there", "--quick"] for _, arguments in ran)
