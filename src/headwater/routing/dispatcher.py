"""The seam of shared subscriptions: what a dispatcher is asked, what it is told, and what is known of each member.

Time is an argument everywhere (seconds on any monotonic clock), so the same code runs in a broker and in a simulation.
The group does the book-keeping of `Member` before it tells its dispatcher of an event; a dispatcher reads it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import mypyc_attr

from headwater.message import Subscription

PARTS: Final = 1000
"""Of one weight: dispatchers that count count in these."""
NOMINAL: Final = 0.001
"""Seconds that a message counts for where nobody knows how long one takes: the fewer wait the better."""


class Member:
    """A session's part in a group. All is changed by the group alone, except what is the dispatcher's own and what the
    node knows of the connection: `way`, `report_interval`, and that reports have ended."""

    __slots__ = (
        "_weight",
        "advised",
        "in_flight_since",
        "key",
        "model",
        "online",
        "pull",
        "ready",
        "report_interval",
        "reported_seconds",
        "sent_bytes",
        "sent_messages",
        "sent_since_report",
        "subscription",
        "turn",
        "unsent_bytes",
        "waiting",
        "watched",
        "way",
    )

    def __init__(self, key: object, subscription: Subscription, online: bool) -> None:
        self.key = key
        self.subscription = subscription
        self.online = online
        self.ready = True  # False: its window is full or its socket takes nothing, so that it cannot be sent more now
        self._weight = 1
        self.advised = 1.0  # so many times as much, by advice from outside (node/advice); to be changed by `advise`
        self.pull: int = PARTS  # its weight times what is advised, in PARTS; never less than 1
        self.way = 0.0  # seconds to it, one way, if the connection tells (node/protocol/sampling.py); 0.0: not known
        self.in_flight_since: deque[float] = deque()  # when each delivery that is still to be acknowledged was sent
        self.sent_messages = 0
        self.sent_bytes = 0
        self.unsent_bytes = 0  # as last sampled
        self.waiting = -1  # as last reported; -1: it has not reported
        self.report_interval = 0.0  # seconds, the longest there may be between two reports; 0.0: not known
        self.reported_seconds = 0.0  # per message, as last reported; 0.0: not yet
        self.sent_since_report = 0
        self.watched = False  # the watcher looks at its connection
        # The dispatcher's own.
        self.turn = 0
        self.model: object = None

    @property
    def in_flight(self) -> int:
        """Deliveries with QoS 1 or 2 that it has been sent and not acknowledged."""
        return len(self.in_flight_since)

    @property
    def weight(self) -> int:
        """How much more than others it is meant to get; set by configuration."""
        return self._weight

    @weight.setter
    def weight(self, weight: int) -> None:
        self._weight = weight
        self.advise(self.advised)

    def advise(self, factor: float) -> None:
        """So many times as much as configured; 1.0: there is no advice."""
        self.advised = factor
        self.pull = max(1, round(PARTS * max(1, self._weight) * factor))

    def __repr__(self) -> str:
        return f"Member({self.key!r}, {'online' if self.online else 'offline'})"


@mypyc_attr(allow_interpreted_subclasses=True)
class Dispatcher:
    """Chooses the member of one group that gets a message. To be subclassed; only `choose` must be.

    A message that `choose` has given to a member counts as that member's from then on, whether or not `sent` follows
    (it may expire or be too large). `joined` is called once for each member before it is first offered to `choose`,
    `left` once when it has left the group and will not be offered again. Going offline is not leaving: the member is
    just missing from the list for a while. The other events do nothing by default; they come for members of the group
    only, in the order in which things happened, and `now` never goes back.

    A member that is not `ready` is to be passed over as long as another is, and one always is; but a dispatcher that
    `waits` for the member it has to choose (to keep an order, say) need not look: the message then waits for that one.
    What no member is ready for waits in the group, and `taken` tells who got it.

    Order: each member gets its messages in the order of the choices. Across members a topic's order holds only where
    a dispatcher keeps the topic (or its publisher) with one member; each one's docstring says so.
    """

    name = ""
    """By which it was made."""

    waits = False
    """Whether a message waits for the member that was chosen, if that is not ready. Set it in `__init__`."""

    wants_samples = False
    """Whether `sampled` and the members' `way` are of use; nothing is sampled for others. Set it in `__init__`."""

    def choose(self, members: list[Member], topic: str, publisher: str, now: float) -> Member:
        """One of `members`, which is not empty, in order of joining, and never changed by anybody."""
        raise NotImplementedError

    def also(self, member: Member, left: int, now: float) -> int:
        """How many of `left` more messages, of the same topic and QoS 0, that came together with the one just chosen
        for, the same member gets as well: they count as chosen and sent. Each needs a choice of its own unless a
        dispatcher knows that it makes no difference."""
        return 0

    def beliefs(self, member: Member, now: float) -> dict[str, float]:
        """What it believes of a member, for people to look at: `seconds_per_message`, `seconds_of_work`,
        `seconds_away`; only what it has an opinion on."""
        return {}

    def outlook(self, member: Member, now: float) -> tuple[float, float]:
        """When the member would start on a message that it got now, on the clock of `now`, and the seconds that it
        takes for one, 0.0: not known. For other brokers with members of the same group."""
        pending = member.in_flight if member.waiting < 0 else member.waiting + member.sent_since_report
        return now + pending * (member.reported_seconds or NOMINAL), member.reported_seconds

    def capacity(self, member: Member, now: float) -> float:
        """Messages that it may be sent now, if it is to be spared."""
        return member.pull / PARTS

    def taken(self, member: Member, now: float) -> None:
        """The member has room and got the message that waited longest in the group: as if it had been chosen."""

    def readied(self, member: Member, now: float) -> None:
        """The member has room again, and nothing waits in the group."""

    def joined(self, member: Member) -> None:
        """A member has joined the group."""

    def left(self, member: Member) -> None:
        """A member has left the group."""

    def sent(self, member: Member, size: int, qos: int, now: float) -> None:
        """A message was dispatched to the member; with QoS 1 or 2 it will be acknowledged or given back."""

    def acknowledged(self, member: Member, sent_at: float, now: float) -> None:
        """The member's oldest delivery in flight, dispatched at `sent_at`, has ended."""

    def acknowledged_together(self, member: Member, sent_at: list[float], now: float) -> None:
        """So many of the oldest have ended in one turn; the member knows of all of them already."""
        for each in sent_at:
            self.acknowledged(member, each, now)

    def reported(self, member: Member, waiting: int, seconds_per_message: float | None, now: float) -> None:
        """A valid report came: messages waiting at the client, mean time of those done since its last report (None:
        none was). The member still holds what it knew before this report."""

    def sampled(self, member: Member, unsent_bytes: int, now: float) -> None:
        """So many bytes wait to be sent to the member: once per tick, not per message. The member still holds the
        sample before."""

    def given_back(self, member: Member, count: int, now: float) -> None:
        """So many messages that were the member's, the newest ones, are its no longer and will be chosen for again."""
