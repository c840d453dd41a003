"""Five makes as one: Mosquitto, RabbitMQ, NATS and aedes behind proxies, and a node of ours; each linked with each."""

from __future__ import annotations

import contextlib
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from headwater.fleet.process import BrokerError, free_port
from headwater_lab.check_broker.contestants import Node
from headwater_lab.check_broker.contestants import running as running_nodes
from headwater_lab.makes.nodes import MAKES

MAKES_WANTED: Final = ("mosquitto", "rabbitmq", "nats", "aedes")


class MakeProcess:
    """A broker of another make, started by a script: its processes, for whom CPU time is counted."""

    def __init__(self, node: Node) -> None:
        self.port = node.port
        self._node = node

    def pids(self) -> list[int]:
        """The process and all its descendants."""
        pids = [int((self._node.folder / "pid").read_text())]
        for pid in pids:
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    pids += map(int, children.read_text().split())
        return pids

    def check_alive(self) -> None:
        if not Path(f"/proc/{self.pids()[0]}").exists():
            said = (self._node.folder / "log").read_text(errors="replace")[-500:]
            raise BrokerError(f"{self._node.folder} has ended: {said}")


def check_makes() -> None:
    """BrokerError: one is not installed."""
    for each in MAKES:
        if each.name in MAKES_WANTED:
            each.needs()


def start_makes(folder: Path, stack: ExitStack) -> dict[str, MakeProcess]:
    """BrokerError: one does not start."""
    found = {}
    makes = {each.name: each for each in MAKES}
    for name in MAKES_WANTED:
        own = folder / f"{name}-{free_port()}"
        nodes = stack.enter_context(running_nodes(makes[name].make, own))
        found[name] = MakeProcess(next(node for node in nodes if node.is_target))
    return found
