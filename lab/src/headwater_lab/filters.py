"""What conditions on content cost and save: 1,000 subscribers with 100 different conditions. scripts/bench filters

python -m headwater_lab.filters [--quick] [--json FILE] [--command TEMPLATE]

Every subscriber wants a few messages in a hundred. Once the broker evaluates its condition; once it gets everything and
evaluates the same condition itself, on the parsed payload. A process has all subscribers, so what it takes is what they
take together: its time and the broker's are "the whole". One message is sent at a time, paced, so that a message costs
what it costs when it comes alone. Every delivery is counted and has to be the right one.

Then strangers write the worst conditions that they are allowed to, and worse ones, and publish the worst payloads
(filters_hostile.py); the bound is held if somebody else is served in time meanwhile.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import select
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from headwater.fleet.process import RunningBroker
from headwater.wire import FROM_SERVER, PacketReader, decode, encode
from headwater.wire.packets import V5, Connect, Properties, Publish, Subscribe, SubscribeRequest
from headwater_lab import machine
from headwater_lab.contenders import command_from, raise_file_limit, running
from headwater_lab.filters_hostile import Held, attack
from headwater_lab.results import Record, record, write_json

COMMAND: Final = f"{sys.executable} -m headwater broker --port {{port}} --set conditions.enabled=true"
SUBSCRIBERS: Final = 1_000
CONDITIONS: Final = 100
MESSAGES: Final = 400
RATE: Final = 50.0
"""Messages in a second."""
PATIENCE: Final = 60.0
TOPIC: Final = "plant/7/temperature"
LAST: Final = 1000.0
"""The value of the last message, which meets every condition."""
LIMIT: Final = 1 << 20


def threshold(number: int) -> float:
    """Of the condition of a subscriber. Values are spread evenly from 0 to 100: in the mean, one in twenty is above."""
    return 90.0 + 10.0 * (number % CONDITIONS) / CONDITIONS


def condition(number: int) -> str:
    return f"value > {threshold(number)} and unit = 'C'"


def values(count: int) -> list[float]:
    """Evenly spread, in no order, and the same each time."""
    return [round((at * 61.8033988749895) % 100.0, 2) for at in range(count)]


def payload(value: float) -> bytes:
    return json.dumps({"ts": 1769860800, "value": value, "unit": "C", "device": "sensor-7"}).encode()


class Read(NamedTuple):
    """What the subscribers had: messages that came, those that were wanted, bytes, seconds of processor."""

    came: int
    wanted: int
    size: int
    seconds: float


class Measured(NamedTuple):
    """By message: microseconds of the broker's processor, of the subscribers' together, bytes and deliveries."""

    broker: float
    subscribers: float
    size: float
    came: float


# ---- the subscribers ---------------------------------------------------------------------------------------------


def subscribe(port: int, number: int, at_broker: bool) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), PATIENCE)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.sendall(encode(Connect(f"subscriber-{number}", V5), V5))
    properties = Properties(user_properties=[("filter", condition(number))]) if at_broker else None
    made.sendall(encode(Subscribe(1, [SubscribeRequest(TOPIC)], properties), V5))
    reader = PacketReader(LIMIT)
    seen = 0
    while seen < 2:
        data = made.recv(4096)
        if not data:
            raise RuntimeError("the broker ended a connection")
        reader.feed(data)
        for first, body in reader:
            decode(first, body, V5, FROM_SERVER)
            seen += 1
    made.setblocking(False)
    return made


def read(port: int, at_broker: bool, end: Connection) -> None:
    """A process with all subscribers; it says when they are there, and what they had when all have the last message."""
    raise_file_limit()
    sockets = [subscribe(port, number, at_broker) for number in range(SUBSCRIBERS)]
    numbers = {each.fileno(): number for number, each in enumerate(sockets)}
    readers = [PacketReader(LIMIT) for _ in sockets]
    poll = select.epoll()
    for each in sockets:
        poll.register(each, select.EPOLLIN)
    end.send(None)
    began = time.process_time()
    came = wanted = size = ended = 0
    while ended < SUBSCRIBERS:
        ready = poll.poll(PATIENCE)
        if not ready:
            raise RuntimeError("messages are missing")
        for descriptor, _ in ready:
            number = numbers[descriptor]
            data = sockets[number].recv(65536)
            size += len(data)
            reader = readers[number]
            reader.feed(data)
            for first, body in reader:
                packet = decode(first, body, V5, FROM_SERVER)
                if not isinstance(packet, Publish):
                    continue
                came += 1
                content = json.loads(packet.payload)
                is_wanted = content["value"] > threshold(number) and content["unit"] == "C"
                wanted += is_wanted
                ended += content["value"] == LAST
    end.send(Read(came, wanted, size, time.process_time() - began))


# ---- one run -----------------------------------------------------------------------------------------------------


def cpu_seconds(broker: RunningBroker) -> float:
    """Of all its processes, as exactly as the kernel has it."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in broker.pids()) / 1e9


def publish(port: int, count: int) -> None:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as made:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.sendall(encode(Connect("publisher", V5), V5))
        made.recv(4096)
        began = time.monotonic()
        for number, value in enumerate([*values(count), LAST]):
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))
            made.sendall(encode(Publish(TOPIC, payload(value)), V5))


def measure(command: str, at_broker: bool, count: int) -> Measured:
    """A broker and its subscribers, from the first message to the last delivery."""
    with tempfile.TemporaryDirectory() as folder, running(command_from(command), Path(folder)) as broker:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(target=read, args=(broker.port, at_broker, theirs))
        process.start()
        try:
            hear(ours)
            before = cpu_seconds(broker)
            publish(broker.port, count)
            found: Read = hear(ours)
            spent = cpu_seconds(broker) - before
        finally:
            process.terminate()
            process.join()
    messages = count + 1
    check(found, at_broker, count)
    return Measured(
        spent / messages * 1e6, found.seconds / messages * 1e6, found.size / messages, found.came / messages
    )


def hear(end: Connection) -> Read:
    if not end.poll(PATIENCE):
        raise RuntimeError("the subscribers say nothing")
    said: Read = end.recv()
    return said


def check(found: Read, at_broker: bool, count: int) -> None:
    """All that was wanted came; by condition, nothing else."""
    sent = [*values(count), LAST]
    wanted = sum(value > threshold(number) for number in range(SUBSCRIBERS) for value in sent)
    came = wanted if at_broker else SUBSCRIBERS * len(sent)
    if (found.wanted, found.came) != (wanted, came):
        raise RuntimeError(f"{found.came} messages came and {found.wanted} were wanted, instead of {came} and {wanted}")


# ---- figures -----------------------------------------------------------------------------------------------------


def middle(runs: Sequence[Measured]) -> Measured:
    return Measured(*(statistics.median(column) for column in zip(*runs, strict=True)))


def figures(filtered: Measured, everything: Measured, held: Held) -> list[Record]:
    whole = filtered.broker + filtered.subscribers
    whole_of_all = everything.broker + everything.subscribers
    told: list[tuple[str, float, str]] = [
        ("filters/subscribers", SUBSCRIBERS, "subscribers"),
        ("filters/conditions", CONDITIONS, "conditions"),
        ("filters/delivered", filtered.came, "deliveries per message"),
        ("filters/us_per_message", filtered.broker, "µs of the broker"),
        ("filters/us_per_condition", filtered.broker / CONDITIONS, "µs of the broker, deliveries included"),
        ("filters/whole_us_per_message", whole, "µs of broker and subscribers"),
        ("filters/bytes_per_message", filtered.size, "bytes"),
        ("everything/us_per_message", everything.broker, "µs of the broker"),
        ("everything/whole_us_per_message", whole_of_all, "µs of broker and subscribers"),
        ("everything/bytes_per_message", everything.size, "bytes"),
        ("ratio/broker", everything.broker / filtered.broker, "times"),
        ("ratio/whole", whole_of_all / whole, "times"),
        ("ratio/bytes", everything.size / filtered.size, "times"),
        ("hostile/refused", held.refused, "conditions"),
        ("hostile/worst_answer_ms", held.worst * 1000.0, "ms"),
        ("hostile/grown_mib", held.grown / (1 << 20), "MiB"),
        ("hostile/bound_held", float(held.is_held), "1: yes"),
    ]
    return [record(name, None, ours, unit) for name, ours, unit in told]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench filters", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--command", default=COMMAND, help="the broker, with {port}; conditions have to be enabled")
    options = parser.parse_args(words)
    raise_file_limit()
    count, rounds = (MESSAGES // 4, 1) if options.quick else (MESSAGES, 3)
    runs: dict[bool, list[Measured]] = {True: [], False: []}
    for _ in range(rounds):
        for at_broker, found in runs.items():
            found.append(measure(options.command, at_broker, count))
    with tempfile.TemporaryDirectory() as folder, running(command_from(options.command), Path(folder)) as broker:
        held = attack(broker, 2.0 if options.quick else 8.0)
    told = figures(middle(runs[True]), middle(runs[False]), held)
    for each in told:
        print(f"{each['name']:32} {each['ours']:>12} {each['unit']}")
    if options.json:
        described = machine.describe(options.command, mosquitto=False).items()
        rows = [{"name": f"machine/{name}", "paper": None, "ours": text, "unit": "text"} for name, text in described]
        write_json(options.json, [*told, *rows])


if __name__ == "__main__":
    main()
