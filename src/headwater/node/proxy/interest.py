"""What the clients of the home broker want, as the relay taps it: together, the subscriptions of the proxy's session.

A filter is wanted as long as one client has it. What a client of a persistent session has is wanted while it is away,
also over a restart of the proxy where that has a data folder:

    y <client id> 0 <filter>   nothing: that it is there says it; so a SUBSCRIBE writes as much as it adds

Every entry counts in bytes, with all that sessions keep (`max_session_memory`). The home broker has granted what comes
here, so nothing can be refused: where there is no room, the proxy wants everything, from then on, and keeps nothing of
clients that come.

The filter of a shared group is wanted as any: each home broker gives the message to one of its own members.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from headwater.message import text_size
from headwater.node.links.receiving import NOT_FOR_NODES
from headwater.node.protocol.core import ClientTask, Core
from headwater.node.proxy.catching import EVERYTHING
from headwater.node.proxy.client import OwnClient
from headwater.node.proxy.tap import TappedClient, Watcher
from headwater.routing.topics import ANY_LEVELS, InvalidTopicFilter, check_filter, split_shared

log = logging.getLogger("headwater.proxy")

RECORD: Final = b"y"
CLIENT: Final = 600
ENTRY: Final = 160
"""Bytes that a client, and a filter of one, count with beside their texts."""
REFUSED: Final = 0x80


class _Tapped:
    def __init__(self) -> None:
        self.client: TappedClient | None = None
        """None: it is away."""
        self.filters: set[str] = set()
        """As the client wrote them."""
        self.is_persistent = False


class _Held(ClientTask):
    """A SUBACK that waits for other nodes."""

    def __init__(self, core: Core, home: OwnClient, release: Callable[[], None]) -> None:
        connection = home.connection
        assert connection is not None
        super().__init__(core, connection.channel)
        self._release = release

    def released(self) -> None:
        self._release()


class Interest(Watcher):
    def __init__(self, home: OwnClient) -> None:
        self.home = home
        self.server = home.server
        self.is_everything = False
        """There was no room for more."""
        self.on_retained: Callable[[str, bytes | None, int], None] | None = None
        self._clients: dict[str, _Tapped] = {}
        self._counts: dict[str, int] = {}

    def start(self) -> None:
        """When what is on disk has been recovered."""
        for key, _ in self.home.links.spooling.kept(RECORD):
            client_id, _, name = key[len(RECORD) :].decode().partition("\0")
            tapped = self._clients.get(client_id)
            if tapped is None:
                tapped = self._clients[client_id] = _Tapped()
                self._count(client_id, CLIENT)
            self._add(client_id, tapped, name)
        for tapped in self._clients.values():
            tapped.is_persistent = True
        session = self.home.session
        for filter in [each for each in session.subscriptions if each not in self._counts and each != EVERYTHING]:
            self.home.want_no_more(filter)  # of clients whose sessions ended with the process

    # ---- what the relay says -------------------------------------------------------------------------------------

    def opened(self, client: TappedClient) -> None:
        tapped = self._clients.get(client.client_id)
        if tapped is not None and not client.session_present:
            self._drop(client.client_id, tapped)
            tapped = None
        if tapped is None:
            if not self._has_room(CLIENT + text_size(client.client_id)):
                self._want_everything()
            if self.is_everything:
                return
            tapped = self._clients[client.client_id] = _Tapped()
            self._count(client.client_id, CLIENT)
        tapped.client = client
        if tapped.is_persistent != client.is_persistent:
            tapped.is_persistent = client.is_persistent
            for name in tapped.filters:
                self._keep(client.client_id, name, tapped.is_persistent)

    def subscribing(
        self, client: TappedClient, packet_id: int, filters: list[tuple[str, int]], release: Callable[[], None]
    ) -> bool:
        tapped = self._clients.get(client.client_id)
        if tapped is None or tapped.client is not client:
            return False
        is_new = False
        for name, granted in filters:
            if granted < REFUSED and name not in tapped.filters:
                is_new = self._add(client.client_id, tapped, name) or is_new
        gate = self.server.interest
        if not is_new or gate is None or self.home.connection is None:
            return False
        return gate.hold(_Held(self.server, self.home, release))

    def unsubscribed(self, client: TappedClient, filters: list[str]) -> None:
        tapped = self._clients.get(client.client_id)
        if tapped is not None and tapped.client is client:
            for name in filters:
                self._remove(client.client_id, tapped, name)

    def retained(self, client: TappedClient, topic: str, payload: bytes | None, qos: int) -> None:
        if self.on_retained is not None:
            self.on_retained(topic, payload, qos)

    def closed(self, client: TappedClient, session_ended: bool) -> None:
        tapped = self._clients.get(client.client_id)
        if tapped is None or tapped.client is not client:
            return  # another connection of the same client is there
        tapped.client = None
        if session_ended:
            self._drop(client.client_id, tapped)

    def session_ended(self, client_id: str) -> None:
        """That of a client that is away has ended, or is its client's no more."""
        tapped = self._clients.get(client_id)
        if tapped is not None and tapped.client is None:
            self._drop(client_id, tapped)

    # ---- what follows --------------------------------------------------------------------------------------------

    def _add(self, client_id: str, tapped: _Tapped, name: str) -> bool:
        """Whether other nodes have to hear of it."""
        filter = _filter_of(name)
        if filter is None or self.is_everything:
            return False
        if not self._has_room(ENTRY + text_size(name)):
            self._want_everything()
            return True
        tapped.filters.add(name)
        if tapped.is_persistent:
            self._keep(client_id, name, True)
        self._count_filter(name, 1)
        self._counts[filter] = self._counts.get(filter, 0) + 1
        if not self.home.want(filter):
            self._want_everything()
        return True

    def _remove(self, client_id: str, tapped: _Tapped, name: str) -> None:
        filter = _filter_of(name)
        if name not in tapped.filters or filter is None:
            return
        tapped.filters.remove(name)
        if tapped.is_persistent:
            self._keep(client_id, name, False)
        self._count_filter(name, -1)
        count = self._counts[filter] - 1
        if count:
            self._counts[filter] = count
        else:
            del self._counts[filter]
            self.home.want_no_more(filter)

    def _drop(self, client_id: str, tapped: _Tapped) -> None:
        """The session has ended."""
        for name in list(tapped.filters):
            self._remove(client_id, tapped, name)
        del self._clients[client_id]
        self._count(client_id, -CLIENT)

    def _keep(self, client_id: str, name: str, is_there: bool) -> None:
        key = RECORD + f"{client_id}\0{name}".encode()
        self.home.links.spooling.keep(key, b"" if is_there else None)

    def _want_everything(self) -> None:
        if self.is_everything:
            return
        self.is_everything = True
        log.warning(
            "no room for more filters of the home broker's clients (max_session_memory): everything is wanted now"
        )
        for filter in list(self._counts):
            self.home.want_no_more(filter)
        for client_id, tapped in self._clients.items():
            for name in tapped.filters:
                self._count_filter(name, -1)
                if tapped.is_persistent:
                    self._keep(client_id, name, False)
            tapped.filters.clear()
        self._counts.clear()
        self.home.want(EVERYTHING)

    # ---- bytes ---------------------------------------------------------------------------------------------------

    def _has_room(self, size: int) -> bool:
        return self.server.access.quotas.has_room(None, size)

    def _count(self, client_id: str, size: int) -> None:
        self.server.access.quotas.count(
            self.home.session, size + (text_size(client_id) if size > 0 else -text_size(client_id))
        )

    def _count_filter(self, name: str, sign: int) -> None:
        self.server.access.quotas.count(self.home.session, sign * (ENTRY + text_size(name)))


def _filter_of(name: str) -> str | None:
    """What topics are matched against; None: it is nothing to other nodes."""
    try:
        _, filter = split_shared(name)
        check_filter(filter, ANY_LEVELS)
    except InvalidTopicFilter:
        return None
    return None if filter.startswith(NOT_FOR_NODES) else filter
