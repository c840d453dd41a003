"""The relay on real sockets: it changes no byte, holds little, and ends as the two ends do."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.proxy.pair import LARGEST_READ
from headwater.node.proxy.tapping import LARGEST_KEPT
from tests.node.proxy.relaying import (
    PATIENCE,
    Running,
    Way,
    accepted,
    connect_packet,
    does_not_come,
    listening,
    open_pair,
    port_of,
    read,
    relaying,
    reset,
    rest,
    under_both_planes,
)

CUTS = st.lists(st.integers(0, 3000), max_size=6)


@pytest.fixture(scope="module")
def shared(way: Way) -> Iterator[tuple[Running, socket.socket]]:
    with listening() as server, relaying(port_of(server), short_way=way) as running:
        yield running, server


def send_cut(connection: socket.socket, data: bytes, cuts: list[int]) -> None:
    """In pieces, and then say that nothing more comes."""
    at = 0
    for cut in cuts:
        connection.sendall(data[at : at + cut])
        at += cut
    connection.sendall(data[at:])
    connection.shutdown(socket.SHUT_WR)


@settings(max_examples=60)
@given(st.binary(max_size=6000), CUTS, st.binary(max_size=6000), CUTS)
def test_no_byte_is_changed_in_either_direction(
    shared: tuple[Running, socket.socket], up: bytes, up_cuts: list[int], down: bytes, down_cuts: list[int]
) -> None:
    """Whatever comes behind a CONNECT, in whatever pieces: half-closed connections go on in the other direction."""
    running, server = shared
    client, broker = open_pair(running, server)
    with client, broker:
        sending = threading.Thread(target=send_cut, args=(client, up, up_cuts))
        sending.start()
        assert rest(broker) == up
        sending.join()
        send_cut(broker, down, down_cuts)
        assert rest(client) == down


@given(st.binary(min_size=1, max_size=300))
@settings(max_examples=30)
def test_what_is_no_mqtt_is_the_brokers_to_judge(shared: tuple[Running, socket.socket], data: bytes) -> None:
    running, server = shared
    if data[0] >> 4 == 1:
        data = b"\x20" + data  # a CONNECT that is not whole is not led to the broker
    with running.connect() as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        with accepted(server) as broker:
            assert rest(broker) == data
            broker.sendall(b"no")
        assert rest(client) == b"no"


@under_both_planes
def test_many_bytes_both_ways_at_once(is_guest: bool, way: Way) -> None:
    sent = random.Random(5).randbytes(8 << 20)
    with listening() as server, relaying(port_of(server), is_guest=is_guest, short_way=way) as running:
        client, broker = open_pair(running, server)
        with client, broker:
            threads = [threading.Thread(target=send_cut, args=(each, sent, [])) for each in (client, broker)]
            got: dict[str, bytes] = {}
            threads += [
                threading.Thread(target=lambda name, each: got.update({name: rest(each)}), args=(name, each))
                for name, each in (("client", client), ("broker", broker))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert got["client"] == sent
            assert got["broker"] == sent


def test_the_broker_is_dialed_when_the_connect_is_whole() -> None:
    with listening() as server, relaying(port_of(server)) as running, running.connect() as client:
        client.sendall(connect_packet()[:-1])
        running.wait_until(lambda: running.relay.counters.bytes_from_clients == len(connect_packet()) - 1)
        assert does_not_come_in(server)
        client.sendall(connect_packet()[-1:])
        with accepted(server) as broker:
            assert read(broker, len(connect_packet())) == connect_packet()


def does_not_come_in(server: socket.socket) -> bool:
    server.setblocking(False)
    try:
        server.accept()
    except BlockingIOError:
        return True
    finally:
        server.settimeout(PATIENCE)
    return False


# ---- ends --------------------------------------------------------------------------------------------------------


def test_a_broker_that_refuses_closes_the_client() -> None:
    with listening() as server:
        port = port_of(server)
    with relaying(port) as running, running.connect() as client:
        client.sendall(connect_packet())
        assert rest(client) == b""
        assert running.relay.counters.not_dialed == 1


def test_without_an_address_of_the_broker_clients_are_closed() -> None:
    with relaying(None) as running, running.connect() as client:
        client.sendall(connect_packet())
        assert rest(client) == b""


@under_both_planes
def test_a_client_that_is_lost_is_lost_to_the_broker(is_guest: bool, way: Way) -> None:
    with listening() as server, relaying(port_of(server), is_guest=is_guest, short_way=way) as running:
        client, broker = open_pair(running, server)
        client.sendall(b"\xc0\x00")
        reset(client)
        with broker:
            assert rest(broker) in (b"\xc0\x00", b"")
        running.wait_until(lambda: not running.relay.ends)
        assert running.notes.told[-1] == ("closed", "c", True)


@under_both_planes
def test_a_broker_that_dies_closes_its_clients_behind_its_last_words(is_guest: bool, way: Way) -> None:
    with listening() as server, relaying(port_of(server), is_guest=is_guest, short_way=way) as running:
        client, broker = open_pair(running, server)
        broker.sendall(b"\xe0\x00")
        with client:
            assert read(client, 2) == b"\xe0\x00"
            reset(broker)
            assert rest(client) == b""
        running.wait_until(lambda: not running.relay.ends)


# ---- slow ends ---------------------------------------------------------------------------------------------------


def fill(connection: socket.socket) -> int:
    """Send until nothing more is taken for a while; how much that was."""
    connection.settimeout(1.0)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 1 << 30:
            sent += connection.send(bytes(1 << 16))
    connection.settimeout(PATIENCE)
    return sent


@pytest.mark.parametrize("slow", ["client", "broker"])
def test_who_does_not_read_is_not_written_to(slow: str, way: Way) -> None:
    """The relay holds one read at most, the sender is stopped, and nothing is lost when it goes on."""
    with listening() as server, relaying(port_of(server), short_way=way) as running:
        client, broker = open_pair(running, server)
        writer, reader = (broker, client) if slow == "client" else (client, broker)
        with client, broker:
            sent = fill(writer)
            assert running.call(lambda: running.relay.used) <= LARGEST_READ
            writer.shutdown(socket.SHUT_WR)
            assert rest(reader) == bytes(sent)


def test_when_too_much_waits_reads_are_small(way: Way) -> None:
    with listening() as server, relaying(port_of(server), max_memory=100_000, short_way=way) as running:
        pairs = [open_pair(running, server) for _ in range(20)]
        for client, _ in pairs:
            client.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                while True:
                    client.send(bytes(1 << 16))
        assert running.call(lambda: running.relay.used) <= 100_000 + LARGEST_READ + 20 * 1024
        for client, broker in pairs:
            client.close()
            broker.close()


def test_who_takes_nothing_for_too_long_is_cut_off(way: Way) -> None:
    """A broker that is frozen: its clients end after the time that a reader has."""
    with listening() as server, relaying(port_of(server), write_timeout=1.0, short_way=way) as running:
        client, broker = open_pair(running, server)
        with client, broker:
            with contextlib.suppress(ConnectionError):
                fill(client)
            running.wait_until(lambda: running.relay.counters.stuck == 1)
            with contextlib.suppress(ConnectionResetError):
                assert rest(client) == b""


@pytest.mark.parametrize("who", ["client", "broker"])
def test_who_stays_after_the_other_has_ended_is_cut_off(who: str, way: Way) -> None:
    """A client that its broker is done with, and that does not go, must not keep two descriptors for ever."""
    with listening() as server, relaying(port_of(server), write_timeout=0.5, short_way=way) as running:
        client, broker = open_pair(running, server)
        ends, stays = (broker, client) if who == "client" else (client, broker)
        with client, broker:
            ends.sendall(b"\xe0\x00")
            ends.shutdown(socket.SHUT_WR)
            assert rest(stays) == b"\xe0\x00"
            stays.sendall(b"\xc0\x00")
            assert read(ends, 2) == b"\xc0\x00", "half-closed connections stay so for a while"
            assert rest(ends) == b""
            running.wait_until(lambda: not running.relay.ends)
            assert running.relay.counters.stuck == 1
            assert running.notes.told[-1] == ("closed", "c", True)


# ---- many --------------------------------------------------------------------------------------------------------


def test_a_thousand_connections_come_and_go(way: Way) -> None:
    """In all ways at once; nothing is left of them."""
    with listening() as server, relaying(port_of(server), short_way=way) as running:
        serving = threading.Thread(target=serve, args=(server, 1000))
        serving.start()
        chance = random.Random(7)
        living: list[socket.socket] = []
        for number in range(1000):
            client = running.connect()
            client.sendall(connect_packet(f"c{number}"))
            living.append(client)
            if len(living) > 50:
                gone = living.pop(chance.randrange(50))
                if chance.random() < 0.5:
                    reset(gone)
                else:
                    gone.sendall(b"\xe0\x00")
                    gone.close()
        for client in living:
            client.close()
        serving.join(PATIENCE)
        assert not serving.is_alive()
        running.wait_until(lambda: not running.relay.ends)
        assert running.relay.counters.accepted == 1000
        assert running.entering.connections == 0
        assert running.relay.used == 0


def serve(server: socket.socket, count: int) -> None:
    """Accept every client and say goodbye when it goes."""

    def talk(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(b"\x20\x02\x00\x00")
            rest(connection)

    threads = []
    for _ in range(count):
        threads.append(threading.Thread(target=talk, args=(accepted(server),)))
        threads[-1].start()
    for thread in threads:
        thread.join(PATIENCE)


# ---- what is kept of packets -------------------------------------------------------------------------------------


def test_a_huge_subscribe_passes_and_is_not_kept() -> None:
    with listening() as server, relaying(port_of(server)) as running:
        client, broker = open_pair(running, server)
        with client, broker:
            size = 4 << 20
            head = b"\x82" + bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14 & 0x7F | 0x80, size >> 21))
            sending = threading.Thread(target=send_cut, args=(client, head + bytes(size), []))
            sending.start()
            most = 0
            got = 0
            while data := broker.recv(1 << 16):
                got += len(data)
                kept = [end.pair.tap.of_client.kept for end in list(running.relay.ends.values()) if end.pair.tap]
                most = max([most, *kept])
            sending.join()
            assert got == len(head) + size
            assert most <= LARGEST_KEPT
            assert running.relay.counters.blind == 1


def test_a_rest_does_not_keep_the_first_word_waiting() -> None:
    """A client that sends little to an idle relay has its answer soon: rests are for those who send much."""
    with listening() as server, relaying(port_of(server)) as running:
        client, broker = open_pair(running, server)
        with client, broker:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            times = []
            for _ in range(50):
                began = time.monotonic()
                client.sendall(b"\xc0\x00")
                assert read(broker, 2) == b"\xc0\x00"
                broker.sendall(b"\xd0\x00")
                assert read(client, 2) == b"\xd0\x00"
                times.append(time.monotonic() - began)
            assert sorted(times)[len(times) // 2] < 0.02


def test_nothing_waits_behind_what_is_not_held() -> None:
    with listening() as server, relaying(port_of(server)) as running:
        client, broker = open_pair(running, server)
        with client, broker:
            assert does_not_come(client)
