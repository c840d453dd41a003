"""A message and its deliveries as the journal knows them: on disk, or to be there with the next commit.

A message is stored once, however many sessions it is for; it goes when the last of its deliveries is done. These
objects know no disk. What is written when is for the journal (node/persistence/journal.py) to say.
"""

from __future__ import annotations

from typing import Final

from headwater.message import Delivery, Message

AWAY: Final = Message("")
"""Stands in for a message whose content is on disk only, so that it takes no memory while it waits."""


class JournaledMessage:
    """A message by its number. The hot path has no Message, only a packet: `head` + packet id + `tail`."""

    def __init__(
        self, number: int, message: Message | None, head: bytes, tail: bytes, version: int, publisher: str
    ) -> None:
        self.number = number
        self.references = 0
        self.written = False
        self.message = message
        self.head = head
        self.tail = tail
        self.version = version
        self.publisher = publisher


class DurableDelivery:
    """One delivery by its number: what `owner`, a session or a shared group, is to get or has in flight."""

    def __init__(self, number: int, owner: int, journaled: JournaledMessage, qos: int) -> None:
        self.number = number
        self.owner = owner
        self.journaled = journaled
        self.qos = qos
        self.packet_id = 0
        self.released = False
        self.retain = False
        self.identifiers: list[int] | None = None
        self.group: object = None
        self.written = False
        self.delivery: Delivery | None = None
        """While it waits in a queue."""
