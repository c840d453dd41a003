"""Plain members: paho-mqtt as anybody would use it for a worker: QoS 1, the work in `on_message`.

paho calls `on_message` in its network loop and makes the PUBACK when that returns. So a worker that does its work in
there acknowledges after processing, without knowing about it, and reads nothing from its socket meanwhile: messages
that wait are in the kernel's buffer.

There are two ways to run that loop. `loop_forever`, the way of a program that does nothing else, sends the PUBACK at
once. `loop_start`, which runs it in a thread of paho's own, puts the PUBACK into a queue, and if another message is
there already, reads and processes that before it writes what is in the queue. So under load acknowledgements come late,
two at a time.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib
import struct
import termios
import threading
import time
from typing import Any

from headwater_lab.reproduce.balance.board import Board, Slot, client_id
from headwater_lab.reproduce.balance.plan import Trial
from headwater_lab.reproduce.balance.timetable import Taken, Work, read_stamp

CONNECT_LIMIT = 10.0


class PahoMembers:
    def __init__(self, trial: Trial, board: Board) -> None:
        self._each = [
            PahoMember(number, service, board, trial.contender.threaded)
            for number, service in enumerate(trial.setting.services)
        ]

    async def connect(self, host: str, ports: list[int], filter: str, times: list[float]) -> None:
        for at, port, member in sorted(zip(times, ports, self._each, strict=True), key=lambda each: each[0]):
            await asyncio.sleep(at - time.monotonic())
            member.connect(host, port, filter)
        for member in self._each:
            await asyncio.to_thread(member.wait_until_subscribed)

    def arrived(self) -> int:
        return sum(len(member.work.taken) for member in self._each)

    def hurry(self) -> None:
        """What waits for these is in the sockets, so it has to be waited for: `arrived` counts what was taken."""

    async def finished(self) -> list[Taken]:
        return [taken for member in self._each for taken in member.work.taken]

    async def close(self) -> None:
        for member in self._each:
            await asyncio.to_thread(member.close)


class PahoMember:
    def __init__(self, number: int, service: float, board: Board, threaded: bool) -> None:
        self.work = Work(number, service)
        self._board = board
        self._waited = False
        self._subscribed = threading.Event()
        self._filter = ""
        paho: Any = importlib.import_module("paho.mqtt.client")
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=client_id(number), protocol=paho.MQTTv5)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message
        self._thread = None if threaded else threading.Thread(target=self._client.loop_forever, daemon=True)
        self._board.write(number, Slot(0.0, 0, service))

    def connect(self, host: str, port: int, filter: str) -> None:
        self._filter = filter
        self._client.connect(host, port)
        if self._thread is None:
            self._client.loop_start()
        else:
            self._thread.start()

    def _on_connect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        client.subscribe(self._filter, qos=1)

    def _on_subscribe(self, client: Any, userdata: Any, mid: Any, reasons: Any, properties: Any) -> None:
        self._subscribed.set()

    def wait_until_subscribed(self) -> None:
        if not self._subscribed.wait(CONNECT_LIMIT):
            raise ConnectionError("a paho member was not subscribed in time")

    def _on_message(self, client: Any, userdata: Any, message: Any) -> None:
        work = self.work
        until = work.begin(read_stamp(message.payload), time.monotonic(), self._waited)
        self._board.write(work.member, Slot(until, len(work.taken), work.service))
        time.sleep(max(0.0, until - time.monotonic()))
        connection = client.socket()
        self._waited = connection is not None and _readable_bytes(connection) > 0

    def close(self) -> None:
        self._client.disconnect()
        if self._thread is None:
            self._client.loop_stop()
        elif self._thread.ident is not None:
            self._thread.join(CONNECT_LIMIT)


def _readable_bytes(connection: Any) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(connection, termios.FIONREAD, b"\0\0\0\0"))
    return int(count)
