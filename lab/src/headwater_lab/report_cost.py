"""What a status report costs the broker: CPU time per report, with one group of members that report at a fixed rate.

python -m headwater_lab.report_cost [--quick] [--json FILE] [--command TEMPLATE]

The members' clocks are spread evenly, so that at low rates each report wakes the broker up: the dearest way for them to
come. A plain PINGREQ at the same rate shows how much of it is waking up, reading and answering.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from headwater.client.ping import StatusPingSender
from headwater.fleet.process import RunningBroker
from headwater.wire.encode import encode
from headwater.wire.packets import V5, Connect, Pingreq, Properties, Subscribe, SubscribeRequest
from headwater.wire.status import StatusReport, consent, encode_status
from headwater_lab import machine
from headwater_lab.contenders import headwater_command, raise_file_limit, running
from headwater_lab.results import write_json

COMMAND: Final = f"{sys.executable} -m headwater broker --port {{port}} --config {{config}}"
MEMBERS: Final = 1_000
RATES: Final = (0.1, 1.0, 5.0, 15.0)  # reports per second and member; a broker allows 20


def _join(port: int, number: int) -> socket.socket:
    """A member of the group that may report."""
    member = socket.create_connection(("127.0.0.1", port), 10)
    member.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    properties = Properties(user_properties=[consent(10_000)])
    member.sendall(encode(Connect(f"member-{number}", V5, properties=properties), V5))
    if consent(0)[0].encode() not in member.recv(4096):
        raise RuntimeError("the broker does not grant status reports")
    member.sendall(encode(Subscribe(1, [SubscribeRequest("$share/group/topic")]), V5))
    member.recv(4096)
    member.setblocking(False)
    return member


def _report(turn: int) -> bytes:
    sender = StatusPingSender()
    sender.waiting = turn % 5
    sender.processed(0.020 + 0.001 * (turn % 7))
    return encode_status(StatusReport(sender.payload()))


def _cpu_seconds(broker: RunningBroker) -> float:
    """Of all its processes, as exactly as the kernel has it."""
    spent = 0
    for pid in broker.pids():
        spent += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    return spent / 1e9


def _send(members: Sequence[socket.socket], packets: Sequence[bytes], rate: float, seconds: float) -> int:
    """Each member sends `rate` packets in a second, one after the other; returns how many were sent."""
    gap = 1.0 / (rate * len(members))
    began = time.monotonic()
    count = 0
    while True:
        due = began + count * gap
        now = time.monotonic()
        if now - began >= seconds:
            return count
        if now < due:
            time.sleep(due - now)
        member = members[count % len(members)]
        with contextlib.suppress(BlockingIOError):
            member.recv(4096)  # the answers to the ones before
        member.send(packets[(count // len(members)) % len(packets)])
        count += 1


@contextlib.contextmanager
def _group(command: str) -> Iterator[tuple[RunningBroker, list[socket.socket]]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        running(headwater_command(command, "adaptive"), Path(folder)) as broker,
        contextlib.ExitStack() as stack,
    ):
        yield broker, [stack.enter_context(_join(broker.port, number)) for number in range(MEMBERS)]


def measure(command: str, seconds: float, rounds: int) -> dict[str, Any]:
    """Microseconds of CPU by what is sent and its rate: medians of interleaved rounds."""
    kinds = {"report": [_report(turn) for turn in range(35)], "plain": [encode(Pingreq(), V5)]}
    samples: dict[tuple[str, float], list[float]] = {(kind, rate): [] for kind in kinds for rate in RATES}
    with _group(command) as (broker, members):
        for _ in range(rounds):
            for (kind, rate), found in samples.items():
                before = _cpu_seconds(broker)
                count = _send(members, kinds[kind], rate, seconds)
                if count < 0.9 * rate * MEMBERS * seconds:
                    raise RuntimeError("this machine cannot send that fast")
                found.append((_cpu_seconds(broker) - before) / count * 1e6)
    costs = [
        {"what": kind, "per_second": rate * MEMBERS, "microseconds": statistics.median(found), "samples": found}
        for (kind, rate), found in samples.items()
    ]
    return {"members": MEMBERS, "costs": costs}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench report-cost", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, with the machine")
    parser.add_argument("--command", default=COMMAND, help="the broker, with {port} and {config}")
    options = parser.parse_args(words)
    raise_file_limit()
    result = measure(options.command, 0.5 if options.quick else 4.0, 1 if options.quick else 5)
    for cost in result["costs"]:
        print(
            f"{cost['what']:7} {cost['per_second']:6.0f}/s  {cost['microseconds']:6.1f} µs of the broker's CPU each, "
            f"{cost['per_second'] * cost['microseconds'] / 1e4:5.1f} % of a core"
        )
    if options.json:
        write_json(options.json, {"machine": machine.describe(options.command), **result})


if __name__ == "__main__":
    main()
