"""`headwater passwd`, as a process and as people call it."""

from __future__ import annotations

import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.node.access.passwords import PasswordFile
from headwater.node.access.verifier import verify

Ran = subprocess.CompletedProcess[str]


def passwd(*arguments: str, given: str = "") -> Ran:
    return subprocess.run(
        [sys.executable, "-m", "headwater", "passwd", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def users(path: Path) -> dict[str, str]:
    return PasswordFile.load(str(path)).entries


def test_users_come_change_and_go(tmp_path: Path) -> None:
    path = tmp_path / "users"
    assert passwd(str(path), "alice", given="first\n").returncode == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert passwd("-b", str(path), "bob", "second").returncode == 0
    assert passwd(str(path), "alice", given="third").returncode == 0
    found = users(path)
    assert list(found) == ["alice", "bob"]
    assert verify(found["alice"], b"third") and verify(found["bob"], b"second")
    assert not verify(found["alice"], b"first")
    listed = passwd("--list", str(path))
    assert listed.stdout == "alice\nbob\n" and listed.stderr == ""
    assert passwd("-D", str(path), "alice").returncode == 0
    assert list(users(path)) == ["bob"]
    assert passwd("-c", "-b", str(path), "carol", "x").returncode == 0
    assert list(users(path)) == ["carol"]


def test_mosquittos_users_are_taken_over(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.touch()
    subprocess.run(["mosquitto_passwd", "-b", str(theirs), "old", "secret"], check=True)
    assert passwd("-b", str(ours), "new", "x").returncode == 0
    assert passwd("--import", str(theirs), str(ours)).returncode == 0
    found = users(ours)
    assert list(found) == ["new", "old"] and verify(found["old"], b"secret")
    assert passwd("-b", str(ours), "old", "secret").returncode == 0
    assert users(ours)["old"].startswith("$argon2id$")


@pytest.mark.parametrize(
    ("arguments", "given", "part"),
    [
        (["{file}"], "", "which user?"),
        (["{file}", "u", "secret"], "", "needs -b"),
        (["-b", "{file}", "u"], "", "needs one"),
        (["{file}", "u"], "\n", "the password is empty"),
        (["-D", "{file}", "u"], "", "No such file"),
        (["-D", "{file}"], "", "which user?"),
        (["--list", "{file}", "u"], "", "for all users"),
        (["--list", "-D", "{file}"], "", "only one of"),
        (["{file}", "a:b"], "x\n", "must not"),
        (["-b", "/nowhere/users", "u", "x"], "", "cannot write"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments: list[str], given: str, part: str, tmp_path: Path) -> None:
    ran = passwd(*(each.format(file=tmp_path / "users") for each in arguments), given=given)
    assert ran.returncode == 1
    assert ran.stderr.startswith("headwater passwd: ") and ran.stderr.count("\n") == 1
    assert part in ran.stderr
    assert os.listdir(tmp_path) == []


def test_a_user_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "users"
    passwd("-b", str(path), "u", "x")
    ran = passwd("-D", str(path), "v")
    assert ran.returncode == 1 and "there is no user 'v'" in ran.stderr
    assert list(users(path)) == ["u"]


@pytest.mark.parametrize(("second", "made"), [(b"secret", True), (b"other", False)])
def test_a_terminal_is_asked_twice_and_shows_nothing(second: bytes, made: bool, tmp_path: Path) -> None:
    path = tmp_path / "users"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "headwater", "passwd", str(path), "u"])
    seen = b""
    for question, answer in ((b"Password: ", b"secret"), (b"Again: ", second)):
        while not seen.endswith(question):
            seen += os.read(terminal, 1024)
        os.write(terminal, answer + b"\n")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert b"secret" not in seen
    assert os.waitstatus_to_exitcode(status) == (0 if made else 1)
    assert path.exists() is made
