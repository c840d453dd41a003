"""Whole runs against real brokers, with faults by shell commands as users give them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from headwater_lab.check_broker.connection import Target
from headwater_lab.check_broker.contestants import Node, nats_cluster, one_headwater, one_mosquitto, running
from headwater_lab.check_broker.faults import FaultCommands
from headwater_lab.check_broker.history import History, Oddity
from headwater_lab.check_broker.outcome import BROKEN, CANNOT_RUN, KEPT, Outputs, check_and_report
from headwater_lab.check_broker.promises import parse_promises
from headwater_lab.check_broker.run import Settings, run
from tests.brokers import find_mosquitto, free_port

pytestmark = pytest.mark.slow


def check(settings: Settings, outputs: Outputs | None = None) -> int:
    promises = parse_promises("standard", len(settings.targets))
    return asyncio.run(check_and_report(settings, *promises, outputs or Outputs()))


def kills(nodes: list[Node]) -> list[FaultCommands]:
    return [fault for node in nodes for fault in node.faults(["kill"])]


def forgetful_headwater(folder: Path) -> list[Node]:
    """Without a data folder."""
    nodes = one_headwater(folder)
    place = nodes[0].words.index("--data-dir")
    del nodes[0].words[place : place + 2]
    return nodes


def test_mosquitto_keeps_its_promises_in_calm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    find_mosquitto()
    file = tmp_path / "outcome.json"
    with running(one_mosquitto(""), tmp_path) as nodes:
        assert check(Settings((nodes[0].target,), seconds=3.0), Outputs(json=file)) == KEPT
    assert "Nothing that is promised was seen broken." in capsys.readouterr().out
    outcome = json.loads(file.read_text())
    assert (outcome["outcome"], outcome["violations"], outcome["features"]["mqtt"]) == ("kept", 0, "5.0")
    looked_at = {each["name"]: each["looked_at"] for each in outcome["promises"]}
    assert min(looked_at[name] for name in ("acknowledged", "once", "order", "session", "group", "will")) > 0


def test_a_node_with_a_data_folder_keeps_them_through_kills(tmp_path: Path) -> None:
    file = tmp_path / "outcome.json"
    with running(one_headwater, tmp_path) as nodes:
        settings = Settings(
            (nodes[0].target,), seconds=5.0, faults=kills(nodes), fault_every=1.2, fault_lasts=0.5, seed=3
        )
        assert check(settings, Outputs(json=file)) == KEPT
    outcome = json.loads(file.read_text())
    assert {fault["outcome"] for fault in outcome["faults"]} == {"ok"}


def test_a_node_without_one_is_caught_and_the_page_shows_when(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = Outputs(html=tmp_path / "page.html", history=tmp_path / "history.ndjson", show=1)
    with running(forgetful_headwater, tmp_path) as nodes:
        settings = Settings(
            (nodes[0].target,), seconds=4.0, faults=kills(nodes), fault_every=1.2, fault_lasts=0.5, settle=1.0
        )
        assert check(settings, outputs) == BROKEN
    said = capsys.readouterr().out
    assert "BROKEN session. Promised: a session with subscriptions is there" in said
    assert "session present 0" in said
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") > 1
    assert "kill-a" in page
    lines = [json.loads(line) for line in (tmp_path / "history.ndjson").read_text().splitlines()]
    assert {"Connect", "Publication", "Delivery", "Subscription", "Fault", "Ended", "Read", "Phase"} <= {
        line["kind"] for line in lines
    }


def test_nodes_that_do_not_know_each_other_are_no_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(one_headwater, tmp_path / "one") as one, running(one_headwater, tmp_path / "other") as other:
        settings = Settings((one[0].target, other[0].target), seconds=3.0, settle=2.0)
        assert check(settings) == BROKEN
    assert "BROKEN acknowledged." in capsys.readouterr().out


def test_a_fault_that_fails_ends_the_run_with_its_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faults = [FaultCommands("cut", "echo no such link >&2; exit 3")]
    with running(one_headwater, tmp_path) as nodes:
        assert check(Settings((nodes[0].target,), seconds=3.0, faults=faults, fault_every=0.1)) == CANNOT_RUN
    said = capsys.readouterr().err
    assert "headwater check-broker: fault cut: its start command failed with status 3: no such link" in said


def test_a_full_history_ends_the_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(one_headwater, tmp_path) as nodes:
        settings = Settings((nodes[0].target,), seconds=1.0, limit=60)
        recorded = asyncio.run(run(settings, lambda line: None))
    assert recorded.history.full
    assert len(recorded.history.entries) <= 60 * 2  # what was under way is finished


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(Settings((Target("127.0.0.1", free_port()),), wait=0.3)) == CANNOT_RUN
    assert "does not accept MQTT clients" in capsys.readouterr().err


def test_observations_beyond_the_bound_are_counted() -> None:
    history = History(limit=8)
    for _ in range(12):
        history.observe(Oddity(text="one more"))
    assert (len(history.entries), history.dropped, history.full, history.overflowed) == (10, 2, True, True)


def test_a_nats_cluster_is_checked_with_what_it_offers(tmp_path: Path) -> None:
    """With the outcome as it is: this shows that another make, without MQTT 5.0 and QoS 2, can be checked."""
    find_mosquitto("nats-server")
    file = tmp_path / "outcome.json"
    with running(nats_cluster, tmp_path) as nodes:
        settings = Settings((nodes[0].target,), seconds=2.0, settle=1.0, wait=30.0)
        assert check(settings, Outputs(json=file)) in (KEPT, BROKEN)
    outcome = json.loads(file.read_text())
    assert (outcome["features"]["mqtt"], outcome["features"]["qos"]) == ("3.1.1", 1)
    assert {each["name"]: each["status"] for each in outcome["promises"]}["once"] == "not checked"
