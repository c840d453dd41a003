"""The campaign of attacks: what it makes of what it measured."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from headwater.fleet.process import BrokerError
from headwater_lab import hostile
from headwater_lab.hostile import AttackOutcome, line, main, markdown
from headwater_lab.hostile_field import Attack
from headwater_lab.hostile_ground import ATTACKS

MIB = 1 << 20


def outcome(**others: object) -> AttackOutcome:
    made = AttackOutcome(
        "slowloris",
        p50={"alone": [50.0] * 3, "during": [60.0] * 3, "after": [50.0] * 3},
        p99={"alone": [100.0, 100.0, 400.0], "during": [150.0, 170.0, 9000.0], "after": [100.0] * 3},
        counts={"connections": 100, "packets": 1000, "bytes": 50_000_000, "ends": 3},
        seconds=10.0,
        cpu=2.5,
        before=40 * MIB,
        peak=50 * MIB,
        after_first=45 * MIB,
        after=46 * MIB,
    )
    for name, value in others.items():
        setattr(made, name, value)
    return made


def test_the_ratio_is_the_median_over_the_rounds() -> None:
    assert outcome().ratio == 1.7


def test_a_good_outcome() -> None:
    assert outcome().remarks() == []
    assert line(outcome()) == (
        "slowloris            p99 100 / 170 / 100 µs, ratio 1.70; memory 40 / 50 / 46 MiB; CPU 25 %; "
        "10 connections/s, 100 packets/s, 5 MB/s"
    )


@pytest.mark.parametrize(
    ("others", "said", "fails"),
    [
        ({"peak": 100 * MIB}, "took 60 MiB, more than 20", True),
        ({"after": 60 * MIB}, "memory grows: 45 MiB after the first round, 60 after the last", True),
        ({"violations": {"lost": 2, "gaps": 0}}, "lost 2 messages of good clients", True),
        ({"error": "it ended"}, "it ended", True),
        ({"p99": {"alone": [100.0], "during": [201.0], "after": [1.0]}}, "p99 of others above 2 ×", False),
    ],
)
def test_what_is_remarked_on(others: dict[str, object], said: str, fails: bool) -> None:
    made = outcome(**others)
    assert made.remarks() == [said]
    assert made.failures() == ([said] if fails else [])
    assert f"- slowloris: {said}." in markdown([made], {"date": "today"})


def test_what_stated_bounds_allow_is_no_growth() -> None:
    """Memory that was used up to a bound and is free again may stay resident."""
    attack = ATTACKS["long-client-ids"]
    most = attack.most_memory
    assert attack.stated == 1.5 * (128 + 64) * MIB, "max_session_memory and max_unauthenticated_memory"
    made = outcome(attack=attack.name, before=0, after_first=20 * MIB, peak=most, after=most)
    assert made.remarks() == []
    made.peak += MIB
    assert made.failures() == [f"took {most // MIB + 1} MiB, more than {most // MIB}"]
    assert ATTACKS["pings"].stated == 0


def test_the_table() -> None:
    text = markdown([outcome()], {"date": "today"})
    assert "| 1.70 (100 → 170) | 25 % | 40 / 50 / 46 |" in text
    assert ATTACKS["slowloris"].answer in text
    assert "- None." in text


def test_every_attack_is_described() -> None:
    for attack in ATTACKS.values():
        assert attack.what and attack.answer


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert [text.split()[0] for text in capsys.readouterr().out.splitlines()] == list(ATTACKS)


def test_an_unknown_attack(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "slowloris,hugs"])
    assert "no attack is called hugs" in capsys.readouterr().err


class FakeCampaign:
    def __init__(self, *arguments: object) -> None:
        pass

    def run(self, attack: Attack) -> AttackOutcome:
        return outcome(attack=attack.name, error="it ended" if attack.name == "retained" else "")


@pytest.mark.parametrize("only", ["", "slowloris"])
def test_a_full_run_is_kept(only: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile, "Campaign", FakeCampaign)
    monkeypatch.setattr(hostile, "build", lambda folder: None)
    monkeypatch.setattr(hostile, "be_urgent", lambda: False)
    (tmp_path / "hostile.md").write_text("# By hand\n")
    file = tmp_path / "out.json"
    arguments = ["--docs", str(tmp_path), "--json", str(file), *(["--only", only] if only else [])]
    assert main(arguments) == (0 if only else 1)
    assert json.loads(file.read_text())["results"][0]["attack"] == "slowloris"
    page = (tmp_path / "hostile.md").read_text()
    assert page.startswith("# By hand\n")
    assert ("| slowloris |" in page) == (not only)
    assert len(list((tmp_path / "results").glob("hostile-*.json"))) == (0 if only else 1)


def test_a_broker_that_ends_is_an_outcome(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def ended(*arguments: object) -> None:
        raise BrokerError("it ended")

    monkeypatch.setattr(hostile, "ground", ended)
    campaign = hostile.Campaign(None, tmp_path, 1, 1.0, "")  # type: ignore[arg-type]
    assert campaign.run(ATTACKS["slowloris"]).failures() == ["it ended"]


def test_a_run_that_was_made_in_parts_is_put_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "hostile.md").write_text("# Hostile clients\n")
    names = list(ATTACKS)
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file, part, load in zip(files, (names[7:], names[:7]), ("0.1", "0.9"), strict=True):
        outcomes = [asdict(outcome(attack=name)) for name in part]
        file.write_text(json.dumps({"machine": {"commit": "c", "load before": load}, "results": outcomes}))
    assert main(["--join", *map(str, files), "--docs", str(tmp_path)]) == 0
    table = (tmp_path / "hostile.md").read_text()
    assert [name for name in names if f"| {name} | " in table] == names and "load before: 0.1, 0.9" in table
    (kept,) = (tmp_path / "results").iterdir()
    assert [each["attack"] for each in json.loads(kept.read_text())["results"]] == names


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([list(ATTACKS)[1:]], "not in any part, or unknown: slowloris"),
        ([list(ATTACKS), ["slowloris"]], "an attack is in two parts"),
        ([[*ATTACKS, "none"]], "not in any part, or unknown: none"),
    ],
)
def test_what_is_not_whole_is_not_put_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], parts: list[list[str]], said: str
) -> None:
    files = []
    for number, part in enumerate(parts):
        files.append(tmp_path / f"{number}.json")
        outcomes = [asdict(outcome(attack=name)) for name in part]
        files[-1].write_text(json.dumps({"machine": {"load before": "0"}, "results": outcomes}))
    with pytest.raises(SystemExit):
        main(["--join", *map(str, files), "--docs", str(tmp_path)])
    assert said in capsys.readouterr().err and not (tmp_path / "hostile.md").exists()
