"""Sessions that get messages and not bytes: clients with wishes of their own (identifiers, positions, aliases, no
local, a smaller packet size), and clients that are away."""

from __future__ import annotations

from typing import cast

from headwater.message import Delivery, Message
from headwater.node.destinations.destination import Destination, Run
from headwater.node.destinations.members import all_have_room, choose_recipients
from headwater.node.plane.sending import Sending
from headwater.routing.router import Recipient
from headwater.session.session import Session


class Recipients(Destination):
    """`special` are connected; `absent` are not, and are kept QoS 1 and 2; `unreachable` are not, and have asked for
    QoS 0: they get nothing, but they have subscribed, and hooks see them."""

    def __init__(self, sending: Sending) -> None:
        self.sending = sending
        self.special: list[Recipient] = []
        self.absent: list[Recipient] = []
        self.unreachable: list[Recipient] = []
        self.reaches_clients = False

    def add(self, recipient: Recipient, is_connected: bool) -> None:
        if not is_connected and not recipient.qos:
            self.unreachable.append(recipient)
            return
        (self.special if is_connected else self.absent).append(recipient)
        self.reaches_clients = True
        self.one_by_one = True
        self.width += 1
        if recipient.qos:
            self.owed = True
            if cast(Session, recipient.session).durable:
                self.durable = True

    def take0(self, run: Run) -> None:
        sending = self.sending
        if not self.special:
            return
        message = sending.message0(run)
        session = run.session
        for recipient in self.special:
            sending.delivering.deliver(recipient, message, session)

    def take1(self, run: Run) -> None:
        self.deliver(self.sending.message1(run), run.session)

    def deliver(self, message: Message, publisher: Session | None) -> None:
        delivering = self.sending.delivering
        for recipient in self.special:
            delivering.deliver(recipient, message, publisher)
        if message.qos:
            for recipient in self.absent:
                delivering.deliver(recipient, message, publisher)

    def deliver_some(self, message: Message, publisher: Session | None, first: int, count: int) -> int:
        delivering = self.sending.delivering
        recipients = self.special + self.absent if message.qos else self.special
        behind = first + count
        for recipient in recipients[first:behind]:
            delivering.deliver(recipient, message, publisher)
        return behind if behind < len(recipients) else 0

    def choose(self, message: Message, publisher: Session | None, chosen: list[tuple[Session, Delivery]]) -> None:
        choose_recipients(self.special, message, publisher, chosen)
        choose_recipients(self.absent, message, publisher, chosen)
        choose_recipients(self.unreachable, message, publisher, chosen)

    def has_room(self, publisher: Session | None) -> bool:
        return all_have_room(self.special, publisher) and all_have_room(self.absent, publisher)
