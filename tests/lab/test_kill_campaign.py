"""The frame of campaigns that kill: seeds, folders, sums, the result file, the exit status."""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater_lab import kill_campaign
from headwater_lab.kill_campaign import EpisodeOutcome, KillCampaign, Part, cut_places, parser

Episode = Callable[[int, Path, int], EpisodeOutcome]


def arguments(folder: Path, *words: str) -> Namespace:
    options = parser("frame", "", kills=5, of="of it", per_episode=2, on="folder")
    return options.parse_args(["--keep", str(folder / "kept"), "--seed", "7", *words])


def part(episode: Episode, **more: Any) -> Part:
    facts = {"episodes": 0}
    return Part(
        "it", episode, lambda totals: "all well", lambda totals: {**facts, "n": totals.episodes}, ("lost",), **more
    )


def ended(seed: int, folder: Path, kills: int) -> EpisodeOutcome:
    (folder / "data").touch()
    outcome = EpisodeOutcome(seed, Counter({"random": kills}), counts=Counter(sent=3))
    outcome.waited("recovery", seed)
    outcome.waited("recovery", 1.0)
    return outcome


def failed(seed: int, folder: Path, kills: int) -> EpisodeOutcome:
    outcome = ended(seed, folder, kills)
    outcome.wrong = ["lost: a message: the first"] if seed == 8 else []
    return outcome


def test_episodes_have_consecutive_seeds_and_as_many_kills_as_are_left(tmp_path: Path) -> None:
    seen = []

    def episode(seed: int, folder: Path, kills: int) -> EpisodeOutcome:
        seen.append((seed, folder.name, kills))
        return ended(seed, folder, kills)

    campaign = KillCampaign("frame", "it", arguments(tmp_path), 1000)
    campaign.kill(part(episode))
    assert seen == [(7, "seed-7", 2), (8, "seed-8", 2), (9, "seed-9", 1)]
    assert campaign.end() == 0
    assert list((tmp_path / "kept" / "it").iterdir()) == []


def test_what_failed_is_kept_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    campaign = KillCampaign("frame", "it", arguments(tmp_path, "--json", str(tmp_path / "result")), 1000)
    campaign.kill(part(failed), tmp_path / "here")
    campaign.keep("log cut", {"failures": []})
    assert campaign.end() == 1
    assert [each.name for each in (tmp_path / "here").iterdir()] == ["seed-8"]
    result = json.loads((tmp_path / "result").read_text())
    assert list(result) == ["machine", "it", "log cut"]
    assert {"date", "commit", "cpu"} < result["machine"].keys()
    assert result["machine"]["command"] == "it"
    assert list(result["it"]) == ["kills", "episodes", "n", "violations", "seconds", "failures"]
    assert (result["it"]["kills"], result["it"]["n"]) == (5, 3)
    assert result["it"]["violations"] == {"lost": 1}
    assert result["it"]["failures"] == ["seed 8: lost: a message: the first"]
    said = capsys.readouterr()
    assert "     4 kills, all well, 1 lost" in said.out
    assert "    seed 8: lost: a message: the first" in said.out
    assert str(tmp_path / "kept") in said.err


def test_what_is_known_is_kept_before_the_end(tmp_path: Path) -> None:
    def episode(seed: int, folder: Path, kills: int) -> EpisodeOutcome:
        if seed == 8:
            raise KeyboardInterrupt
        return ended(seed, folder, kills)

    campaign = KillCampaign("frame", "it", arguments(tmp_path, "--json", str(tmp_path / "result")), 1000)
    with pytest.raises(KeyboardInterrupt):
        campaign.kill(part(episode))
    assert json.loads((tmp_path / "result").read_text())["it"]["kills"] == 2


def test_one_that_fails_before_any_kill_is_the_last(tmp_path: Path) -> None:
    seeds = []

    def episode(seed: int, folder: Path, kills: int) -> EpisodeOutcome:
        seeds.append(seed)
        return EpisodeOutcome(seed, wrong=["stuck: it does not start"])

    campaign = KillCampaign("frame", "it", arguments(tmp_path), 1000)
    campaign.kill(part(episode))
    assert seeds == [7]
    assert campaign.end() == 1


@pytest.mark.parametrize(("at_least", "episodes"), [(0, []), (1, [0])])
def test_no_kills(at_least: int, episodes: list[int], tmp_path: Path) -> None:
    seen = []

    def episode(seed: int, folder: Path, kills: int) -> EpisodeOutcome:
        seen.append(kills)
        return EpisodeOutcome(seed)

    KillCampaign("frame", "it", arguments(tmp_path, "--kills", "0"), 1000).kill(part(episode, at_least=at_least))
    assert seen == episodes


def test_other_ends_can_count(tmp_path: Path) -> None:
    seen = []

    def episode(seed: int, folder: Path, kills: int) -> EpisodeOutcome:
        seen.append(kills)
        return EpisodeOutcome(seed, counts=Counter(stops=kills))

    campaign = KillCampaign("frame", "it", arguments(tmp_path), 1000)
    campaign.kill(part(episode, ends=lambda totals: totals.counts["stops"]))
    assert seen == [2, 2, 1]


def test_sums(tmp_path: Path) -> None:
    totals = kill_campaign.Totals()
    for seed in (3, 2):
        totals.add(failed(seed, tmp_path, 4))
    assert totals.kills == {"random": 8}
    assert totals.counts == {"sent": 6}
    assert totals.longest == {"recovery": 3}


@pytest.mark.parametrize(("kills", "files"), [("3", 0), ("4", 1)])
def test_a_whole_run_has_its_place_among_the_results(
    kills: str, files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kill_campaign, "RESULTS", tmp_path / "results")
    (tmp_path / "results").mkdir()
    KillCampaign("frame", "it", arguments(tmp_path, "--kills", kills), 4).kill(part(ended))
    assert len(list((tmp_path / "results").glob("frame-20*-*-*.json"))) == files


@given(st.integers(0, 300), st.integers(2, 400), st.integers())
def test_a_log_is_cut_at_both_ends_and_between(size: int, cuts: int, seed: int) -> None:
    places = cut_places(size, cuts, seed)
    assert places == sorted(set(places))
    assert {0, size} <= set(places) <= set(range(size + 1))
    assert len(places) <= max(cuts, 1) or places == list(range(size + 1))
    assert cut_places(size, 0, seed) == list(range(size + 1))
