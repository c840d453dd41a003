"""The way between nodes as a real network: a namespace for each node, a bridge, and packets that nftables drops.

As `relay.py`, with the system's own TCP: what is cut off is sent again with growing pauses, connections begin or do
not, and nobody hears of an end. It needs root, `ip` and `nft`. Processes hold the namespaces, and these go with them. A
node opens its listeners for clients where the driver is, and enters its namespace before it listens for nodes: a socket
stays where it was made.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

from headwater.node.broker import Broker
from headwater_lab.chaos.lives import Process, fork

PORTS: Final = (11883, 11884)
NEW_NETWORK: Final = 0x40000000
RESET: Final = 0.5
"""Seconds for which connections are reset: each side says something meanwhile."""
Way = tuple[str, str]


class Namespaces:
    """The same orders as `Relay`."""

    def __init__(self, nodes: list[str], log: Path) -> None:
        self._hosts = {node: f"10.77.0.{number}" for number, node in enumerate(nodes, 1)}
        self.addresses = {node: [f"{host}:{port}" for port in PORTS] for node, host in self._hosts.items()}
        self._cut: dict[Way, str] = {}
        self._holders: dict[str, Process] = {name: fork(_hold, log) for name in ("", *nodes)}
        for name in self._holders:
            self._wait_for(name)
        self._run("", "ip link add bridge type bridge")
        self._run("", "ip link set bridge up")
        for node, host in self._hosts.items():
            self._run("", f"ip link add to-{node} type veth peer name peers netns {self._holders[node].pid}")
            self._run("", f"ip link set to-{node} master bridge up")
            self._run(node, f"ip address add {host}/24 dev peers")
            self._run(node, "ip link set peers up")
            self._run(node, "nft add table inet chaos")
            self._run(node, "nft add chain inet chaos input { type filter hook input priority 0 ; }")

    def place_of(self, node: str, number: int) -> tuple[str, int]:
        """Where the node listens if it is at this one of its addresses."""
        return self._hosts[node], PORTS[number]

    def network_of(self, node: str) -> str:
        """The file of its namespace."""
        return f"/proc/{self._holders[node].pid}/ns/net"

    def lead_to(self, node: str, port: int) -> None:
        """It is where it says."""

    def cut(self, sender: str, receiver: str) -> None:
        self._cut[sender, receiver] = "drop"
        self._apply(receiver)

    def heal(self, sender: str, receiver: str) -> None:
        self._cut.pop((sender, receiver), None)
        self._apply(receiver)

    def reset(self, one: str, other: str) -> None:
        for way in ((one, other), (other, one)):
            self._cut[way] = "meta l4proto tcp reject with tcp reset"
            self._apply(way[1])
        time.sleep(RESET)
        self.heal(one, other)
        self.heal(other, one)

    def delay(self, seconds: float) -> None:
        """There is none."""

    def close(self) -> None:
        for each in self._holders.values():
            each.kill()

    def _apply(self, receiver: str) -> None:
        rules = [
            f"add rule inet chaos input ip saddr {self._hosts[sender]} {verdict}"
            for (sender, other), verdict in self._cut.items()
            if other == receiver
        ]
        self._run(receiver, "nft -f -", "\n".join(["flush chain inet chaos input", *rules, ""]))

    def _run(self, name: str, command: str, given: str = "") -> None:
        pid = self._holders[name].pid
        words = ["nsenter", "--target", str(pid), "--net", *command.split()]
        done = subprocess.run(words, input=given, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"{command}: {done.stderr}")

    def _wait_for(self, name: str) -> None:
        """Until its process has a namespace of its own."""
        ours = os.stat("/proc/self/ns/net").st_ino
        while os.stat(f"/proc/{self._holders[name].pid}/ns/net").st_ino == ours:
            if self._holders[name].poll() is not None:
                raise OSError("no namespace can be made: it needs root")
            time.sleep(0.002)


def _hold() -> int:
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_NETWORK):
        return 1
    signal.pause()
    return 0


class NodeInNamespace(Broker):
    """Of which only the links are in the namespace, given by its file."""

    network = ""

    def _open_cluster(self) -> None:
        descriptor = os.open(self.network, os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(descriptor)
        super()._open_cluster()
