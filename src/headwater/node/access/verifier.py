"""The program that computes passwords, in a process of its own of the lowest priority; and the computing itself.

Why a process. Argon2 takes 64 MiB and all processors for some 50 ms. In a thread of the broker it would share their
time with the broker's loop as its equal, and a thread of lower priority would be worse: each time that it wants
Python's lock the loop waits until the system lets it run. A process shares neither that lock nor the tables of memory
with the broker, so all that is left is what a processor does, and there the lowest priority gives way.

It is run by its path (`verifying.py`) and imports nothing of Headwater, so that it takes a tenth of the memory and time
that a broker does. A question is two byte strings with their lengths, hash and password; the answer is a byte.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import signal
import sys
from typing import BinaryIO, Final

MOST_ROUNDS: Final = 10_000_000
LOWEST: Final = 19
LENGTH: Final = 4
RIGHT: Final = b"\x01"
WRONG: Final = b"\x00"


def verify(encoded: str, password: bytes) -> bool:
    """Whether this is the password. Slow on purpose."""
    if encoded.startswith("$argon2id$"):
        from argon2.exceptions import InvalidHashError, VerificationError
        from argon2.low_level import Type, verify_secret

        try:
            return verify_secret(encoded.encode(), password, Type.ID)
        except (VerificationError, InvalidHashError):
            return False
    rounds, salt, expected = mosquitto_parts(encoded)
    if rounds:
        found = hashlib.pbkdf2_hmac("sha512", password, salt, rounds, len(expected))
    else:
        found = hashlib.sha512(password + salt).digest()
    return hmac.compare_digest(found, expected)


def is_slow(encoded: str) -> bool:
    """Whether it takes longer to compute than to ask somebody else to."""
    return not encoded.startswith("$6$")


def mosquitto_parts(encoded: str) -> tuple[int, bytes, bytes]:
    """Rounds (0: plain SHA-512), salt and hash; ValueError if it is neither kind."""
    parts = encoded.split("$")
    rounds = 0
    if len(parts) == 5 and parts[:2] == ["", "7"]:
        rounds = int(parts[2])
        if not 1 <= rounds <= MOST_ROUNDS:
            raise ValueError("rounds")
    elif len(parts) != 4 or parts[:2] != ["", "6"]:
        raise ValueError("kind")
    salt = base64.b64decode(parts[-2], validate=True)
    expected = base64.b64decode(parts[-1], validate=True)
    if not salt or len(expected) != 64:
        raise ValueError("length")
    return rounds, salt, expected


def question(encoded: str, password: bytes) -> bytes:
    parts = (encoded.encode(), password)
    return b"".join(len(part).to_bytes(LENGTH, "big") + part for part in parts)


def _part(questions: BinaryIO) -> bytes | None:
    """None: nobody asks any more."""
    head = questions.read(LENGTH)
    if len(head) < LENGTH:
        return None
    size = int.from_bytes(head, "big")
    part = questions.read(size)
    return part if len(part) == size else None


def give_way() -> None:
    """To all other processes, whatever priority this one was started with."""
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, LOWEST)


def main() -> None:
    """Answer until nobody asks any more: the broker has ended, however it did."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from the terminal, for the broker
    give_way()
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    while True:
        encoded = _part(questions)
        password = None if encoded is None else _part(questions)
        if encoded is None or password is None:
            return
        answers.write(RIGHT if verify(encoded.decode(), password) else WRONG)
        answers.flush()


if __name__ == "__main__":
    main()
