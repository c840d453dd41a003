"""Hostile clients against a broker process: scripts/bench fuzz [--minutes N] [--seed N] [--command 'NAME {port}']

Batches of damaged conversations arrive whole, in pieces or byte by byte, and end politely, by a reset, by a half-close
or not at all; some clients never read, and floods of connections send nothing. After every batch the broker has to
live, to serve a normal client in time, and to have closed what its peers closed; over many batches its memory must not
grow. The seed decides everything but the timing.

With --coverage the broker is in memory, and damage is guided by what it reaches (fuzz_coverage.py).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Final

from headwater.fleet.process import BrokerError, RunningBroker
from headwater.wire.decode import FROM_SERVER, decode
from headwater.wire.encode import encode
from headwater.wire.framing import PacketReader
from headwater.wire.packets import Connect, Disconnect, Packet, Publish, Subscribe, SubscribeRequest
from headwater_lab.contenders import command_from, running
from headwater_lab.hostile_streams import pieces, stream

PATIENCE: Final = 15.0
"""Seconds in which a broker must answer a normal client, even right after a batch."""
SETTINGS: Final = """\
connect_timeout = 2.0
max_session_expiry = 1
max_retained = 100
"""
"""What hostile clients may keep (sessions, retained messages) is bounded, so that growth means a leak."""
RESET: Final = struct.pack("ii", 1, 0)


class FuzzFailure(Exception):
    """The broker did not stand it; the text says what and the seed says where."""


class Campaign:
    """Batches of hostile connections to one broker."""

    def __init__(self, broker: RunningBroker, log: Path, seed: int) -> None:
        self.broker = broker
        self.log = log
        self.seed = seed
        self.random = Random(seed)
        self.connections = 0
        self.slowest = 0.0
        self._lingering: list[socket.socket] = []
        self.probe()
        self.files = self._open_files()

    def batch(self, count: int) -> None:
        """`count` hostile connections, then the checks that need no waiting."""
        for _ in range(count):
            self.connections += 1
            with contextlib.suppress(OSError):  # the broker may close in the middle of anything
                self._attack()
        self._release()
        self.probe()

    def flood(self, count: int) -> None:
        """Connections that say nothing, or one byte, all at once."""
        self.connections += count
        peers = [self._open() for _ in range(count)]
        for peer in peers[::2]:
            peer.sendall(b"\x10")
        self.probe()
        for peer in peers:
            peer.close()

    def probe(self) -> None:
        """A normal client has to be served in time."""
        self.broker.check_alive()
        began = time.monotonic()
        topic = f"probe/{self.connections}"
        try:
            with socket.create_connection(("127.0.0.1", self.broker.port), PATIENCE) as peer:
                reader = PacketReader()
                peer.sendall(encode(Connect("probe", 5), 5))
                _receive(peer, reader)
                peer.sendall(encode(Subscribe(1, [SubscribeRequest(topic, 1)]), 5))
                _receive(peer, reader)
                peer.sendall(encode(Publish(topic, b"served", 1, packet_id=1), 5))
                while not isinstance(packet := _receive(peer, reader), Publish):
                    pass
                if packet.payload != b"served":
                    raise self._failure(f"the normal client got {packet!r}")
                peer.sendall(encode(Disconnect(), 5))
        except OSError as error:
            self.broker.check_alive()
            raise self._failure(f"a normal client is not served: {error!r}") from error
        self.slowest = max(self.slowest, time.monotonic() - began)
        if "Traceback" in self.log.read_text(errors="replace"):
            raise self._failure(f"the log has a traceback: {self.log.read_text(errors='replace')[-3000:]}")

    def check_files(self) -> None:
        """What was opened for clients that are gone has to be closed again, after what time-outs take."""
        until = time.monotonic() + PATIENCE
        while (now := self._open_files()) > self.files:
            if time.monotonic() > until:
                raise self._failure(f"{now} files are open, {self.files} were before")
            time.sleep(0.05)

    def _attack(self) -> None:
        random = self.random
        parts = pieces(random, stream(random))
        deaf = random.random() < 0.1
        ending = random.random()
        peer = self._open(small=deaf)
        try:
            for part in parts:
                peer.sendall(part)
                if len(parts) > 1 and not deaf:
                    _drop_input(peer)
            if ending < 0.2:
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(65536):  # the broker has to close its half as well
                    pass
            elif ending < 0.4:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            elif ending < 0.6:
                self._lingering.append(peer)
                return
        finally:
            if peer not in self._lingering:
                peer.close()

    def _open(self, small: bool = False) -> socket.socket:
        peer = socket.socket()
        if small:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        peer.settimeout(PATIENCE)
        try:
            peer.connect(("127.0.0.1", self.broker.port))
        except OSError as error:
            peer.close()
            raise self._failure(f"the broker does not accept connections: {error!r}") from error
        return peer

    def _release(self) -> None:
        for peer in self._lingering:
            peer.close()
        self._lingering.clear()

    def _open_files(self) -> int:
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in self.broker.pids())

    def _failure(self, text: str) -> FuzzFailure:
        return FuzzFailure(f"{text} (seed {self.seed}, {self.connections} connections)")


def _receive(peer: socket.socket, reader: PacketReader) -> Packet:
    while (frame := reader.next_frame()) is None:
        data = peer.recv(65536)
        if not data:
            raise ConnectionError("the broker closed the connection")
        reader.feed(data)
    return decode(frame[0], frame[1], 5, FROM_SERVER)


def _drop_input(peer: socket.socket) -> None:
    peer.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        peer.recv(65536)
    peer.settimeout(PATIENCE)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench fuzz", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default: 1)")
    parser.add_argument("--seed", type=int, default=None, help="repeat what this seed did (default: a new one)")
    parser.add_argument("--batch", type=int, default=200, help="connections between two looks (default: 200)")
    parser.add_argument("--command", help="a broker's command line with {port} in it (default: our own broker)")
    parser.add_argument("--coverage", action="store_true", help="in memory, guided by what scripts reach")
    parser.add_argument("--save", action="store_true", help="with --coverage, keep what was worth it for the tests")
    options = parser.parse_args(arguments)
    seed = int.from_bytes(os.urandom(4), "big") if options.seed is None else options.seed
    if options.coverage:
        from headwater_lab import fuzz_coverage

        return fuzz_coverage.main(options.minutes, seed, save=options.save)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = folder / "fuzz.toml"
        settings.write_text(SETTINGS)
        own = f"{sys.executable} -m headwater broker --port {{port}} --config {settings}"
        with running(command_from(options.command or own), folder) as broker:
            try:
                _run(Campaign(broker, folder / f"broker-{broker.port}.log", seed), options.minutes, options.batch)
            except (FuzzFailure, BrokerError) as failure:
                print(f"FAILED with seed {seed}: {failure}", file=sys.stderr)
                return 1
    return 0


def _run(campaign: Campaign, minutes: float, batch: int) -> None:
    until = time.monotonic() + 60 * minutes
    warm = 0
    while time.monotonic() < until:
        campaign.batch(batch)
        campaign.flood(50)
        campaign.check_files()
        resident = campaign.broker.resident_bytes() >> 10
        if campaign.connections > 10 * batch and not warm:
            warm = resident
        print(
            f"seed {campaign.seed}: {campaign.connections:,} connections, {resident:,} KiB resident"
            f"{f' ({resident - warm:+,} since warm)' if warm else ''}, slowest answer {campaign.slowest * 1000:.0f} ms",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
