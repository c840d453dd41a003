"""What is caught: the subscriptions of the own client at the home broker, made of what other nodes want."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from headwater.node.links.receiving import NOT_FOR_NODES
from headwater.node.plane.timers import Timer
from headwater.node.proxy.catches import Catches
from headwater.node.proxy.catching import Copies, catching
from headwater.node.proxy.client import OwnClient
from headwater.peering.frames.frame import Stamp
from headwater.routing.feed import RouteChange, RouteListener
from headwater.routing.topics import matches, split_shared
from headwater.wire.packets import V5, Suback, Subscribe, SubscribeRequest, Unsuback, Unsubscribe

QOS: Final = 2
"""Asked for: messages come with their own."""


class _Groups(RouteListener):
    """Told of groups with members here."""

    def __init__(self, wanting: Wanting) -> None:
        self.wanting = wanting

    def wanted_changed(self, change: RouteChange) -> None:
        if change.share is not None:
            self.wanting.look()


class Wanting:
    def __init__(self, own: OwnClient, folder: Path | None) -> None:
        self.own = own
        self.server = own.server
        self.catches = Catches(folder, self._has_caught)
        self.topics: set[str] = set()
        """Caught whatever other nodes want (retained.py)."""
        self.fresh: dict[str, bool] = {}
        """Of these, those of which the home broker is asked for what is retained (retained.py)."""
        self.sends_back = False
        """The home broker has no No Local, or is not to be asked for it."""
        self.is_telling = False
        self._look: Timer | None = None
        self._waiting: list[Callable[[], None]] = []
        if own.keeps_groups:
            self.server.router.feed.listen(_Groups(self))
        self._was_up = False

    def up(self, is_present: bool, sends_back: bool) -> None:
        self.sends_back = sends_back
        self._was_up = True
        self.catches.up(self._subscribe, self._unsubscribe, is_present)

    def down(self) -> None:
        self.own.copies = None
        self.catches.down()

    def look(self) -> None:
        """What other nodes want may have changed: subscribe to it at the home broker."""
        own, catches = self.own, self.catches
        coordination = own.links.coordination
        wanted, is_sure = coordination.wanted()
        filters: set[str] | None = None
        if wanted is not None and own.settings.catch == "wanted":
            filters = {split_shared(each)[1] for each in wanted} | self.topics | self._groups()
            if not is_sure:  # what was caught before may still be wanted
                filters |= catches.at_broker & catches.wanted if self._was_up else catches.at_broker
        catches.want(catching(filters, own.settings.max_filters), coordination.heard())

    def _groups(self) -> set[str]:
        """What groups want that the proxy keeps and that have members here."""
        groups = self.server.router.groups.all() if self.own.keeps_groups else []
        return {each.filter for each in groups if len(each) and not each.filter.startswith(NOT_FOR_NODES)}

    def _has_caught(self, upto: dict[str, Stamp]) -> None:
        self.own.links.caught(upto)
        if self.catches.is_settled:
            waiting, self._waiting = self._waiting, []
            for tell in waiting:
                tell()

    def when_caught(self, tell: Callable[[], None]) -> None:
        """When the home broker is subscribed to for all that is wanted now, or is away."""
        if self.catches.is_settled:
            tell()
        else:
            self._waiting.append(tell)

    def look_soon(self) -> None:
        """Before this turn ends."""
        if self._look is None:
            self._look = self.server.timers.at(self.server.hot.now, self._look_now)

    def _look_now(self) -> None:
        self._look = None
        self.look()

    def is_caught(self, topic: str) -> bool:
        return any(matches(each, topic) for each in self.catches.at_broker)

    # ---- packets -------------------------------------------------------------------------------------------------

    def _subscribe(self, filters: list[str]) -> None:
        connection = self.own.connection
        assert connection is not None
        is_new = connection.channel.version == V5
        requests = [
            SubscribeRequest(
                each,
                QOS,
                no_local=is_new and not self.sends_back,
                retain_as_published=is_new,
                retain_handling=2 if is_new and each not in self.fresh else 0,
            )
            for each in filters
        ]
        self.is_telling = not is_new
        connection.write(Subscribe(connection.reserve(), requests))

    def _unsubscribe(self, filters: list[str]) -> None:
        connection = self.own.connection
        assert connection is not None
        connection.write(Unsubscribe(connection.reserve(), filters))

    def acknowledged(self, packet: Suback | Unsuback) -> None:
        own = self.own
        if isinstance(packet, Suback):
            if own.connection is not None and own.connection.connect.bridge:
                own.connection.ping()  # Mosquitto, which knows bridges, answers behind what is retained
            self._look_for_copies()
        elif own.copies is not None:
            own.copies.is_unsubscribed = True
            when = self.server.hot.now + own.settings.fence_interval  # no longer than an echo takes
            self.server.timers.at(when, partial(self._no_copies, own.copies))
        self.catches.acknowledged(packet.reasons)

    def _look_for_copies(self) -> None:
        """A step is subscribed to; what it takes the place of is still there."""
        catches, own = self.catches, self.own
        old = catches.at_broker - catches.wanted
        if old and own.abilities is not None and own.abilities.copies and own.connection is not None:
            own.copies = Copies(old, catches.wanted)
            own.connection.choose_way()

    def _no_copies(self, copies: Copies) -> None:
        if self.own.copies is copies and not self.catches.is_busy:
            self.own.copies = None
            if self.own.connection is not None:
                self.own.connection.choose_way()
