"""Sessions whose subscriptions to a topic carry conditions: each different one is evaluated once for a message.

Theory. Clients that can be sent packets as they are and have one subscription, whose condition depends on the message
alone, are sorted by it: they are `Members` behind one question. So a message costs an evaluation for each different
condition, and those who get it are sent it as if there were none. All others are asked for one by one: who has several
subscriptions gets what those say that let the message through, all in one, and nothing if none does. What `changed` and
`limit` remember is that of the subscription.

Which messages there is room for is not known before they are there: a full queue behind a condition counts as full
(`has_room`), whatever the message says.
"""

from __future__ import annotations

from typing import Final, cast

from headwater.message import Delivery, Message, Subscription
from headwater.node.destinations.destination import Destination, Run
from headwater.node.destinations.members import Members, all_have_room
from headwater.node.plane.channel import Channel
from headwater.node.plane.sending import Sending
from headwater.routing.conditions.condition import ContentCondition
from headwater.routing.conditions.reading import Reading
from headwater.routing.router import Recipient
from headwater.session.session import Session

CHEAP: Final = 8
"""Tests of conditions that take as long as giving a message to one recipient, at most."""


class _Alike:
    """Who gets the same messages."""

    def __init__(self, condition: ContentCondition, members: Members) -> None:
        self.condition = condition
        self.members = members


class Conditional(Destination):
    def __init__(self, sending: Sending) -> None:
        self.sending = sending
        self.alike: list[_Alike] = []
        self.others: list[Recipient] = []
        self.unreachable: list[Recipient] = []
        """Who is away and has asked for QoS 0 gets nothing; hooks see them."""
        self.reaches_clients = False
        self.one_by_one = True
        self.weight = 0
        self._by_text: dict[str, Members] = {}

    def add(self, recipient: Recipient, plain: Channel | None, is_connected: bool) -> None:
        """`plain`: its channel, if that can be sent packets as they are."""
        if not is_connected and not recipient.qos:
            self.unreachable.append(recipient)
            return
        self.reaches_clients = True
        condition = recipient.subscriptions[0].condition
        alone = len(recipient.subscriptions) == 1
        if alone and plain is not None and isinstance(condition, ContentCondition) and not condition.remembers:
            members = self._by_text.get(condition.text)
            if members is None:
                members = self._by_text[condition.text] = Members(self.sending)
                self.alike.append(_Alike(condition, members))
                self.weight += condition.weight
            members.add(recipient, plain)
            self.drops_properties = self.drops_properties or members.drops_properties
        else:
            self.others.append(recipient)
            self.weight += _weight(recipient)
        self.width = 1 + self.weight // CHEAP
        if recipient.qos:
            self.owed = True
            if cast(Session, recipient.session).durable:
                self.durable = True

    # ---- the hot path ------------------------------------------------------------------------------------------

    def take0(self, run: Run) -> None:
        if not self.reaches_clients:
            return
        message = self.sending.message0(run)
        reading = self.sending.conditions.reading(message)
        for each in self.alike:
            if self._holds(each, reading):
                each.members.take0(run)
        self._deliver_others(message, run.session)

    def take1(self, run: Run) -> None:
        message = self.sending.message1(run)
        reading = self.sending.conditions.reading(message)
        for each in self.alike:
            if self._holds(each, reading):
                each.members.take1(run)
        self._deliver_others(message, run.session)

    def _holds(self, each: _Alike, reading: Reading) -> bool:
        tally = self.sending.conditions.tally
        count = len(each.members.recipients)
        if each.condition.may_hold(reading, tally):
            tally.passed += count
            return True
        tally.suppressed += count
        return False

    def _deliver_others(self, message: Message, publisher: Session | None) -> None:
        for recipient in self.others:
            self._deliver_other(recipient, message, publisher)

    # ---- the ordinary way --------------------------------------------------------------------------------------

    def deliver(self, message: Message, publisher: Session | None) -> None:
        reading = self.sending.conditions.reading(message)
        for each in self.alike:
            if self._holds(each, reading):
                each.members.deliver(message, publisher)
        self._deliver_others(message, publisher)

    def deliver_some(self, message: Message, publisher: Session | None, first: int, count: int) -> int:
        left = count * CHEAP
        at = first
        alike = len(self.alike)
        total = alike + len(self.others)
        while at < total and left > 0:
            if at < alike:
                each = self.alike[at]
                left -= each.condition.weight
                if self._holds(each, self.sending.conditions.reading(message)):
                    each.members.deliver(message, publisher)
            else:
                recipient = self.others[at - alike]
                left -= _weight(recipient)
                self._deliver_other(recipient, message, publisher)
            at += 1
        return at if at < total else 0

    def _deliver_other(self, recipient: Recipient, message: Message, publisher: Session | None) -> None:
        if message.qos == 0 and cast(Session, recipient.session).connection is None:
            return
        passing = self._passing(recipient, message, publisher)
        if passing is not None:
            self.sending.delivering.deliver(passing, message, publisher)

    def _passing(self, recipient: Recipient, message: Message, publisher: Session | None) -> Recipient | None:
        """The recipient by those of its subscriptions that let the message through."""
        own = recipient.session is publisher
        conditions = self.sending.conditions
        passing: list[Subscription] = []
        for each in recipient.subscriptions:
            if own and each.no_local:
                continue
            if each.condition is None or conditions.passes(each, message, self.sending.now):
                passing.append(each)
        if len(passing) == len(recipient.subscriptions):
            return recipient
        return Recipient(recipient.session, passing) if passing else None

    def choose(self, message: Message, publisher: Session | None, chosen: list[tuple[Session, Delivery]]) -> None:
        reading = self.sending.conditions.reading(message)
        for each in self.alike:
            if self._holds(each, reading):
                each.members.choose(message, publisher, chosen)
        for recipient in self.others + self.unreachable:
            passing = self._passing(recipient, message, publisher)
            delivery = None if passing is None else passing.delivery(message, recipient.session is publisher)
            if delivery is not None:
                chosen.append((cast(Session, recipient.session), delivery))

    def has_room(self, publisher: Session | None) -> bool:
        for each in self.alike:
            if not each.members.has_room(publisher):
                return False
        return all_have_room(self.others, publisher)


def _weight(recipient: Recipient) -> int:
    """As many tests as take as long, with the delivery."""
    weight = CHEAP
    for each in recipient.subscriptions:
        condition = each.condition
        if isinstance(condition, ContentCondition):
            weight += condition.weight
    return weight
