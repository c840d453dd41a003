"""Who × rule × action: allowed and refused as the table says. Each cell is a test of its own.

The topic is `t/1`. `publish` and `will` ask whether a message to it gets through, `subscribe` whether SUBACK grants its
filter, `share` the same for a shared group, `receive` whether one who could subscribe to everything gets its messages,
live and retained.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headwater.message import Message
from headwater.wire.packets import Connect, Puback, Publish, Pubrec, Suback, Subscribe, SubscribeRequest, Will
from headwater.wire.reasons import NOT_AUTHORIZED, SUCCESS, UNSPECIFIED_ERROR
from tests.node.access.arriving import arrive, broker_with, key_file, of_kind, rules_file, users_file
from tests.node.access.test_tokens import token
from tests.node.memory import Client, MemoryBroker

TABLE = """
rule                          publish  will  subscribe  share  receive
(none)                        no       no    no         no     no
topic read t/1                no       no    yes        yes    yes
topic read t/#                no       no    yes        yes    yes
topic read #                  no       no    yes        yes    yes
topic read t/2                no       no    no         no     no
topic write t/1               yes      yes   no         no     no
topic write +/1               yes      yes   no         no     no
topic write t/2               no       no    no         no     no
topic readwrite t/#           yes      yes   yes        yes    yes
topic t/1                     yes      yes   yes        yes    yes
topic subscribe t/1           no       no    yes        no     no
topic receive t/1             no       no    no         no     yes
topic deny t/1                no       no    no         no     no
topic # ; topic deny t/1      no       no    no         no     no
topic deny t/1 ; topic #      no       no    no         no     no
topic # ; topic deny t/2      yes      yes   yes        yes    yes
pattern write t/%d            no       no    no         no     no
pattern readwrite %u/1        no       no    no         no     no
pattern readwrite t/%c        yes      yes   yes        yes    yes
pattern read t/%c             no       no    yes        yes    yes
pattern # ; pattern deny +/%c no       no    no         no     no
"""
ACTIONS = ["publish", "will", "subscribe", "share", "receive"]
LISTENER = "user listener\ntopic read #\n"
CLIENT_ID = "1"
"""So that `t/%c` is the topic."""


class Who(NamedTuple):
    """How a client shows who it is; the rules are for `user`."""

    user: str | None
    connect: dict[str, Any]
    certificate: str | None = None
    in_token: bool = False


WHO = {
    "anonymous": Who(None, {}),
    "password": Who("alice", {"username": "alice", "password": b"right"}),
    "token": Who("alice", {"username": "bob", "password": token()}),
    "rules in the token": Who("alice", {"username": "bob"}, in_token=True),
    "certificate": Who("alice", {"username": "bob"}, "alice"),
}


def rows() -> list[tuple[str, str, bool]]:
    found = []
    for line in TABLE.strip().splitlines()[1:]:
        *_, publish, will, subscribe, share, receive = line.split()
        rule = line[:30].strip()
        cells = [publish, will, subscribe, share, receive]
        assert set(cells) <= {"yes", "no"}
        found += [(rule, action, cell == "yes") for action, cell in zip(ACTIONS, cells, strict=True)]
    return found


def as_claim(rule: str) -> dict[str, list[str]] | None:
    """The same in a token; None where a token cannot say it: it does not deny."""
    claim: dict[str, list[str]] = {"publish": [], "subscribe": [], "receive": []}
    for part in rule.split(" ; ") if rule != "(none)" else []:
        _, *words, filter = part.split()
        word = words[0] if words else "readwrite"
        if word == "deny":
            return None
        for action, including in (
            ("publish", ("write", "readwrite")),
            ("subscribe", ("read", "readwrite", "subscribe")),
            ("receive", ("read", "readwrite", "receive")),
        ):
            if word in including:
                claim[action].append(filter)
    return claim


CELLS = [
    pytest.param(who, rule, action, allowed, version, id=f"{name}-{rule}-{action}-{version}")
    for name, who in WHO.items()
    for rule, action, allowed in rows()
    for version in ((4, 5) if who.certificate is None and not who.in_token else (5,))
    if not who.in_token or as_claim(rule) is not None
]


async def broker_and_client(
    who: Who, rule: str, version: int, folder: Path, **more: Any
) -> tuple[MemoryBroker, Client]:
    lines = [] if rule == "(none)" else rule.split(" ; ")
    text = "".join(f"{line}\n" for line in lines)
    if who.user is not None:
        text = f"user {who.user}\n{text}"
    broker = broker_with(
        acl_file=rules_file(folder, ("user other\ntopic readwrite #\n" if who.in_token else text) + LISTENER),
        password_file=users_file(folder, alice="right"),
        jwt_key_file=key_file(folder),
        others={"allow_anonymous": True},
    )
    connect = {**who.connect, "password": token(acl=as_claim(rule))} if who.in_token else who.connect
    client, answer = await arrive(broker, Connect(CLIENT_ID, version, **connect, **more), who.certificate)
    assert answer.reason == SUCCESS
    return broker, client


async def listener_of(broker: MemoryBroker) -> Client:
    """One who gets all that is published."""
    listener, _ = await arrive(broker, Connect("listener", 5), "listener")
    listener.send(Subscribe(1, [SubscribeRequest("#", 0)]))
    listener.packets()
    return listener


async def publishing(who: Who, rule: str, allowed: bool, version: int, folder: Path) -> None:
    broker, client = await broker_and_client(who, rule, version, folder)
    listener = await listener_of(broker)
    client.send(Publish("t/1", b""), Publish("t/1", b"", 1, packet_id=1), Publish("t/1", b"", 2, packet_id=2))
    assert [message.topic for message in listener.messages()] == (["t/1"] * 3 if allowed else [])
    first, second = client.packets()
    assert isinstance(first, Puback) and isinstance(second, Pubrec)
    refused = {first.reason, second.reason} == {NOT_AUTHORIZED}
    assert refused is (not allowed and version == 5), "3.1.1 cannot say no"


async def leaving_a_will(who: Who, rule: str, allowed: bool, version: int, folder: Path) -> None:
    broker, client = await broker_and_client(who, rule, version, folder, will=Will("t/1", b"gone"))
    listener = await listener_of(broker)
    client.lose()
    assert [message.topic for message in listener.messages()] == (["t/1"] if allowed else [])


async def subscribing(who: Who, rule: str, allowed: bool, version: int, folder: Path, filter: str = "t/1") -> None:
    _, client = await broker_and_client(who, rule, version, folder)
    client.send(Subscribe(1, [SubscribeRequest(filter, 1)]))
    (answer,) = of_kind(client, Suback)
    assert isinstance(answer, Suback)
    assert answer.reasons == [1 if allowed else NOT_AUTHORIZED if version == 5 else UNSPECIFIED_ERROR]


async def sharing(who: Who, rule: str, allowed: bool, version: int, folder: Path) -> None:
    await subscribing(who, rule, allowed, version, folder, "$share/g/t/1")


async def receiving(who: Who, rule: str, allowed: bool, version: int, folder: Path) -> None:
    broker, client = await broker_and_client(who, rule, version, folder)
    rights = client.channel.rights
    assert rights is not None
    rights.may_subscribe = lambda filter, shared: True  # type: ignore[method-assign]
    broker.server.publishing.route(Message("t/1", b"kept", retain=True), None)
    client.send(Subscribe(1, [SubscribeRequest("#", 1)]))
    broker.server.publishing.route(Message("t/1", b"live", 1), None)
    broker.turn()
    assert [message.payload for message in client.messages()] == ([b"kept", b"live"] if allowed else [])


CHECKS: dict[str, Callable[..., Any]] = {
    "publish": publishing,
    "will": leaving_a_will,
    "subscribe": subscribing,
    "share": sharing,
    "receive": receiving,
}


@pytest.mark.parametrize(("who", "rule", "action", "allowed", "version"), CELLS)
def test_the_table_is_obeyed(who: Who, rule: str, action: str, allowed: bool, version: int, tmp_path: Path) -> None:
    asyncio.run(CHECKS[action](who, rule, allowed, version, tmp_path))


def test_the_table_is_whole() -> None:
    assert len(rows()) == 21 * len(ACTIONS)
    assert {allowed for _, _, allowed in rows()} == {True, False}
    assert len(CELLS) == 7 * len(rows()) + sum(as_claim(rule) is not None for rule, _, _ in rows())
