"""What people do now: a plain subscriber in Python that collects messages and writes Parquet files.

paho-mqtt, QoS 1, a file for every 100,000 messages. It acknowledges a message when it has it in memory, so what it has
not written yet is lost when it dies; it is here for its speed alone.
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


class Subscriber:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written = 0
        self.first = self.last = 0.0
        self._rows: dict[str, list[object]] = {"topic": [], "payload": [], "qos": [], "received": []}

    def on_message(self, client: paho.Client, userdata: object, message: paho.MQTTMessage) -> None:
        self.first = self.first or time.perf_counter()
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
        self.last = time.perf_counter()


def main() -> int:
    port, folder, wanted = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    subscriber = Subscriber(folder)
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id="subscriber")
    client.on_message = subscriber.on_message
    client.on_subscribe = lambda *_: print("subscribed", flush=True)
    client.connect("127.0.0.1", port)
    client.subscribe("fleet/#", 1)
    while subscriber.written + len(subscriber._rows["topic"]) < wanted:
        client.loop(1.0)
    subscriber.flush()
    print(subscriber.written / (subscriber.last - subscriber.first), flush=True)
    client.disconnect()
    return 0


if __name__ == "__main__":
    sys.exit(main())
