"""Attacks by logging in: what is slow to compute on purpose, asked for by strangers as often as they can.

The broker has a file of users (`passwords` of the ground, below) and takes anonymous clients as well, who are the good
ones that are measured. Attackers come from many addresses of this machine, which are never banned.
"""

from __future__ import annotations

import socket
import time
from itertools import count
from pathlib import Path
from typing import Final

from headwater.wire.encode import encode
from headwater.wire.packets import Connect
from headwater_lab.hostile_field import HOST, PATIENCE, Attack, Crowd, Field

MIB: Final = 1 << 20
ADDRESSES: Final = 50
CROWD: Final = 400
USERS: Final = 500
PASSWORD: Final = "a right password"
WARM_UP: Final = 60.0
V5: Final = 5
CONNACK_REASON: Final = 3
"""Where it stands: behind the packet's type, its length and a byte of flags."""


def write_users(path: Path) -> None:
    """A file of users who all have one password, and one hash."""
    from headwater.node.access.passwords import hash_password

    encoded = hash_password(PASSWORD)
    path.write_text("".join(f"user-{number}:{encoded}\n" for number in range(USERS)))
    path.chmod(0o600)


def login(user: str, password: str) -> bytes:
    return encode(Connect("", V5, username=user, password=password.encode()), V5)


def warm_up(port: int) -> None:
    """Log in twice at a time, so that all processes that compute passwords are there, and have nothing else to do."""
    opened = [socket.create_connection((HOST, port), WARM_UP) for _ in range(2)]
    for number, connection in enumerate(opened):
        connection.sendall(login(f"user-{number}", PASSWORD))
    for connection in opened:
        connection.recv(1024)
        connection.close()


def password_flood(field: Field) -> None:
    """Wrong passwords for users that there are and for others, from many addresses; among them, from an address of its
    own, somebody who knows the right one: each time as another user, so that it has to be computed."""
    numbers = count()

    def opened() -> socket.socket:
        number = next(numbers)
        connection = field.open(source=f"127.0.1.{1 + number % ADDRESSES}")
        field.send(connection, login(f"user-{number % (2 * USERS)}", "a wrong password"))
        return connection

    crowd = Crowd(field, CROWD, opened)
    known = _Known(field)
    while not field.over():
        crowd.fill()
        crowd.tend()
        known.go_on()
        field.pause(0.005)
    known.close()
    crowd.close()
    warm_up(field.port)  # so that nothing of the flood is left: who has gone is not computed


class _Known:
    """Logs in again and again; `logins` and `login_ms` (in all) count how that went."""

    def __init__(self, field: Field) -> None:
        self._field = field
        self._number = 0
        self._connection: socket.socket | None = None
        self._began = 0.0

    def go_on(self) -> None:
        field = self._field
        if self._connection is None:
            self._connection = field.open(source="127.0.2.1")
            field.send(self._connection, login(f"user-{self._number % USERS}", PASSWORD))
            self._number += 1
            self._began = time.monotonic()
            return
        self._connection.setblocking(False)
        try:
            answer = self._connection.recv(1024)
        except BlockingIOError:
            return
        finally:
            self._connection.settimeout(PATIENCE)
        waited = 1000 * (time.monotonic() - self._began)
        succeeded = len(answer) > CONNACK_REASON and answer[CONNACK_REASON] == 0
        field.counts["logins" if succeeded else "refused logins"] += 1
        field.counts["login ms"] += round(waited)
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


ATTACKS: Final = (
    Attack(
        "password-flood",
        "400 logins at a time with wrong passwords, of users and others, from 50 addresses",
        "computed by processes that give way to everything else, address by address in turn; more wait or get 0x89",
        "`access.verify_threads`, `access.max_verifying`, `access.ban_failures`",
        password_flood,
        220 * MIB,
        ("passwords",),
        comes_and_goes=128 * MIB,  # two passwords that are being computed
    ),
)
