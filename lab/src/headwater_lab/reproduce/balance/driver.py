"""Publisher and members of a trial, in a process of their own.

The publisher is a thread with a blocking socket: it wakes within some 0.1 ms of its deadlines, which an event loop that
is busy with members does not. Members that report are Headwater's client, on one event loop; plain ones are paho's, a
thread each (paho_members).
"""

from __future__ import annotations

import asyncio
import gc
import selectors
import signal
import socket
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from headwater.wire.decode import FROM_SERVER, decode
from headwater.wire.encode import encode
from headwater.wire.framing import PacketReader
from headwater.wire.packets import V5, Connack, Connect, Packet, Publish
from headwater_lab.reproduce.balance.board import Board
from headwater_lab.reproduce.balance.members import Members, ReportingMembers
from headwater_lab.reproduce.balance.plan import Trial
from headwater_lab.reproduce.balance.priority import take_priority
from headwater_lab.reproduce.balance.timetable import Stamp, Taken, write_stamp

TOPIC: Final = "balance/work"
GROUP: Final = "$share/members/" + TOPIC
ARRIVAL_LIMIT: Final = 5.0
"""Seconds after the last message in which all have arrived."""


class Request(NamedTuple):
    """What the parent asks for: a publisher that starts at `begin`, on the machine's monotonic clock. Members connect
    to the same port as the publisher, or each to its own."""

    port: int
    begin: float
    members: tuple[int, ...] = ()


class TrialOutcome(NamedTuple):
    """What came of a trial. `lost` messages were published but never arrived; `scheduling` is what the process got."""

    begin: float
    taken: list[Taken]
    lost: int
    scheduling: str = "ordinary"


class Publisher(threading.Thread):
    """Sends each message at its time. An error is kept for whoever asks."""

    def __init__(self, trial: Trial, request: Request) -> None:
        super().__init__(daemon=True)
        self._trial = trial
        self._begin = request.begin
        self._reader = PacketReader()
        self._socket = socket.create_connection(("127.0.0.1", request.port), 5)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent = 0
        self.error: Exception | None = None
        self._connect()

    def _connect(self) -> None:
        self._socket.sendall(encode(Connect(client_id="publisher", version=V5, keep_alive=0), V5))
        answer = self._receive(0)
        if not (answer and isinstance(answer[0], Connack) and answer[0].reason == 0):
            raise ConnectionError(f"the broker answered {answer!r}")

    def _receive(self, flags: int) -> list[Packet]:
        try:
            self._reader.feed(self._socket.recv(65536, flags))
        except BlockingIOError:
            return []
        return [decode(first, body, V5, FROM_SERVER) for first, body in self._reader]

    def run(self) -> None:
        try:
            for number in range(self._trial.messages):
                created = self._begin + number * self._trial.setting.period
                time.sleep(max(0.0, created - time.monotonic()))
                self._publish(number, created)
        except Exception as error:
            self.error = error

    def _publish(self, number: int, created: float) -> None:
        payload = write_stamp(Stamp(number, created, time.monotonic()))
        message = Publish(TOPIC, payload, self._trial.contender.qos)
        if message.qos:
            message.packet_id = number + 1
        self._socket.sendall(encode(message, V5))
        self.sent += 1
        if message.qos:
            self._receive(socket.MSG_DONTWAIT)  # acknowledgements, which nobody waits for

    def close(self) -> None:
        self._socket.close()


def drive(trial: Trial, board: Path, parent: Connection) -> None:
    """The process: waits for the parent's request, and answers with an outcome, or with what went wrong."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent has it, too, and ends us
    scheduling = take_priority()
    # select() waits to the microsecond, epoll only to the millisecond.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        try:
            request: Request = parent.recv()
            outcome = runner.run(_drive(trial, Board(board, len(trial.setting.services)), request, parent))
            answer: object = outcome._replace(scheduling=scheduling)
        except (EOFError, asyncio.CancelledError):  # the parent has gone
            return
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
    try:
        parent.send(answer)
    except OSError:  # nobody wants to know
        return


async def _drive(trial: Trial, board: Board, request: Request, parent: Connection) -> TrialOutcome:
    me = asyncio.current_task()
    assert me is not None
    asyncio.get_running_loop().add_reader(parent.fileno(), me.cancel)  # the parent says no more: it has ended
    members = _members(trial, board)
    publisher = Publisher(trial, request)
    try:
        ports = list(request.members) or [request.port] * len(trial.setting.services)
        await members.connect("127.0.0.1", ports, GROUP, [request.begin - lead for lead in trial.leads])
        gc.collect()
        gc.freeze()
        gc.disable()
        publisher.start()
        last = request.begin + trial.messages * trial.setting.period
        await asyncio.sleep(last - time.monotonic())
        lost = await _all_there(members, publisher, trial.messages)
        members.hurry()
        taken = await members.finished()
    finally:
        publisher.close()
        await members.close()
        asyncio.get_running_loop().remove_reader(parent.fileno())
    return TrialOutcome(request.begin, sorted(taken), lost)


def _members(trial: Trial, board: Board) -> Members:
    if trial.contender.plain:
        from headwater_lab.reproduce.balance.paho_members import PahoMembers

        return PahoMembers(trial, board)
    return ReportingMembers(trial, board)


async def _all_there(members: Members, publisher: Publisher, count: int) -> int:
    """Wait until all messages have arrived; returns how many have not in time."""
    deadline = time.monotonic() + ARRIVAL_LIMIT
    while members.arrived() < count and time.monotonic() < deadline:
        if publisher.error is not None:
            raise publisher.error
        await asyncio.sleep(0.01)
    return count - members.arrived()
