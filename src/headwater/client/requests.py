"""Subscribing and unsubscribing: what was asked and not yet answered, and what to ask again in a new session."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from headwater.client.link import Link
from headwater.wire.encode import encode
from headwater.wire.packets import Properties, Suback, Subscribe, SubscribeRequest, Unsuback
from headwater.wire.words import reason_words

GRANTED: Final = 2
"""Reason codes of SUBACK up to here are the QoS that was granted."""
PLACEHOLDER: Final = 1
FILTER_OVERHEAD: Final = 3
"""Bytes in SUBSCRIBE beside a filter's own: its length and its options."""
LENGTH_MAY_GROW: Final = 3
"""Bytes of the remaining length, which is one byte at least."""
LARGEST: Final = 65536
"""Bytes of one SUBSCRIBE of ours, if the server takes more."""

log: Final = logging.getLogger("headwater.client")

Answer = Suback | Unsuback


class Requests:
    """SUBSCRIBEs and UNSUBSCRIBEs that wait for their answer. They belong to one connection: when it is lost, whoever
    waits gets None, and asks again."""

    def __init__(self, reserve_id: Callable[[], int], give_back_id: Callable[[int], None]) -> None:
        self._reserve_id = reserve_id
        self._give_back_id = give_back_id
        self._open: dict[int, tuple[type[Answer], asyncio.Future[Answer | None]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, expects: type[Answer]) -> tuple[int, asyncio.Future[Answer | None]]:
        """A packet id, in use until its answer has come, and the future of that answer."""
        packet_id = self._reserve_id()
        answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        self._open[packet_id] = (expects, answer)
        return packet_id, answer

    def answered(self, packet: Answer) -> None:
        expects, answer = self._open.get(packet.packet_id, (None, None))
        if expects is not type(packet) or answer is None:  # of nobody's request
            return
        del self._open[packet.packet_id]
        self._give_back_id(packet.packet_id)
        if not answer.done():
            answer.set_result(packet)

    def detach(self) -> None:
        for packet_id, (_, answer) in self._open.items():
            self._give_back_id(packet_id)
            if not answer.done():
                answer.set_result(None)
        self._open.clear()


class Subscriptions:
    """What the server has granted, so that it can be asked for again when it has forgotten us."""

    def __init__(self) -> None:
        self._granted: dict[str, tuple[SubscribeRequest, Properties | None]] = {}
        self._are_unsure = False
        """Whether they were asked for again in the present session and are not yet granted all."""

    def granted(self, packet: Subscribe, reasons: list[int]) -> None:
        for request, reason in zip(packet.requests, reasons, strict=False):
            if reason <= GRANTED:
                self._granted[request.filter] = (request, packet.properties)

    def removed(self, filters: list[str]) -> None:
        for filter in filters:
            self._granted.pop(filter, None)

    def renew(self, link: Link, requests: Requests, version: int, largest: int | None, session_present: bool) -> None:
        """A connection was made again: subscribe again unless the server still knows."""
        if session_present and not self._are_unsure:
            return
        packets = self._packets(version, largest)
        self._are_unsure = bool(packets)
        missing = len(packets)

        def answered(packet: Subscribe, answer: asyncio.Future[Answer | None]) -> None:
            nonlocal missing
            result = answer.result()
            if result is None:
                return
            missing -= 1
            self._are_unsure = missing > 0
            for request, reason in zip(packet.requests, result.reasons, strict=False):
                if reason > GRANTED:
                    log.warning("the server no longer subscribes us to %s: %s", request.filter, reason_words(reason))

        for packet in packets:
            packet.packet_id, answer = requests.open(Suback)
            answer.add_done_callback(lambda done, packet=packet: answered(packet, done))  # type: ignore[misc]
            link.send(packet)

    def _packets(self, version: int, largest: int | None) -> list[Subscribe]:
        """One SUBSCRIBE for those that were asked for with the same properties, or several that the server takes."""
        packets: list[Subscribe] = []
        room: list[int] = []
        for request, properties in self._granted.values():
            size = len(request.filter.encode()) + FILTER_OVERHEAD
            for index, packet in enumerate(packets):
                if packet.properties == properties and size <= room[index]:
                    packet.requests.append(request)
                    room[index] -= size
                    break
            else:
                packets.append(Subscribe(PLACEHOLDER, [request], properties))
                most = LARGEST if largest is None else min(largest, LARGEST)
                room.append(most - len(encode(packets[-1], version)) - LENGTH_MAY_GROW)
        return packets
