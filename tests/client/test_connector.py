"""Connecting, and connecting again: back-off, what is given up, what goes on."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl

import pytest

from headwater.client import V311, Client, ConnectError, Disconnected, Properties, Reconnect
from headwater.client.reconnect import is_worth_another_try
from headwater.wire import reasons
from headwater.wire.packets import Connack, Connect, Disconnect, Puback, Publish, Suback, Subscribe
from tests.brokers import free_port
from tests.client.scripted import SOON, Peer, Scripted, run, until

PRESENT = Connack(session_present=True)


async def cut(peer: Peer) -> None:
    await peer.accept()
    peer.cut()


def test_a_session_is_kept_over_reconnects_and_ended_when_we_leave() -> None:
    """With the id that the server gave us, and never a clean start again."""

    async def first(peer: Peer) -> None:
        connect = await peer.accept(Connack(properties=Properties(assigned_client_identifier="you")))
        assert (connect.client_id, connect.clean_start) == ("", True)
        assert connect.properties == Properties(session_expiry_interval=300, receive_maximum=100)
        peer.cut()

    async def second(peer: Peer) -> None:
        connect = await peer.accept(PRESENT)
        assert (connect.client_id, connect.clean_start) == ("you", False)
        assert connect.properties == Properties(session_expiry_interval=300, receive_maximum=100)
        assert await peer.goodbye() == Disconnect(0, Properties(session_expiry_interval=0))

    async def scenario() -> None:
        async with Scripted(first, second) as port, Client("127.0.0.1", port, reconnect=SOON) as client:
            assert client.client_id == "you"
            await until(lambda: client.session_present)
            assert client.is_connected

    run(scenario())


def test_a_session_that_was_asked_for_is_left_to_the_server() -> None:
    async def script(peer: Peer) -> None:
        connect = await peer.accept()
        assert connect.properties is not None
        assert connect.properties.session_expiry_interval == 1000
        assert await peer.goodbye() == Disconnect()

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port, session_expiry=1000):
            pass

    run(scenario())


@pytest.mark.parametrize("clean_start", [True, False])
def test_in_3_1_1_a_clean_session_stays_clean(clean_start: bool) -> None:
    async def script(peer: Peer) -> None:
        assert (await peer.accept()).clean_start == clean_start
        peer.cut()

    async def last(peer: Peer) -> None:
        assert (await peer.accept()).clean_start == clean_start
        await peer.goodbye()

    async def scenario() -> None:
        async with (
            Scripted(script, last, version=V311) as port,
            Client("127.0.0.1", port, version=V311, client_id="a", clean_start=clean_start, reconnect=SOON) as client,
        ):
            await until(lambda: not client.is_connected)
            await client.wait_connected()

    run(scenario())


def test_iterating_simply_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def session(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a", b"x"))
        await peer.writer.drain()
        await taken.acquire()
        peer.cut()

    async def last(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a", b"last"))
        await peer.goodbye()

    taken = asyncio.Semaphore(0)

    async def scenario() -> None:
        async with Scripted(session, session, last) as port, Client("127.0.0.1", port, reconnect=SOON) as client:
            count = 0
            async for message in client.messages:
                count += 1
                taken.release()
                if message.payload == b"last":
                    break
            assert count == 3

    with caplog.at_level(logging.INFO, "headwater.client"):
        run(scenario())
    lines = [record.getMessage() for record in caplog.records if record.name == "headwater.client"]
    assert len(lines) == 4
    assert lines[0].startswith("the connection was lost; connecting again in 0.0 seconds")
    assert lines[1].startswith("connected again to 127.0.0.1:")


def test_a_server_that_is_away_for_a_while() -> None:
    """Nobody listens, then somebody listens who does not answer, then the server is back."""

    async def mute(peer: Peer) -> None:
        await peer.receive(Connect)
        assert await peer.next_packet() is None

    async def back(peer: Peer) -> None:
        await peer.accept(PRESENT)
        peer.send(Puback((await peer.receive(Publish)).packet_id))
        await peer.goodbye()

    async def scenario() -> None:
        async with (
            Scripted(cut, mute, back) as port,
            Client("127.0.0.1", port, reconnect=SOON, timeout=0.2) as client,
        ):
            assert await client.publish("a", b"", qos=1) == 0

    run(scenario())


@pytest.mark.parametrize(
    "reason",
    [
        reasons.BAD_USER_NAME_OR_PASSWORD,
        reasons.NOT_AUTHORIZED,
        reasons.BANNED,
        reasons.CLIENT_IDENTIFIER_NOT_VALID,
        reasons.PROTOCOL_ERROR,
        reasons.MALFORMED_PACKET,
        reasons.USE_ANOTHER_SERVER,
        reasons.SERVER_MOVED,
    ],
)
def test_a_refusal_that_will_not_go_away_ends_it(reason: int) -> None:
    async def refuse(peer: Peer) -> None:
        await peer.accept(Connack(reason=reason, properties=Properties(server_reference="b.example")))

    async def scenario() -> None:
        async with Scripted(cut, refuse) as port, Client("127.0.0.1", port, reconnect=SOON) as client:
            results = await asyncio.gather(
                anext(client.messages),
                client.publish("a", b"", qos=1),
                client.subscribe("a"),
                return_exceptions=True,
            )
            for result in results:
                assert isinstance(result, Disconnected)
                assert result.reason == reason
                assert result.properties is not None
                assert result.properties.server_reference == "b.example"
                assert str(result).startswith("the connection was lost, and 127.0.0.1:")
            assert not client.is_connected

    run(scenario())


@pytest.mark.parametrize("reason", [reasons.SERVER_BUSY, reasons.SERVER_UNAVAILABLE, reasons.QUOTA_EXCEEDED])
def test_a_refusal_that_may_go_away_is_tried_again(reason: int) -> None:
    async def refuse(peer: Peer) -> None:
        await peer.accept(Connack(reason=reason))

    async def accept(peer: Peer) -> None:
        await peer.accept(PRESENT)
        await peer.goodbye()

    async def scenario() -> None:
        async with (
            Scripted(cut, refuse, refuse, accept) as port,
            Client("127.0.0.1", port, reconnect=SOON) as client,
        ):
            await until(lambda: client.session_present)

    run(scenario())


@pytest.mark.parametrize(
    ("reason", "again"),
    [
        (reasons.SERVER_SHUTTING_DOWN, True),
        (reasons.KEEP_ALIVE_TIMEOUT, True),
        (reasons.ADMINISTRATIVE_ACTION, True),
        (reasons.SESSION_TAKEN_OVER, False),
        (reasons.NOT_AUTHORIZED, False),
        (reasons.PACKET_TOO_LARGE, False),
        (reasons.USE_ANOTHER_SERVER, False),
    ],
)
def test_a_server_that_throws_us_out(reason: int, again: bool) -> None:
    """Whoever took over our session would be thrown out by us in turn, and so on."""

    async def throw_out(peer: Peer) -> None:
        await peer.accept()
        peer.send(Disconnect(reason))

    async def accept(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a", b"back"))
        await peer.goodbye()

    async def scenario() -> None:
        scripts = [throw_out, accept] if again else [throw_out]
        async with Scripted(*scripts) as port, Client("127.0.0.1", port, reconnect=SOON) as client:
            if again:
                assert (await anext(client.messages)).payload == b"back"
            else:
                with pytest.raises(Disconnected) as raised:
                    await anext(client.messages)
                assert raised.value.reason == reason

    run(scenario())


def test_a_server_that_breaks_the_protocol_is_not_tried_again() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        peer.writer.write(b"\xff\xff\xff\xff\xff")
        assert (await peer.receive(Disconnect)).reason == reasons.MALFORMED_PACKET

    async def scenario() -> None:
        async with Scripted(script) as port, Client("127.0.0.1", port, reconnect=SOON) as client:
            with pytest.raises(Disconnected, match="broke the protocol"):
                await anext(client.messages)

    run(scenario())


def test_a_session_that_should_not_be_there() -> None:
    """[MQTT-3.2.2-4]"""

    async def script(peer: Peer) -> None:
        await peer.accept(PRESENT)
        assert (await peer.receive(Disconnect)).reason == reasons.PROTOCOL_ERROR

    async def scenario() -> None:
        async with Scripted(script) as port:
            with pytest.raises(ConnectError, match="a session is present") as raised:
                await Client("127.0.0.1", port).connect()
            assert raised.value.reason == reasons.PROTOCOL_ERROR

    run(scenario())


def test_the_first_connection_fails_at_once() -> None:
    async def scenario() -> None:
        with pytest.raises(ConnectError, match="nobody listens there"):
            async with Client("127.0.0.1", free_port()):
                pass

    run(scenario())


def test_the_first_connection_may_be_waited_for() -> None:
    async def refuse(peer: Peer) -> None:
        await peer.accept(Connack(reason=reasons.SERVER_BUSY))

    async def accept(peer: Peer) -> None:
        assert (await peer.accept()).clean_start
        await peer.goodbye()

    async def banned(peer: Peer) -> None:
        await peer.accept(Connack(reason=reasons.BANNED))

    async def scenario() -> None:
        patient = Reconnect(0.01, 0.02, from_start=True)
        async with Scripted(refuse, accept) as port, Client("127.0.0.1", port, reconnect=patient):
            pass
        async with Scripted(refuse, banned) as port:
            with pytest.raises(ConnectError, match="banned"):
                await Client("127.0.0.1", port, reconnect=patient).connect()

    run(scenario())


def test_leaving_while_there_is_no_connection() -> None:
    async def scenario() -> None:
        async with (
            Scripted(cut) as port,
            Client("127.0.0.1", port, reconnect=Reconnect(first=1000, longest=1000)) as client,
        ):
            await until(lambda: not client.is_connected)
            waiting = asyncio.create_task(client.subscribe("a"))
            await asyncio.sleep(0)
            await client.disconnect()
            with pytest.raises(Disconnected, match="the client has disconnected"):
                await waiting
            assert [message async for message in client.messages] == []

    run(scenario())


def test_a_client_connects_once() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(script) as port:
            async with Client("127.0.0.1", port) as client:
                pass
            with pytest.raises(RuntimeError, match="connects once"):
                await client.connect()

    run(scenario())


def test_the_wait_grows_up_to_the_longest_with_full_jitter() -> None:
    reconnect = Reconnect(first=0.5, longest=30.0)
    assert [reconnect.longest_wait(failures) for failures in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert reconnect.longest_wait(10_000) == 30
    waits = [reconnect.wait(3) for _ in range(1000)]
    assert min(waits) < 0.4
    assert 3.6 < max(waits) <= 4.0


def test_the_wait_starts_anew_after_a_connection_that_lasted(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only then: a server that accepts and hangs up at once, again and again, is not hammered."""
    asked: list[int] = []

    def wait(self: Reconnect, failures: int) -> float:
        asked.append(failures)
        return 0.0

    monkeypatch.setattr(Reconnect, "wait", wait)

    async def lasting(peer: Peer) -> None:
        await peer.accept()
        await asyncio.sleep(0.8)
        peer.cut()

    async def last(peer: Peer) -> None:
        await peer.accept()
        peer.send(Publish("a", b""))
        await peer.goodbye()

    async def scenario() -> None:
        reconnect = Reconnect(first=0.5, longest=0.5)
        scripts = [cut, cut, cut, lasting, last]
        async with Scripted(*scripts) as port, Client("127.0.0.1", port, reconnect=reconnect) as client:
            await anext(client.messages)

    run(scenario())
    assert asked == [0, 1, 2, 0]


def test_a_certificate_that_is_not_accepted_is_not_tried_again() -> None:
    error = ConnectError("no")
    assert is_worth_another_try(error)
    error.__cause__ = ssl.SSLCertVerificationError()
    assert not is_worth_another_try(error)


@pytest.mark.parametrize("session_present", [True, False])
def test_a_request_is_asked_again_on_the_next_connection(session_present: bool) -> None:
    async def first(peer: Peer) -> None:
        await peer.accept()
        await peer.receive(Subscribe)
        peer.cut()

    async def second(peer: Peer) -> None:
        await peer.accept(Connack(session_present))
        subscribe = await peer.receive(Subscribe)
        assert [request.filter for request in subscribe.requests] == ["a"]
        peer.send(Suback(subscribe.packet_id, [1]))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(first, second) as port, Client("127.0.0.1", port, reconnect=SOON) as client:
            assert await client.subscribe("a", qos=1) == [1]

    run(scenario())


def test_a_server_that_hangs_up_at_once_is_not_waited_for() -> None:
    """Before we have said anything; the attempt must not last until its time-out."""

    async def scenario() -> None:
        def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.abort()

        server = await asyncio.start_server(hang_up, "localhost", 0)
        port = server.sockets[0].getsockname()[1]
        for host in ("localhost", "127.0.0.1", "::1"):
            with pytest.raises(ConnectError, match="cannot connect"):
                await Client(host, port, timeout=1000).connect()
        server.close()

    run(scenario())


def test_connecting_may_be_cancelled() -> None:
    async def mute(peer: Peer) -> None:
        await peer.receive(Connect)
        assert await peer.next_packet() is None

    async def scenario() -> None:
        async with Scripted(mute) as port:
            client = Client("127.0.0.1", port)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.connect()
            assert not client.is_connected
            await client.disconnect()

    run(scenario())


def test_leaving_while_connecting_again() -> None:
    async def mute(peer: Peer) -> None:
        await peer.receive(Connect)
        is_connecting.set()
        assert await peer.next_packet() is None

    is_connecting = asyncio.Event()

    async def scenario() -> None:
        async with Scripted(cut, mute) as port, Client("127.0.0.1", port, reconnect=SOON):
            await is_connecting.wait()

    run(scenario())


def test_any_reason_is_worth_another_try_if_it_is_to_go_on_always() -> None:
    async def refuse(peer: Peer) -> None:
        await peer.accept(Connack(False, reasons.NOT_AUTHORIZED))

    async def scenario() -> None:
        always = Reconnect(first=0.01, longest=0.02, from_start=True, always=True)
        async with (
            Scripted(refuse, taken_over, refuse, stay) as port,
            Client("127.0.0.1", port, reconnect=always) as client,
        ):
            assert (await anext(client.messages)).topic == "a"

    run(scenario())


async def taken_over(peer: Peer) -> None:
    await peer.accept()
    peer.send(Disconnect(reasons.SESSION_TAKEN_OVER))


async def stay(peer: Peer) -> None:
    await peer.accept()
    peer.send(Publish("a", b""))
    await peer.goodbye()


def test_fallbacks_are_tried_in_turn_and_at_once() -> None:
    async def scenario() -> None:
        first, second = free_port(), free_port()
        slow = Reconnect(first=900, longest=900, from_start=True)
        async with (
            Scripted(stay) as port,
            Client(
                "127.0.0.1", first, fallbacks=[("127.0.0.1", second), ("127.0.0.1", port)], reconnect=slow
            ) as client,
        ):
            await anext(client.messages)

    run(scenario())


def test_after_a_loss_the_first_address_is_the_first_again() -> None:
    async def scenario() -> None:
        again = Reconnect(first=0.01, longest=0.01, from_start=True)
        async with Scripted(stay) as first, Scripted(cut) as second:
            own = Client("127.0.0.1", first, fallbacks=[("127.0.0.1", second)], reconnect=again)
            own._connector._turn = 1  # as if the first had not answered
            await own.connect()
            await anext(own.messages)
            await own.disconnect()

    run(scenario())


def test_connections_over_sockets_of_the_callers_own() -> None:
    opened = []

    async def scenario() -> None:
        async with Scripted(cut, stay) as port:

            def open_socket() -> socket.socket:
                opened.append(socket.create_connection(("127.0.0.1", port)))
                opened[-1].setblocking(False)
                return opened[-1]

            async with Client("nowhere", open_socket=open_socket, reconnect=SOON) as client:
                await anext(client.messages)

    run(scenario())
    assert len(opened) == 2


def test_changes_are_told() -> None:
    told: list[str] = []

    async def scenario() -> None:
        port = free_port()
        again = Reconnect(first=0.01, longest=0.01, from_start=True)
        client = Client("127.0.0.1", port, reconnect=again, on_change=lambda error: told.append(str(error)))
        connecting = asyncio.create_task(client.connect())
        await until(lambda: told)
        assert "nobody listens there" in told[0]
        connecting.cancel()
        told.clear()
        async with (
            Scripted(cut, stay) as port,
            Client("127.0.0.1", port, reconnect=again, on_change=lambda error: told.append(str(error))) as client,
        ):
            await anext(client.messages)

    run(scenario())
    assert [text.split(":")[0] for text in told] == ["None", "the connection was lost", "None"]


def test_a_client_that_is_suspended_leaves_and_comes_back_to_its_session() -> None:
    """What was asked meanwhile waits; nothing is logged as lost."""
    suspended = asyncio.Event()

    async def first(peer: Peer) -> None:
        await peer.accept()
        assert await peer.goodbye() == Disconnect()
        suspended.set()

    async def second(peer: Peer) -> None:
        connect = await peer.accept(PRESENT)
        assert not connect.clean_start
        publish = await peer.receive(Publish)
        peer.send(Puback(publish.packet_id))
        await peer.goodbye()

    async def scenario() -> None:
        slow = Reconnect(first=900, longest=900)
        async with Scripted(first, second) as port, Client("127.0.0.1", port, reconnect=slow) as client:
            client.suspend()
            await suspended.wait()
            publishing = asyncio.create_task(client.publish("a", "x", qos=1))
            await until(lambda: not client.is_connected)
            client.resume()
            assert await publishing == 0

    run(scenario())


def test_a_client_may_be_resumed_before_it_has_gone() -> None:
    async def scenario() -> None:
        slow = Reconnect(first=900, longest=900)
        async with Scripted(leave, stay) as port, Client("127.0.0.1", port, reconnect=slow) as client:
            client.suspend()
            client.resume()
            await anext(client.messages)

    run(scenario())


async def leave(peer: Peer) -> None:
    await peer.accept()
    await peer.goodbye()


def test_a_client_that_is_suspended_while_it_connects_leaves_again() -> None:
    async def scenario() -> None:
        slow = Reconnect(first=0.01, longest=0.01)

        async def suspends(peer: Peer) -> None:
            connect = await peer.receive(Connect)
            client.suspend()
            assert not connect.clean_start
            peer.send(PRESENT)
            await peer.goodbye()
            client.resume()

        async with Scripted(cut, suspends, stay) as port:
            client = Client("127.0.0.1", port, reconnect=slow)
            await client.connect()
            await anext(client.messages)
            await client.disconnect()

    run(scenario())


def test_a_server_that_does_not_know_the_mark_of_bridges_is_told_no_more() -> None:
    seen: list[bool] = []

    async def refuse(peer: Peer) -> None:
        seen.append((await peer.accept(Connack(False, 1))).bridge)

    async def accept(peer: Peer) -> None:
        seen.append((await peer.accept()).bridge)
        peer.send(Publish("a", b""))
        await peer.goodbye()

    async def scenario() -> None:
        always = Reconnect(first=0.01, longest=0.02, from_start=True, always=True)
        async with (
            Scripted(refuse, accept, version=V311) as port,
            Client("127.0.0.1", port, version=V311, bridge=True, reconnect=always) as client,
        ):
            await anext(client.messages)

    run(scenario())
    assert seen == [True, False]


def test_messages_may_be_submitted_before_there_is_a_connection_and_without_waiting() -> None:
    async def serve(peer: Peer) -> None:
        await peer.accept()
        for _ in range(2):
            publish = await peer.receive(Publish)
            peer.send(Puback(publish.packet_id, reasons.NO_MATCHING_SUBSCRIBERS))
        await peer.goodbye()

    async def scenario() -> None:
        async with Scripted(serve) as port:
            client = Client("127.0.0.1", port)
            answers = [client.submit(Publish("a", b"x", 1)) for _ in range(2)]
            await client.connect()
            assert [await answer for answer in answers] == [reasons.NO_MATCHING_SUBSCRIBERS] * 2
            await client.disconnect()

    run(scenario())
