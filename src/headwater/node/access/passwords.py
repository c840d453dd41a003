"""A file of users and hashes of their passwords: one line each, `user:hash`.

Three kinds of hashes are understood. `$argon2id$…` is what we write. `$7$rounds$salt$hash` (PBKDF2 with SHA-512) and
`$6$salt$hash` (SHA-512 of password and salt) are Mosquitto's: a hash cannot be turned into another kind, so they are
verified as they are until the password is set anew. Verifying argon2id is meant to cost time and memory (0.12 s,
64 MiB); other processes do it (verifier.py).
"""

from __future__ import annotations

import binascii
import contextlib
import os
import tempfile
from pathlib import Path
from typing import Final

from headwater.node.access.errors import AccessError, read_text
from headwater.node.access.verifier import mosquitto_parts

OTHERS: Final = 0o077
ARGON: Final = "$argon2id$"


class PasswordFile:
    def __init__(self, entries: dict[str, str] | None = None) -> None:
        self.entries: dict[str, str] = {} if entries is None else entries
        hashes = self.entries.values()
        self.typical = next((each for each in hashes if each.startswith(ARGON)), next(iter(hashes), ""))
        """What an unknown user's password is compared with, so that it takes as long as a known one's."""

    @classmethod
    def load(cls, path: str) -> PasswordFile:
        """Read a file; AccessError names the line that is wrong, never what stands there."""
        entries: dict[str, str] = {}
        for number, raw in enumerate(read_text(path, "password file").splitlines(), 1):
            line = raw.strip()
            if not line or line.startswith("#"):
                continue
            user, colon, encoded = line.partition(":")
            if not colon or not user or not is_known(encoded):
                raise AccessError(
                    f"{path}, line {number}: not a user and a hash that is known; set it with `headwater passwd`"
                )
            entries[user] = encoded
        return cls(entries)

    def save(self, path: str) -> None:
        """Replace the file as a whole, readable by its owner alone."""
        target = Path(os.path.realpath(path))
        text = "".join(f"{user}:{encoded}\n" for user, encoded in self.entries.items())
        try:
            descriptor, written = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # mode 0600
        except OSError as error:
            raise AccessError(f"cannot write beside {path}: {error.strerror}") from error
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(written, target)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(written)
            raise AccessError(f"cannot write {path}: {error.strerror}") from error

    def set(self, user: str, password: str) -> None:
        check_user(user)
        self.entries[user] = hash_password(password)


def check_user(user: str) -> None:
    """AccessError if a line of the file could not hold this name."""
    if not user or ":" in user or user.startswith("#") or user != user.strip() or len(user.splitlines()) != 1:
        raise AccessError(
            "a user name must not be empty, hold ':' or line ends, begin with '#' or have spaces around it"
        )


def readable_by_others(path: str) -> bool:
    return bool(os.stat(path).st_mode & OTHERS)


def is_known(encoded: str) -> bool:
    """Whether this is a hash that can be verified."""
    if encoded.startswith(ARGON):
        return encoded.count("$") == 5
    try:
        mosquitto_parts(encoded)
    except (ValueError, binascii.Error):
        return False
    return True


def hash_password(password: str) -> str:
    from argon2 import PasswordHasher

    return PasswordHasher().hash(password)
