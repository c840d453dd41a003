"""Enhanced authentication, with a scripted server."""

from __future__ import annotations

import pytest

from headwater.client import Authentication, Client, ConnectError, Properties
from headwater.wire.packets import Auth, Connack, Connect, Disconnect
from headwater.wire.reasons import CONTINUE_AUTHENTICATION, PROTOCOL_ERROR, REAUTHENTICATE
from tests.client.scripted import SOON, Peer, Scripted, run, until


class Reversing(Authentication):
    method = "REVERSE"

    def start(self) -> bytes:
        return b"hello"

    def answer(self, challenge: bytes | None) -> bytes:
        assert challenge is not None
        return challenge[::-1]

    def finish(self, data: bytes | None) -> bool:
        return data == b"welcome"


def said(data: bytes, method: str = "REVERSE") -> Properties:
    return Properties(authentication_method=method, authentication_data=data)


async def exchange(peer: Peer) -> None:
    connect = await peer.receive(Connect)
    assert connect.properties is not None
    assert connect.properties.authentication_method == "REVERSE"
    assert connect.properties.authentication_data == b"hello"
    for challenge in (b"abc", b"xyz"):
        peer.send(Auth(CONTINUE_AUTHENTICATION, said(challenge)))
        assert await peer.receive(Auth) == Auth(CONTINUE_AUTHENTICATION, said(challenge[::-1]))


def test_challenges_are_answered_at_each_connection() -> None:
    async def first(peer: Peer) -> None:
        await exchange(peer)
        peer.send(Connack(properties=said(b"welcome")))
        peer.cut()

    async def second(peer: Peer) -> None:
        await exchange(peer)
        peer.send(Connack(True, properties=said(b"welcome")))
        await peer.goodbye()

    async def scenario() -> None:
        async with (
            Scripted(first, second) as port,
            Client("127.0.0.1", port, authentication=Reversing(), reconnect=SOON) as client,
        ):
            await until(lambda: client.session_present)

    run(scenario())


@pytest.mark.parametrize(
    "packet",
    [
        Auth(CONTINUE_AUTHENTICATION, said(b"abc", "OTHER")),
        Auth(REAUTHENTICATE, said(b"abc")),
        Connack(properties=said(b"get lost")),
        Connack(),
    ],
    ids=["another method", "another reason", "a server that is not who it says", "no last word"],
)
def test_a_server_that_does_not_keep_to_it_is_left(packet: Auth | Connack) -> None:
    async def script(peer: Peer) -> None:
        await peer.receive(Connect)
        peer.send(packet)
        assert (await peer.receive(Disconnect)).reason == PROTOCOL_ERROR

    async def scenario() -> None:
        async with Scripted(script) as port:
            with pytest.raises(ConnectError) as raised:
                await Client("127.0.0.1", port, authentication=Reversing()).connect()
            assert raised.value.reason is not None

    run(scenario())
