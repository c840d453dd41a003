"""A fleet that publishes at a steady rate, in a process of its own: QoS 1, payloads with the moment they were sent.

Theory. Every hundredth of a second, what is due is written to ten connections, as many packets each; acknowledgements
are read and counted. The rate is kept over the whole time, not from tick to tick, so that a late tick is made good.
SIGTERM ends the time early: nothing more is sent, and what was is waited for.
"""

from __future__ import annotations

import argparse
import json
import selectors
import signal
import socket
import sys
import time
from typing import Final

from headwater.wire.encode import encode, encode_publish
from headwater.wire.packets import Connect
from headwater_lab.store_messages import DEVICES, topic_of

LINES: Final = 10
TICK: Final = 0.01
IDS: Final = 60_000
PATIENCE: Final = 30.0
MQTT_3_1_1: Final = 4
_PAYLOAD: Final = '{"device":"sensor-%05d","ts":%d,"value":%d.%02d,"unit":"C","status":"ok","fw":"1.4.2","rssi":-61}'


class Fleet:
    """Connected; `sent` and `acknowledged` count messages."""

    def __init__(self, port: int) -> None:
        self.sent = 0
        self.acknowledged = 0
        self.is_told_to_end = False
        self._bytes = 0
        self._lines = [self._connect(port, number) for number in range(LINES)]
        self._topics = [topic_of(device).encode() for device in range(DEVICES)]
        self._selector = selectors.DefaultSelector()
        for line in self._lines:
            self._selector.register(line, selectors.EVENT_READ)

    def _connect(self, port: int, number: int) -> socket.socket:
        line = socket.create_connection(("127.0.0.1", port), PATIENCE)
        line.sendall(encode(Connect(f"fleet-{number}", keep_alive=0), MQTT_3_1_1))
        line.recv(4, socket.MSG_WAITALL)
        return line

    def send(self, count: int) -> None:
        """So many messages, shared by the connections."""
        now = time.time_ns() // 1_000_000
        packets: list[list[bytes]] = [[] for _ in self._lines]
        for number in range(self.sent, self.sent + count):
            device = number % DEVICES
            payload = (_PAYLOAD % (device, now, number % 90, number % 97)).encode()
            id = number // LINES % IDS + 1
            packets[number % LINES].append(encode_publish(self._topics[device], payload, 2, id, None))
        for line, each in zip(self._lines, packets, strict=True):
            line.sendall(b"".join(each))
        self.sent += count

    def receive(self, seconds: float) -> None:
        """Acknowledgements that come in this time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                assert isinstance(key.fileobj, socket.socket)
                self._bytes += len(key.fileobj.recv(1 << 16))
        self.acknowledged = self._bytes // 4

    def run(self, rate: float, seconds: float) -> None:
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds and not self.is_told_to_end:
            due = int(rate * passed) - self.sent
            if due > 0:
                self.send(due)
            self.receive(TICK)
        deadline = time.monotonic() + PATIENCE
        while self.acknowledged < self.sent and time.monotonic() < deadline:
            self.receive(TICK)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    chosen = parser.parse_args()
    fleet = Fleet(chosen.port)
    signal.signal(signal.SIGTERM, lambda *_: setattr(fleet, "is_told_to_end", True))
    began = time.monotonic()
    fleet.run(chosen.rate, chosen.seconds)
    took = time.monotonic() - began
    print(json.dumps({"sent": fleet.sent, "acknowledged": fleet.acknowledged, "seconds": took}))
    return 0 if fleet.acknowledged == fleet.sent else 1


if __name__ == "__main__":
    sys.exit(main())
