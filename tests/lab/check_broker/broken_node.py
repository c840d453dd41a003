"""Nodes of ours that are broken on purpose: `python -m tests.lab.check_broker.broken_node HOW PORT`.

Methods of the plain Python sources are replaced, so the process must not have the compiled ones (PYTHONPATH=src).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from typing import Any
from unittest import mock

from headwater.cli.app import app
from headwater.node.protocol import publishing
from headwater.node.protocol.attaching import Attaching
from headwater.node.protocol.ending import Ending
from headwater.node.protocol.hotpath import HotPath
from headwater.node.protocol.publishing import Publishing
from headwater.node.protocol.server import Server
from headwater.node.protocol.sharing import Sharing
from headwater.routing.retained import Retained
from headwater.wire.reasons import SESSION_TAKEN_OVER

Method = Callable[..., Any]


def replace(owner: type, name: str, make: Callable[[Method], Method]) -> None:
    mock.patch.object(owner, name, make(getattr(owner, name))).start()


def sometimes(every: int) -> Callable[[], bool]:
    turns = count(1)
    return lambda: next(turns) % every == 0


def on_hand_over(wrong: Callable[[Method, Publishing, Any, Any, Any], None]) -> None:
    replace(Publishing, "_hand_over", lambda right: lambda *words: wrong(right, *words))


def drops_acknowledged() -> None:
    now = sometimes(25)

    def wrong(right: Method, self: Publishing, fanout: Any, message: Any, publisher: Any) -> None:
        if not (message.qos and now()):
            right(self, fanout, message, publisher)

    on_hand_over(wrong)


def delivers_qos2_twice() -> None:
    now = sometimes(15)

    def wrong(right: Method, self: Publishing, fanout: Any, message: Any, publisher: Any) -> None:
        right(self, fanout, message, publisher)
        if message.qos == 2 and now():
            right(self, fanout, message, publisher)

    on_hand_over(wrong)


def delivers_qos0_twice() -> None:
    def wrong(right: Method, self: Publishing, fanout: Any, message: Any, publisher: Any) -> None:
        right(self, fanout, message, publisher)
        if message.qos == 0:
            right(self, fanout, message, publisher)

    on_hand_over(wrong)


def reorders() -> None:
    now = sometimes(10)
    held: list[tuple[Any, ...]] = []

    def wrong(right: Method, self: Publishing, fanout: Any, message: Any, publisher: Any) -> None:
        if not held and "/queue/" in message.topic and now():
            held.append((self, fanout, message, publisher))
            return
        right(self, fanout, message, publisher)
        if held and held[0][2].topic == message.topic and held[0][2].qos == message.qos:
            right(*held.pop())

    on_hand_over(wrong)


def damages_payloads() -> None:
    now = sometimes(20)

    def wrong(right: Method, self: Publishing, fanout: Any, message: Any, publisher: Any) -> None:
        if now():
            message.payload = message.payload[::-1]
        right(self, fanout, message, publisher)

    on_hand_over(wrong)


def loses_subscriptions_at_take_over() -> None:
    def make(right: Method) -> Method:
        def wrong(self: Attaching, channel: Any, packet: Any) -> Any:
            before = self.core.sessions.get(channel.client_id)
            is_taken_over = before is not None and before.connection is not None
            session = right(self, channel, packet)
            if session is not None and is_taken_over:
                self.ending.subscribing.remove_all(session)
            return session

        return wrong

    replace(Attaching, "take_over", make)


def leaves_the_earlier_connection_open() -> None:
    def make(right: Method) -> Method:
        def wrong(self: Server, channel: Any, reason: int, *rest: Any) -> None:
            if reason != SESSION_TAKEN_OVER:
                right(self, channel, reason, *rest)

        return wrong

    replace(Server, "disconnect", make)


def forgets_sessions() -> None:
    now = sometimes(3)

    def make(right: Method) -> Method:
        def wrong(self: Attaching, channel: Any, with_will: bool) -> None:
            session = channel.session
            right(self, channel, with_will)
            if session is not None and session.expiry_interval and now():
                self.ending.remove(session)

        return wrong

    replace(Attaching, "detach", make)


def publishes_wills_twice() -> None:
    def make(right: Method) -> Method:
        def wrong(self: Ending, session: Any) -> None:
            will = session.will
            right(self, session)
            if will is not None:
                self.publishing.route(will, None)

        return wrong

    replace(Ending, "publish_will", make)


def publishes_no_wills() -> None:
    replace(Ending, "publish_will", lambda right: lambda self, session: None)


def publishes_wills_of_those_who_took_their_leave() -> None:
    replace(Attaching, "detach", lambda right: lambda self, channel, with_will: right(self, channel, True))


def keeps_old_retained_messages() -> None:
    now = sometimes(4)

    def make(right: Method) -> Method:
        def wrong(self: Retained, message: Any) -> bool:
            return True if self.get(message.topic) is not None and now() else bool(right(self, message))

        return wrong

    replace(Retained, "put", make)


def gives_to_two_members() -> None:
    now = sometimes(10)

    def make(right: Method) -> Method:
        def wrong(self: Sharing, group: Any, member: Any, message: Any) -> None:
            right(self, group, member, message)
            others = [each for each in group.members if each is not member]
            if member is not None and others and now():
                right(self, group, others[0], message)

        return wrong

    replace(Sharing, "give", make)


BROKEN: dict[str, tuple[Callable[[], None], str]] = {
    "drops acknowledged": (drops_acknowledged, "acknowledged"),
    "delivers QoS 2 twice": (delivers_qos2_twice, "once"),
    "delivers QoS 0 twice": (delivers_qos0_twice, "at-most-once"),
    "reorders": (reorders, "order"),
    "damages payloads": (damages_payloads, "integrity"),
    "loses subscriptions at take-over": (loses_subscriptions_at_take_over, "acknowledged"),
    "leaves the earlier connection open": (leaves_the_earlier_connection_open, "take-over"),
    "forgets sessions": (forgets_sessions, "session"),
    "publishes wills twice": (publishes_wills_twice, "will"),
    "publishes no wills": (publishes_no_wills, "will"),
    "publishes wills after DISCONNECT": (publishes_wills_of_those_who_took_their_leave, "will"),
    "keeps old retained messages": (keeps_old_retained_messages, "retained-linearizable"),
    "gives to two members": (gives_to_two_members, "group"),
}
"""How, and the promise that it breaks."""


def main(how: str, port: str) -> None:
    assert str(publishing.__file__).endswith(".py"), "methods of compiled classes cannot be replaced"
    for name in ("_publish0", "_publish1"):  # all take the ordinary way
        replace(HotPath, name, lambda right: lambda *words: 0)
    if how != "intact":
        BROKEN[how][0]()
    app(["broker", "--port", port, "--log-level", "warning"])


if __name__ == "__main__":
    main(*sys.argv[1:])
