"""When a message is acknowledged, shown by the packets that a scripted server gets."""

from __future__ import annotations

import asyncio

import pytest

from headwater.client import V5, V311, Client, Message
from headwater.wire.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe
from headwater.wire.reasons import PACKET_IDENTIFIER_NOT_FOUND
from tests.client.scripted import Peer, Scripted, run

both_versions = pytest.mark.parametrize("version", [V311, V5], ids=["v311", "v5"])


def messages(count: int, qos: int = 1) -> list[Publish]:
    return [Publish("a", str(number).encode(), qos, packet_id=number) for number in range(1, count + 1)]


async def sync(client: Client) -> None:
    """What the server sent before the SUBACK is here afterwards, and what we sent before is there."""
    await client.subscribe("sync")


async def answer_sync(peer: Peer) -> None:
    """Nothing but a SUBSCRIBE may come."""
    peer.send(Suback((await peer.receive(Subscribe)).packet_id, [0]))


@both_versions
def test_a_message_is_acknowledged_when_the_next_is_asked_for(version: int) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(*messages(3))
        await answer_sync(peer)  # from within the body of the first: nothing before it
        assert await peer.receive(Puback) == Puback(1)
        await answer_sync(peer)
        assert await peer.receive(Puback) == Puback(2)
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script, version=version) as port, Client("127.0.0.1", port, version=version) as client:
            seen = []
            async for message in client.messages:
                seen.append(message.payload)
                await sync(client)
                if len(seen) == 2:
                    break
            assert seen == [b"1", b"2"]

    run(scenario())


def test_a_body_that_raised_does_not_acknowledge() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(*messages(3))
        assert await peer.receive(Puback) == Puback(1)
        await peer.goodbye()

    async def fails(port: int) -> None:
        async with Client("127.0.0.1", port) as client:
            async for message in client.messages:
                if message.payload == b"2":
                    raise ValueError("no")

    async def scenario() -> None:
        async with Scripted(script) as port:
            with pytest.raises(ValueError, match="no"):
                await fails(port)

    run(scenario())


def test_an_error_that_is_caught_counts_as_dealt_with() -> None:
    """Otherwise one bad message would hold back the acknowledgements of all that follow."""

    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(*messages(2))
        assert await peer.receive(Puback) == Puback(1)
        assert await peer.receive(Puback) == Puback(2)
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            for _ in range(2):
                with pytest.raises(ValueError):
                    async for _message in client.messages:
                        raise ValueError

    run(scenario())


def test_two_tasks_do_not_acknowledge_for_each_other() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(*messages(4))
        await answer_sync(peer)  # the second task has taken three, the first is still at its only one
        for number in (1, 2, 3, 4):
            assert await peer.receive(Puback) == Puback(number)
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            may_go_on = asyncio.Event()

            async def slow() -> None:
                async for message in client.messages:
                    assert message.payload == b"1"
                    await may_go_on.wait()
                    break

            async def fast() -> None:
                count = 0
                async for _ in client.messages:
                    count += 1
                    if count == 3:
                        break

            async with asyncio.TaskGroup() as group:
                group.create_task(slow())
                await asyncio.sleep(0)
                await group.create_task(fast())
                await sync(client)
                may_go_on.set()

    run(scenario())


def test_what_a_cancelled_task_had_in_hand_is_not_acknowledged() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(*messages(1))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            taken = asyncio.Event()

            async def consume() -> None:
                async for _ in client.messages:
                    taken.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(consume())
            await taken.wait()
            task.cancel()
            await asyncio.wait([task])

    run(scenario())


def test_what_a_failed_task_had_in_hand_is_not_acknowledged(caplog: pytest.LogCaptureFixture) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(*messages(1))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:

            async def consume() -> None:
                async for _ in client.messages:
                    raise ValueError

            task = asyncio.create_task(consume())
            await asyncio.wait([task])

    run(scenario())
    assert "its last message is not acknowledged" in caplog.text


def test_nobody_acknowledges_what_a_failed_task_had_in_hand(caplog: pytest.LogCaptureFixture) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(*messages(3))
        await peer.goodbye()  # the first is not acknowledged, and holds back the others

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:

            async def fail() -> None:
                async for _ in client.messages:
                    raise ValueError

            await asyncio.wait([asyncio.create_task(fail())])
            async for message in client.messages:
                if message.payload == b"3":
                    break

    run(scenario())
    assert caplog.text.count("its last message is not acknowledged") == 1


def test_asking_with_a_time_limit_takes_and_acknowledges_as_usual() -> None:
    """`wait_for` asks in a task of its own each time."""

    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(*messages(2))
        assert await peer.receive(Puback) == Puback(1)
        await answer_sync(peer)
        assert await peer.receive(Puback) == Puback(2)
        await answer_sync(peer)
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            await asyncio.wait_for(anext(client.messages), 5)
            await asyncio.wait_for(anext(client.messages), 5)
            await sync(client)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(client.messages), 0.01)
            await sync(client)

    run(scenario())


@both_versions
def test_manual_acknowledgements_leave_in_the_order_of_arrival(version: int) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(*messages(3))
        await answer_sync(peer)
        for number in (1, 2, 3):
            assert await peer.receive(Puback) == Puback(number)
        await answer_sync(peer)
        await peer.goodbye()

    async def scenario() -> None:
        async with (
            Scripted(script, version=version) as port,
            Client("127.0.0.1", port, version=version, acknowledge="manual") as client,
        ):
            first, second, third = [await anext(client.messages) for _ in range(3)]
            await third.ack()
            await second.ack()
            await second.ack()
            await sync(client)
            await first.ack()
            await sync(client)

    run(scenario())


def test_manual_mode_acknowledges_nothing_by_itself() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(*messages(2), Publish("a", b"0"))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port, acknowledge="manual") as client:
            taken: list[Message] = []
            async for message in client.messages:
                taken.append(message)
                if len(taken) == 3:
                    break
            await taken[2].ack()  # of QoS 0: nothing
            assert [message.is_done for message in taken] == [False, False, True]

    run(scenario())


def test_an_early_ack_in_automatic_mode_is_sent_once() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(*messages(2))
        assert await peer.receive(Puback) == Puback(1)
        await answer_sync(peer)
        assert await peer.receive(Puback) == Puback(2)
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            async for message in client.messages:
                await message.ack()
                if message.payload == b"2":
                    break
                await sync(client)

    run(scenario())


def test_qos_2_is_confirmed_after_the_body_and_delivered_once_though_sent_twice() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a", b"once", 2, packet_id=7), Publish("a", b"once", 2, dup=True, packet_id=7))
        await answer_sync(peer)
        assert await peer.receive(Pubrec) == Pubrec(7)
        peer.send(Publish("a", b"once", 2, dup=True, packet_id=7))
        assert await peer.receive(Pubrec) == Pubrec(7)
        peer.send(Pubrel(7))
        assert await peer.receive(Pubcomp) == Pubcomp(7)
        peer.send(Pubrel(7))
        assert await peer.receive(Pubcomp) == Pubcomp(7, PACKET_IDENTIFIER_NOT_FOUND)
        peer.send(Publish("a", b"new", 2, packet_id=7))
        assert await peer.receive(Pubrec) == Pubrec(7)
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            payloads: list[bytes] = []
            async for message in client.messages:
                if not payloads:
                    await sync(client)
                payloads.append(message.payload)
                if message.payload == b"new":
                    break
            assert payloads == [b"once", b"new"]

    run(scenario())


def test_a_message_says_what_it_is() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a/b", b"xy", 1, True, True, 9))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port, acknowledge="manual") as client:
            message = await anext(client.messages)
            assert (message.topic, message.payload, message.qos, message.packet_id) == ("a/b", b"xy", 1, 9)
            assert message.retain
            assert message.duplicate
            assert message.properties.content_type is None
            assert repr(message) == "Message('a/b', 2 B, qos 1, retain, duplicate)"

    run(scenario())


def test_a_taker_that_gave_up_leaves_the_message_to_the_next() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        subscribe = await peer.receive(Subscribe)
        peer.send(Suback(subscribe.packet_id, [0]), Publish("a", b"0"))  # in one read
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port) as client:
            first = asyncio.create_task(anext(client.messages))
            second = asyncio.create_task(anext(aiter(client.messages)))
            await asyncio.sleep(0)
            await sync(client)
            assert len(client.messages) == 1  # the first was woken up but has not run
            first.cancel()
            assert (await second).payload == b"0"

    run(scenario())


def test_the_argument_is_checked() -> None:
    with pytest.raises(ValueError, match="'after_body' or 'manual', not 'later'"):
        Client(acknowledge="later")  # type: ignore[arg-type]
