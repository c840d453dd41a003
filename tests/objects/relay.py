"""A relay of TCP between a client and a server, that cuts and delays as a test says."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Relay:
    """Listens on `port`. `hold`: what clients send waits until it is `let_go`. `cut`: connections end. With
    `cut_answers`, so many answers to PUTs are swallowed, each with its connection. Words that are `unheard` arrive as
    others."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._pairs: set[_Pair] = set()
        self._lock = threading.Lock()
        self.flowing = threading.Event()
        self.flowing.set()
        self.held = threading.Event()
        """Something waits."""
        self.cut_answers = 0
        self.unheard: list[bytes] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def hold(self) -> None:
        self.held.clear()
        self.flowing.clear()

    def let_go(self) -> None:
        self.flowing.set()

    def cut(self) -> None:
        with self._lock:
            for each in self._pairs:
                each.cut()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()
        self.cut()
        self.let_go()
        for each in self._pairs:
            each.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._pairs.add(_Pair(self, client, server))


class _Pair:
    """A connection and its other half. Both sockets are closed by `join`, when nobody uses them any more."""

    def __init__(self, relay: Relay, client: socket.socket, server: socket.socket) -> None:
        self._relay = relay
        self._client = client
        self._server = server
        self._is_put = False
        self._threads = [threading.Thread(target=each) for each in (self._up, self._down)]
        for each in self._threads:
            each.start()

    def cut(self) -> None:
        for each in (self._client, self._server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        for each in self._threads:
            each.join()
        self._client.close()
        self._server.close()

    def _up(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._client.recv(1 << 16):
                self._is_put = data.startswith(b"PUT ") or (self._is_put and data[:4] not in (b"GET ", b"HEAD"))
                if not self._relay.flowing.is_set():
                    self._relay.held.set()
                    self._relay.flowing.wait()
                for words in self._relay.unheard:
                    data = data.replace(words, b"x" * len(words))
                self._server.sendall(data)
        self.cut()

    def _down(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(1 << 16):
                if self._is_put and self._relay.cut_answers > 0:
                    self._relay.cut_answers -= 1
                    break
                self._client.sendall(data)
        self.cut()


@contextmanager
def relay(target: int) -> Iterator[Relay]:
    made = Relay(target)
    try:
        yield made
    finally:
        made.close()
