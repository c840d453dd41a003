"""Nodes of a cluster as processes, linked when they are handed over."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from headwater.fleet.process import BrokerError, RunningBroker, free_port
from headwater.wire.packets import Publish, Subscribe, SubscribeRequest
from headwater_lab.cluster.caller import Caller

LINK_LIMIT: Final = 30.0
"""Seconds until all nodes have to be linked."""
SOON: Final = 0.02
SYNC: Final = ("--durability", "sync")


@contextlib.contextmanager
def single(folder: Path, options: Sequence[str] = ()) -> Iterator[list[RunningBroker]]:
    """A node without a cluster. With `options` that need a folder for data, it has one."""
    port = free_port()
    broker = RunningBroker(_words(port, folder, options), port, folder / f"node-{port}.log")
    try:
        yield [broker]
    finally:
        broker.stop()


@contextlib.contextmanager
def linked(
    count: int, folder: Path, method: str = "subscribe", options: Sequence[str] = ()
) -> Iterator[list[RunningBroker]]:
    """So many nodes, each linked with each."""
    first = free_port()
    with contextlib.ExitStack() as stack:
        nodes = []
        for number in range(count):
            words = ["--cluster", "bench", "--node", f"n{number}", "--set", f"cluster.method={method}"]
            words += ["--cluster-port", str(first if number == 0 else free_port())]
            if number:
                words += ["--join", f"localhost:{first}"]
            nodes += stack.enter_context(single(folder, [*words, *options]))
        wait_for_links(nodes)
        yield nodes


def _words(port: int, folder: Path, options: Sequence[str]) -> list[str]:
    words = [sys.executable, "-m", "headwater", "broker", "--port", str(port), "--log-level", "error", *options]
    return [*words, "--data-dir", str(folder / f"data-{port}")] if "--durability" in options else words


def wait_for_links(nodes: Sequence[RunningBroker]) -> None:
    """Return when what is published at each node arrives at all others. BrokerError: it does not in time."""
    wait_for_links_of([node.port for node in nodes])


def wait_for_links_of(nodes: Sequence[int]) -> None:
    """The same, of nodes by their ports."""
    deadline = time.monotonic() + LINK_LIMIT
    with contextlib.ExitStack() as stack:
        callers = [stack.enter_context(Caller(port, f"probe{number}")) for number, port in enumerate(nodes)]
        missing = {(here, there) for here in range(len(nodes)) for there in range(len(nodes)) if here != there}
        for number, caller in enumerate(callers):
            caller.send(Subscribe(1, [SubscribeRequest(f"probe/{number}/#")]))
        while missing:
            if time.monotonic() > deadline:
                raise BrokerError(f"{len(missing)} of the ways between {len(nodes)} nodes did not open in time")
            for here, there in missing:
                callers[here].send(Publish(f"probe/{there}/{here}"))
            for number, caller in enumerate(callers):
                for packet in caller.received(SOON):
                    if isinstance(packet, Publish):
                        missing.discard((int(packet.topic.rpartition("/")[2]), number))
