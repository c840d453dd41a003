"""Who keeps a record on disk of what is under way with QoS 2: ids of its own, PUBREL when it says so, and what an
earlier process left."""

from __future__ import annotations

import asyncio

import pytest

from headwater.client import V5, V311, Client, Disconnected, Publish
from headwater.wire.packets import Connack, Pubcomp, Pubrec, Pubrel
from tests.client.scripted import SOON, Peer, Scripted, run

PRESENT = Connack(session_present=True)


def made(port: int, version: int = V5) -> Client:
    return Client(
        "127.0.0.1",
        port,
        version=version,
        client_id="me",
        clean_start=False,
        session_expiry=600 if version == V5 else None,
        keeps_record=True,
        reconnect=SOON,
    )


@pytest.mark.parametrize("version", [V5, V311])
def test_pubrel_waits_until_it_is_released(version: int) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        publish = await peer.receive(Publish)
        assert (publish.packet_id, publish.dup) == (7, False)
        peer.send(Pubrec(7))
        assert (await peer.receive(Publish)).packet_id == 8  # and no PUBREL between them
        assert (await peer.receive(Pubrel)).packet_id == 7
        peer.send(Pubcomp(7))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script, version=version) as port, made(port, version) as client:
            assert await client.submit(Publish("a", b"", 2), packet_id=7) == 0
            client.submit(Publish("b", b"", 2), packet_id=8)
            assert await client.release(7) == 0

    run(scenario())


def test_what_waits_for_its_release_is_not_released_by_a_new_connection() -> None:
    async def first(peer: Peer) -> None:
        await peer.accept()
        peer.send(Pubrec((await peer.receive(Publish)).packet_id))
        await peer.receive(Publish)
        peer.cut()

    async def second(peer: Peer) -> None:
        await peer.accept(PRESENT)
        again = await peer.receive(Publish)  # the one that was not confirmed; and no PUBREL for the other
        assert (again.packet_id, again.dup) == (2, True)
        peer.send(Pubrec(2))
        assert (await peer.receive(Pubrel)).packet_id == 1
        peer.cut()

    async def third(peer: Peer) -> None:
        await peer.accept(PRESENT)
        assert (await peer.receive(Pubrel)).packet_id == 1  # goes again, and the other one waits still
        peer.send(Pubcomp(1))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(first, second, third) as port, made(port) as client:
            await client.submit(Publish("a", b"", 2), packet_id=1)
            await client.submit(Publish("b", b"", 2), packet_id=2)
            assert await client.release(1) == 0

    run(scenario())


def test_what_an_earlier_process_left_goes_on_under_its_ids() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept(PRESENT)
        assert (await peer.receive(Pubrel)).packet_id == 3
        again = await peer.receive(Publish)
        assert (again.packet_id, again.dup, again.payload) == (4, True, b"x")
        peer.send(Pubcomp(3), Pubrec(4))
        new = [await peer.next_packet(), await peer.next_packet()]
        # Of an id that is new here, the server may know more than we do; so PUBREL goes before it.
        assert isinstance(new[0], Pubrel) and isinstance(new[1], Publish)
        assert (new[0].packet_id, new[1].packet_id, new[1].dup) == (5, 5, False)
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port:
            client = made(port)
            released = client.release(3)
            sent = client.submit(Publish("a", b"x", 2), packet_id=4, is_again=True)
            async with client:
                assert await asyncio.gather(released, sent) == [0, 0]
                client.submit(Publish("a", b"y", 2), packet_id=5)
                await asyncio.sleep(0)

    run(scenario())


def test_without_the_session_it_goes_as_a_new_message() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        again = await peer.receive(Publish)
        assert (again.packet_id, again.dup) == (4, False)
        peer.send(Pubrec(4))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port:
            client = made(port)
            released = client.release(3)
            sent = client.submit(Publish("a", b"x", 2), packet_id=4, is_again=True)
            async with client:
                assert await asyncio.gather(released, sent) == [0, 0]

    run(scenario())


def test_releases_end_with_the_client() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept(PRESENT)
        await peer.receive(Pubrel)
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port:
            async with made(port) as client:
                released = client.release(3)
                assert client.release(3) is released
            with pytest.raises(Disconnected):
                await released
            with pytest.raises(Disconnected):
                client.release(4)

    run(scenario())
