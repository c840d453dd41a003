"""The password file: ours and Mosquitto's hashes, lines that are wrong, and how it is written."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
from argon2.low_level import Type, hash_secret
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.access.errors import AccessError
from headwater.node.access.passwords import PasswordFile, hash_password, readable_by_others
from headwater.node.access.verifier import verify

SHA512 = "$6$yDEE/LEAA2T6zh2Z$QEU9tSk+LUgdetrUvEF7jeo7XHhyVtfdCuaFrcU5XXoYtB6cD2OzQkpAIcjmbYaYEwfZGbfaWMdJVXGUh1+EXw=="
PBKDF2 = (
    "$7$101$u3wMo+SI5Jn50SYt$eT8/K2MMSnF903voh3aadjwdgnrzLcOfv1R4j364KEbdJB3EDMuUO/NX1D67T6LUIqLPgpDxs34qnas+TKeAcg=="
)


@pytest.mark.parametrize("encoded", [SHA512, PBKDF2, pytest.param("", id="argon2id")])
def test_each_kind_of_hash_knows_its_password(encoded: str) -> None:
    encoded = encoded or hash_password("secret")
    assert verify(encoded, b"secret")
    for wrong in (b"Secret", b"", b"secret ", b"secre"):
        assert not verify(encoded, wrong)


def test_we_write_argon2id_with_a_salt_of_its_own() -> None:
    one, other = hash_password("x"), hash_password("x")
    assert one.startswith("$argon2id$") and one != other


@pytest.mark.parametrize("algorithm", ["sha512", "sha512-pbkdf2"])
def test_files_of_mosquitto_passwd_are_understood(algorithm: str, tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.touch()
    subprocess.run(["mosquitto_passwd", "-H", algorithm, "-b", str(path), "u", "pässword"], check=True)
    assert verify(PasswordFile.load(str(path)).entries["u"], "pässword".encode())


def test_what_is_saved_can_be_loaded_by_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("old")
    path.chmod(0o644)
    assert readable_by_others(str(path))
    users = PasswordFile({"u": SHA512, "näme with space": PBKDF2})
    users.save(str(path))
    assert PasswordFile.load(str(path)).entries == users.entries
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["users"], "nothing else is left there"


def test_a_file_behind_a_link_is_replaced_not_the_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.touch()
    link.symlink_to(real)
    PasswordFile({"u": SHA512}).save(str(link))
    assert link.is_symlink() and PasswordFile.load(str(real)).entries == {"u": SHA512}


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "users"
    path.write_text(f"u:{SHA512}\n")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(AccessError, match="No space left"):
        PasswordFile({}).save(str(path))
    assert PasswordFile.load(str(path)).entries == {"u": SHA512}
    assert os.listdir(tmp_path) == ["users"]


def test_comments_and_empty_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"# users\n\n u:{SHA512} \n")
    assert PasswordFile.load(str(path)).entries == {"u": SHA512}


@pytest.mark.parametrize("line", ["u", ":x", "u:plain", "u:$6$x", "u:$7$0$AAAA$AAAA", f"u:{SHA512}=", "u:$argon2id$x"])
def test_a_wrong_line_is_named_and_not_shown(line: str, tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"a:{SHA512}\n{line}\n")
    with pytest.raises(AccessError, match="line 2") as caught:
        PasswordFile.load(str(path))
    assert line.partition(":")[2] == "" or line.partition(":")[2] not in str(caught.value)


@pytest.mark.parametrize("user", ["", "a:b", "a\nb", "#a", " a", "a\u2028b"])
def test_names_that_a_line_cannot_hold(user: str) -> None:
    with pytest.raises(AccessError):
        PasswordFile().set(user, "x")


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(AccessError, match="cannot read the password file /nowhere: No such file"):
        PasswordFile.load("/nowhere")


@settings(max_examples=60, deadline=None)
@given(
    password=st.binary(max_size=80),
    other=st.binary(max_size=80),
    salt=st.binary(min_size=8, max_size=40),
    lanes=st.integers(1, 5),
    blocks=st.integers(8, 40),
    passes=st.integers(1, 3),
    size=st.integers(4, 80),
    version=st.sampled_from([16, 19]),
)
def test_one_thread_computes_what_the_library_does(
    password: bytes, other: bytes, salt: bytes, lanes: int, blocks: int, passes: int, size: int, version: int
) -> None:
    encoded = hash_secret(password, salt, passes, blocks * lanes, lanes, size, Type.ID, version).decode()
    assert verify(encoded, password)
    assert verify(encoded, other) == (other == password)


@pytest.mark.parametrize(
    "encoded",
    [
        "$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$",
        "$argon2id$v=19$m=64,t=1,p=1$$YWJjZGVmZ2g",
        "$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$YWJjZGVmZ2h!",
        "$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$YWJjZ",
        "$argon2id$v=19$m=64,t=0,p=1$c2FsdHNhbHQ$YWJjZGVmZ2g",
        "$argon2id$v=19$m=64,t=1,p=0$c2FsdHNhbHQ$YWJjZGVmZ2g",
        "$argon2id$v=19$m=1,t=1,p=1$c2FsdHNhbHQ$YWJjZGVmZ2g",
        "$argon2id$v=19$m=-64,t=1,p=1$c2FsdHNhbHQ$YWJjZGVmZ2g",
        "$argon2id$v=19$m=99999999999,t=1,p=1$c2FsdHNhbHQ$YWJjZGVmZ2g",
        "$argon2id$v=19$t=1,m=64,p=1$c2FsdHNhbHQ$YWJjZGVmZ2g",
        "$argon2id$v=19$m=64,t=1$c2FsdHNhbHQ$YWJjZGVmZ2g",
        "$argon2id$v=77$m=64,t=1,p=1$c2FsdHNhbHQ$YWJjZGVmZ2g",
        "$argon2id$m=64,t=1,p=1$c2FsdHNhbHQ$YWJjZGVmZ2g",
    ],
)
def test_no_password_is_right_for_a_malformed_hash(encoded: str) -> None:
    assert not verify(encoded, b"secret")
