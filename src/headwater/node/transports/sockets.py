"""Listening sockets: TCP on all addresses of a host, or a Unix socket. Addresses as text."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import sys
from collections.abc import Sequence
from typing import Final

BACKLOG: Final = 1024
EVERYWHERE: Final = "*"
"""A host that stands for all addresses of this machine."""


def is_loopback(host: str) -> bool:
    return host.startswith(("127.", "::ffff:127.")) or host == "::1"


def send_at_once(connection: socket.socket, loopback: bool) -> None:
    """Settings of a TCP socket; those that it accepts inherit them. `loopback`: its other ends are of this machine.

    Packets are small and are not to wait for each other. Between two processes of one machine nothing is congested, so
    the cheapest congestion control does: where BBR is the system's default, Reno takes 3 to 5 % less CPU for a message
    that comes alone (docs/performance.md)."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if loopback and sys.platform == "linux":
        with contextlib.suppress(OSError):  # a system may not allow the choice
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")


def address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen_tcp(host: str, port: int, *, is_shared: bool = False) -> list[socket.socket]:
    """Listening sockets on all addresses of a host, on one port. "localhost" or "*" without IPv6 is no error.

    `is_shared`: other processes of the node listen there, too, and the system spreads connections over all who listen
    (SO_REUSEPORT); the sockets are bound only, and get their part from `listen` on."""
    sockets: list[socket.socket] = []
    failed: OSError | None = None
    for family, kind, protocol, _, found in _addresses(host, port):
        address: tuple[object, ...] = found
        if port == 0 and sockets:
            address = (found[0], sockets[0].getsockname()[1], *found[2:])
        try:
            listener = socket.socket(family, kind, protocol)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if is_shared:
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                if family == socket.AF_INET6 and host != "::":
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                send_at_once(listener, is_loopback(str(address[0])))
                listener.bind(address)
                if not is_shared:
                    listener.listen(BACKLOG)
            except OSError:
                listener.close()
                raise
        except OSError as error:
            failed = error
            if port and error.errno in (errno.EADDRINUSE, errno.EACCES):
                # Half of "localhost" would look like success, and clients would reach somebody else.
                close_all(sockets)
                raise
            continue
        listener.setblocking(False)
        sockets.append(listener)
    if not sockets:
        raise failed or OSError(f"no address for {host}")
    sockets.sort(key=lambda s: s.family != socket.AF_INET)
    return sockets


def _addresses(host: str, port: int) -> Sequence[tuple[int, int, int, str, tuple[object, ...]]]:
    try:
        return socket.getaddrinfo(
            None if host == EVERYWHERE else host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except UnicodeError:  # of a part that is empty or too long
        raise socket.gaierror(socket.EAI_NONAME, "that is no host name") from None


def listen_unix(path: str, mode: int) -> socket.socket:
    """A Unix socket; one that a dead process left at this path is replaced, anything else there is an error."""
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), mode)  # Linux: bind makes the file with no more than this
        listener.bind(path)
        os.chmod(path, mode)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _remove_stale(path: str) -> None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError(errno.EEXIST, "there is a file that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError:
            pass
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def close_all(sockets: list[socket.socket]) -> None:
    for each in sockets:
        path = each.getsockname() if each.family == socket.AF_UNIX else ""
        each.close()
        if path:
            with contextlib.suppress(OSError):
                os.unlink(path)
