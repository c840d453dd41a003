"""What a receiving node costs: its memory after load, and how long it takes to start, with TLS for its devices.

Two nodes as anybody starts them, `headwater broker`: a delivery node with a store, and a receiving node with a TLS
listener and a data folder, durability sync, on one core. Memory is what is resident after `CLIENTS` devices have
connected by TLS and had `EACH` messages of QoS 1 acknowledged, while they are still connected, and the most that there
was. The start is the time from the command until a device that connects by TLS has its CONNACK: no start is faster than
that is for a device. It is taken several times, with a data folder that was used before, and the median counts; so is
the CPU time that the node took until then, which does not depend on what else the machine does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from headwater.client import Client
from headwater.fleet.process import BrokerError, RunningBroker, free_port
from headwater.wire.decode import FROM_SERVER, decode
from headwater.wire.encode import encode
from headwater.wire.framing import PacketReader
from headwater.wire.packets import V311, Connack, Connect
from headwater_lab.tls import Certificate

CLIENTS: Final = 200
EACH: Final = 50
PAYLOAD: Final = 200
STARTS: Final = 5
SECRET: Final = "what both nodes know"
ANSWER_LIMIT: Final = 30.0
AGAIN: Final = 0.005
_COMMON: Final = """\
log_level = "warning"
data_dir = "{data}"
durability = "sync"
[cluster]
name = "receiving"
node = "{node}"
host = "127.0.0.1"
port = {link}
join = ["127.0.0.1:{other}"]
secret = "{secret}"
[edge]
name = "north"
roles = ["{role}"]
"""
_DELIVERS: Final = """\
owns = ["plant/#"]
[store]
enabled = true
"""
_TLS: Final = """\
[[listeners]]
host = "127.0.0.1"
port = {port}
[listeners.tls]
certificate = "{certificate}"
key = "{key}"
"""


class Start(NamedTuple):
    """Seconds until a device had its CONNACK, until the node listened, and of CPU time until the former."""

    welcomed: float
    listens: float
    cpu: float


class Pair:
    """A delivery node that runs, and what a receiving node beside it is started with."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._certificate = Certificate.make(folder)
        self._links = free_port(), free_port()
        self.port = free_port()
        """Of the receiving node, with TLS."""
        self.context = ssl.create_default_context(cafile=str(self._certificate.file))
        tls = _TLS.format(port=self.port, certificate=self._certificate.file, key=self._certificate.key)
        self._receiving = self._config("receiving", self._links, tls)
        delivery = self._config("delivery", self._links[::-1], _DELIVERS)
        self._delivery = RunningBroker(_words(delivery, port := free_port()), port, folder / "delivery.log")

    def _config(self, role: str, links: tuple[int, int], more: str) -> Path:
        data = self._folder / role
        fields = {"data": data, "node": role, "link": links[0], "other": links[1], "role": role, "secret": SECRET}
        file = self._folder / f"{role}.toml"
        file.write_text(_COMMON.format(**fields) + more)
        return file

    @contextlib.contextmanager
    def receiving(self) -> Iterator[tuple[RunningBroker, Start]]:
        """It, and what it took until a device had its CONNACK."""
        taskset = shutil.which("taskset")
        one_core = [] if taskset is None else [taskset, "-c", str(min(os.sched_getaffinity(0)))]
        began = time.monotonic()
        words = [*one_core, *_words(self._receiving, free_port())]
        node = RunningBroker(words, self.port, self._folder / "receiving.log")
        try:
            self._wait_for_connack()
            seconds = time.monotonic() - began
            yield node, Start(seconds, node.seconds_to_listen, node.cpu_seconds())
        finally:
            node.stop()

    def _wait_for_connack(self) -> None:
        deadline = time.monotonic() + ANSWER_LIMIT
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if self._is_welcome():
                    return
            time.sleep(AGAIN)
        raise BrokerError(f"no device can connect to the receiving node in {ANSWER_LIMIT:g} s")

    def _is_welcome(self) -> bool:
        reader = PacketReader()
        with (
            socket.create_connection(("127.0.0.1", self.port), ANSWER_LIMIT) as plain,
            self.context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            connection.sendall(encode(Connect("first", V311, True, 0), V311))
            while data := connection.recv(4096):
                reader.feed(data)
                for first, body in reader:
                    packet = decode(first, body, V311, FROM_SERVER)
                    return isinstance(packet, Connack) and packet.reason == 0
        return False

    def stop(self) -> None:
        self._delivery.stop()


def _words(config: Path, port: int) -> list[str]:
    return [sys.executable, "-m", "headwater", "broker", "--config", str(config), "--port", str(port)]


async def _load(port: int, context: ssl.SSLContext, node: RunningBroker, devices: int, each: int) -> int:
    """Resident bytes while all devices are connected, after all is acknowledged."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(Client("127.0.0.1", port, tls=context, client_id=f"device-{number}"))
            for number in range(devices)
        ]
        for turn in range(each):
            await asyncio.gather(
                *(
                    client.publish(f"plant/{number}/reading", b"%d" % (turn % 10) * PAYLOAD, qos=1)
                    for number, client in enumerate(clients)
                )
            )
        return node.resident_bytes()


def measure(folder: Path, devices: int = CLIENTS, each: int = EACH, starts: int = STARTS) -> dict[str, Any]:
    """Figures, and what they were taken with."""
    pair = Pair(folder)
    try:
        with pair.receiving() as (node, _):
            resident = asyncio.run(_load(pair.port, pair.context, node, devices, each))
            peak = node.peak_bytes()
        taken = []
        for _ in range(starts):
            with pair.receiving() as (_, start):
                taken.append(start)
    finally:
        pair.stop()
    return {
        "figures": {
            "receiving/rss_mb": round(resident / 1e6, 1),
            "receiving/peak_mb": round(peak / 1e6, 1),
            "receiving/start_ms": round(1000 * median(each.welcomed for each in taken), 1),
            "receiving/listens_ms": round(1000 * median(each.listens for each in taken), 1),
            "receiving/start_cpu_ms": round(1000 * median(each.cpu for each in taken), 1),
        },
        "devices with TLS": devices,
        "messages": devices * each,
        "starts in s": [round(each.welcomed, 3) for each in taken],
        "failures": [],
    }
