"""What the relay tells the core of clients whose bytes it passes through.

All calls come on the loop's thread, in the order of the bytes. A client is told of with `opened` first and with
`closed` last; nothing is told of a client whose CONNECT the home broker refused.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr


class TappedClient:
    """A client of the home broker, as far as its CONNECT and CONNACK tell."""

    def __init__(self, client_id: str, version: int, is_persistent: bool, session_present: bool) -> None:
        self.client_id = client_id
        """Also if the home broker has assigned it (5.0). Of a 3.1.1 client without one: a name that the relay makes
        up, unique while the connection lasts."""
        self.version = version
        """`wire.packets.V311` or `V5`; a client of 3.1 counts as one of 3.1.1."""
        self.is_persistent = is_persistent
        """Whether its session outlives the connection, as far as CONNECT and CONNACK say."""
        self.session_present = session_present
        """Whether the home broker went on with a session; what was subscribed there holds then."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Watcher:
    """The core, as the relay sees it."""

    def opened(self, client: TappedClient) -> None:
        """The home broker has accepted it (CONNACK)."""
        raise NotImplementedError

    def refused(self) -> None:
        """The home broker has not accepted a client; for whoever has heard of it before."""

    def subscribing(
        self, client: TappedClient, packet_id: int, filters: list[tuple[str, int]], release: Callable[[], None]
    ) -> bool:
        """The home broker has granted these filters, as the client wrote them, each with the QoS granted. True: hold
        the SUBACK, and what comes behind it, back until `release` is called, which is always, and once."""
        raise NotImplementedError

    def unsubscribed(self, client: TappedClient, filters: list[str]) -> None:
        """The home broker has acknowledged it."""
        raise NotImplementedError

    def retained(self, client: TappedClient, topic: str, payload: bytes | None, qos: int) -> None:
        """The client sends a PUBLISH with RETAIN; told before the home broker has it. None: a payload that the relay
        did not collect, because it is large."""
        raise NotImplementedError

    def closed(self, client: TappedClient, session_ended: bool) -> None:
        """The connection is gone. `session_ended`: so is its session."""
        raise NotImplementedError
