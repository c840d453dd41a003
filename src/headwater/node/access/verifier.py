"""The program that computes passwords, in a process of its own of the lowest priority; and the computing itself.

Why a process. Argon2 takes 64 MiB and a processor for more than 0.1 s. In a thread of the broker it would share their
time with the broker's loop as its equal, and a thread of lower priority would be worse: each time that it wants
Python's lock the loop waits until the system lets it run. A process shares neither that lock nor the tables of memory
with the broker, so all that is left is what a processor does, and there the lowest priority gives way.

It gives way at once only while it computes. Inside a call of the system it does not: a kernel without preemption (what
servers mostly have) lets whoever wants the processor wait until the call is over, or comes to a place where it asks. So
a password takes as few of them as can be:

- *One thread*, whatever number of lanes the hash has. The library would start one for each lane, four times in each
  pass: 48 threads for a password of ours, on all cores. The lanes do not depend on each other within a quarter of a
  pass, so one thread computes the same, and one core is left alone.
- *Memory is kept* from one password to the next. Memory that is got anew for each is 16,384 page faults and a page
  zeroed for each of them, a quarter of all the time, and then it is given back, hundreds of pages in a piece. When
  there has been nothing to do for a second it goes back to the system.

It is run by its path (`verifying.py`) and imports nothing of Headwater, so that it takes a tenth of the memory and time
that a broker does. A question is two byte strings with their lengths, hash and password; the answer is a byte.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import ctypes
import hashlib
import hmac
import os
import select
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import BinaryIO, Final

MOST_ROUNDS: Final = 10_000_000
LOWEST: Final = 19
LENGTH: Final = 4
RIGHT: Final = b"\x01"
WRONG: Final = b"\x00"
ARGON: Final = "$argon2id$"
IDLE: Final = 1.0
"""Seconds without a question after which memory goes back to the system."""
M_TRIM_THRESHOLD: Final = -1
M_MMAP_MAX: Final = -4
NEVER_TRIMMED: Final = (1 << 31) - 1


def verify(encoded: str, password: bytes) -> bool:
    """Whether this is the password. Slow on purpose."""
    if encoded.startswith(ARGON):
        return verify_argon(encoded, password)
    rounds, salt, expected = mosquitto_parts(encoded)
    if rounds:
        found = hashlib.pbkdf2_hmac("sha512", password, salt, rounds, len(expected))
    else:
        found = hashlib.sha512(password + salt).digest()
    return hmac.compare_digest(found, expected)


def verify_argon(encoded: str, password: bytes) -> bool:
    """The same of an argon2id hash, `$argon2id$v=19$m=65536,t=3,p=4$salt$hash`, by one thread."""
    from argon2.low_level import Type, core, ffi

    try:
        _, _, version, costs, salt_text, hash_text = encoded.split("$")
        (v, m, t, p) = (_number(part, name) for part, name in zip([version, *costs.split(",")], "vmtp", strict=True))
        salt, expected = _unpadded(salt_text), _unpadded(hash_text)
        found = ffi.new("uint8_t[]", len(expected))
        kept = (ffi.new("uint8_t[]", salt), ffi.new("uint8_t[]", password))  # as long as the context
        context = ffi.new(
            "argon2_context *",
            {"out": found, "outlen": len(expected), "salt": kept[0], "saltlen": len(salt), "pwd": kept[1]}
            | {"pwdlen": len(password), "t_cost": t, "m_cost": m, "lanes": p, "threads": 1, "version": v},
        )
    except (ValueError, OverflowError):
        return False
    if core(context, Type.ID.value):  # numbers that it cannot be, or no memory
        return False
    return hmac.compare_digest(bytes(ffi.buffer(found)), expected)


def _number(part: str, name: str) -> int:
    """Of `name=number`."""
    if not part.startswith(f"{name}=") or not part[2:].isdecimal():
        raise ValueError(name)
    return int(part[2:])


def _unpadded(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError("base64") from error


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


def keep_memory() -> Callable[[], object]:
    """What is freed stays with this process until what is returned is called; both without effect where the C library
    is not GNU's. (By default it gets a large block from the system by itself, and gives it back when it is freed.)"""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, NEVER_TRIMMED)
        return partial(library.malloc_trim, 0)
    return lambda: None


def main() -> None:
    """Answer until nobody asks any more: the broker has ended, however it did."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from the terminal, for the broker
    give_way()
    release = keep_memory()
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    while True:
        # Nobody asks before there is an answer, so nothing is in the buffer.
        if not select.select([questions], [], [], IDLE)[0]:
            release()
            select.select([questions], [], [])
        encoded = _part(questions)
        password = None if encoded is None else _part(questions)
        if encoded is None or password is None:
            return
        answers.write(RIGHT if verify(encoded.decode(), password) else WRONG)
        answers.flush()


if __name__ == "__main__":
    main()
