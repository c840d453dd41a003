"""A TCP balancer as people put before a cluster: each new connection goes to the next node, and it knows no MQTT."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import threading
from collections import Counter
from collections.abc import Iterator


class Balancer:
    """Threads, one for each connection. `taken` is how many connections each node got."""

    def __init__(self, ports: list[int]) -> None:
        self.taken: Counter[int] = Counter()
        self._ports = itertools.cycle(ports)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            port = next(self._ports)
            self.taken[port] += 1
            node = socket.create_connection(("127.0.0.1", port))
            threading.Thread(target=_pass_on, args=(client, node), daemon=True).start()


def _pass_on(client: socket.socket, node: socket.socket) -> None:
    """Both ways, until one of them ends."""
    with client, node, contextlib.suppress(OSError):
        for each in (client, node):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            for one in select.select([client, node], [], [])[0]:
                data = one.recv(1 << 16)
                if not data:
                    return
                (node if one is client else client).sendall(data)


@contextlib.contextmanager
def balancing(ports: list[int]) -> Iterator[Balancer]:
    balancer = Balancer(ports)
    try:
        yield balancer
    finally:
        balancer.close()
