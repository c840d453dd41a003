"""What people do now: a plain subscriber in Python that collects messages and writes Parquet files.

paho-mqtt, QoS 1, a file for every 100,000 messages. It acknowledges a message when it has it in memory, so what it has
not written yet is lost when it dies; it is here for its speed alone. What comes faster than it takes it is dropped for
it by the broker when its queue is full, so it ends when nothing has come for a while, and says how much it got.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import paho.mqtt.client as paho
import pyarrow as pa
import pyarrow.parquet as pq
from paho.mqtt.enums import CallbackAPIVersion

AT_ONCE = 100_000
SILENCE = 2.0
"""Seconds without a message after which none will come."""


class Subscriber:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written = 0
        self.first = self.last = 0.0
        self._rows: dict[str, list[object]] = {"topic": [], "payload": [], "qos": [], "received": []}

    def on_message(self, client: paho.Client, userdata: object, message: paho.MQTTMessage) -> None:
        self.last = time.perf_counter()
        self.first = self.first or self.last
        rows = self._rows
        rows["topic"].append(message.topic)
        rows["payload"].append(message.payload)
        rows["qos"].append(message.qos)
        rows["received"].append(time.time_ns() // 1000)
        if len(rows["topic"]) >= AT_ONCE:
            self.flush()

    def flush(self) -> None:
        count = len(self._rows["topic"])
        if count:
            pq.write_table(pa.table(self._rows), self.folder / f"{self.written:012d}.parquet", compression="zstd")
            self.written += count
            for column in self._rows.values():
                column.clear()


def main() -> int:
    port, folder, wanted = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    subscriber = Subscriber(folder)
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id="subscriber")
    client.on_message = subscriber.on_message
    client.on_subscribe = lambda *_: print("subscribed", flush=True)
    client.connect("127.0.0.1", port)
    client.subscribe("fleet/#", 1)
    while not subscriber.first or time.perf_counter() - subscriber.last < SILENCE:
        client.loop(0.1)
    began = time.perf_counter()
    subscriber.flush()
    took = subscriber.last - subscriber.first + time.perf_counter() - began
    print(subscriber.written / took, wanted - subscriber.written, flush=True)
    client.disconnect()
    return 0


if __name__ == "__main__":
    sys.exit(main())
