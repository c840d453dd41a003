"""`headwater check-broker`: what is asked for, and how it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater_lab.check_broker.connection import Target, parse_target
from headwater_lab.check_broker.faults import FaultCommands, parse_faults
from headwater_lab.check_broker.promises import WORDS, Promise, parse_promises
from headwater_lab.cli.check_broker import check_broker


@pytest.mark.parametrize(
    ("text", "target"),
    [("host:1884", Target("host", 1884)), ("host", Target("host", 1883)), ("[::1]:1884", Target("::1", 1884))],
)
def test_targets(text: str, target: Target) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize("text", ["host:", ":1", "host:0", "host:65536", "host:x", ""])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(ValueError, match="is no host:port"):
        parse_target(text)


def test_every_promise_has_words() -> None:
    assert set(WORDS) == set(Promise)


def test_profiles_and_changes() -> None:
    profile, of_one = parse_promises("standard", 1)
    assert profile == "standard"
    assert Promise.RETAINED_LINEARIZABLE in of_one
    assert Promise.WILL_IN_FAULTS not in of_one
    _, of_several = parse_promises("standard", 3)
    assert Promise.RETAINED_LINEARIZABLE not in of_several
    assert Promise.RETAINED_CONVERGES in of_several
    profile, changed = parse_promises("per-node,+retained-linearizable,-order", 3)
    assert profile == "per-node"
    assert Promise.RETAINED_LINEARIZABLE in changed
    assert not {Promise.ORDER, Promise.RETAINED_CONVERGES} & changed
    assert parse_promises("-order", 1)[0] == "standard"


def test_faults_of_options_and_file(tmp_path: Path) -> None:
    file = tmp_path / "faults.toml"
    file.write_text('[fault.stop]\nstart = "kill -STOP 1"\nheal = "kill -CONT 1"\n[fault.reset]\nstart = "true"\n')
    assert parse_faults(["kill=kill -9 $(cat pid)"], ["kill=./start --fast=1"], file) == [
        FaultCommands("stop", "kill -STOP 1", "kill -CONT 1"),
        FaultCommands("reset", "true"),
        FaultCommands("kill", "kill -9 $(cat pid)", "./start --fast=1"),
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[fault.stop]\nheal = 'true'\n", "needs tables [fault.NAME]"),
        ("[fault.stop]\nstart = 1\n", "needs tables [fault.NAME]"),
        ("[fault.stop]\nstart = 'true'\nafter = 'true'\n", "needs tables [fault.NAME]"),
        ("[", "cannot read"),
    ],
)
def test_a_wrong_file_of_faults(content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "faults.toml"
    file.write_text(content)
    with pytest.raises(ValueError) as error:
        parse_faults([], [], file)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--target", "host:"], "'host:' is no host:port."),
        (["--target", ","], "--target names no broker."),
        (["--target", "host", "--fault", "kill"], "'kill' is not NAME=COMMAND."),
        (["--target", "host", "--heal", "kill=true"], "there is no --fault kill=… for --heal kill."),
        (["--target", "host", "--promise", "+everything"], "'+everything' is no promise; there are the profiles"),
        (["--target", "host", "--mqtt", "4"], "--mqtt is auto, 5 or 3, not '4'."),
        (["--target", "host", "--json", "/nowhere/x.json"], "/nowhere is no folder: make it before."),
    ],
)
def test_what_cannot_be_run_is_told_in_a_sentence(words: list[str], said: str) -> None:
    done = CliRunner().invoke(check_broker, words)
    assert (done.exit_code, done.output.startswith(f"headwater check-broker: {said}")) == (2, True), done.output


def test_without_a_target_it_says_what_is_missing() -> None:
    done = CliRunner().invoke(check_broker, [])
    assert (done.exit_code, "--target" in done.output) == (2, True)
