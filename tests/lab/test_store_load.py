"""Publishers that send as fast as a broker reads: against a broker of ours, and one that answers wrongly."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from headwater.wire.encode import encode_publish
from headwater_lab import store_load
from headwater_lab.load import LoadError
from headwater_lab.store_load import Line, Publishers
from headwater_lab.store_messages import PUBLISHERS, publisher_of, readings, topic_of

CONNACK = b"\x20\x02\x00\x00"


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Accepts clients and answers their CONNECT; then `serve` goes on, in a thread for each."""

    def greet(connection: socket.socket) -> None:
        with connection:
            connection.recv(1024)
            connection.sendall(CONNACK)
            serve(connection)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=greet, args=[connection]))
            threads[-1].start()

    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0), backlog=PUBLISHERS) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join()


def expected(part: int, messages: int, qos: int) -> bytes:
    packets: list[bytes] = []
    for each in readings(messages, 1, 300):
        for device, payload in zip(each.device.tolist(), each.payload, strict=True):
            if device % PUBLISHERS == part:
                packets.append(encode_publish(topic_of(device).encode(), payload, 2 * qos, len(packets) + 1, None))
    return b"".join(packets)


def test_with_qos_0_each_publisher_sends_all_of_its_messages_in_order() -> None:
    came: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        pieces = []
        while piece := connection.recv(65536):
            pieces.append(piece)
        came.append(b"".join(pieces))

    with server(serve) as port, closing(Publishers(port, readings(700, 1, 300), 0)) as publishers:
        assert publishers.messages == 700
        assert publishers.send_all() > 0
    assert sorted(came) == sorted(expected(part, 700, 0) for part in range(PUBLISHERS))


@pytest.mark.parametrize("window", [1, 2, 20])
def test_with_qos_1_no_more_are_under_way_than_may_be(window: int) -> None:
    sent = {expected(part, 700, 1) for part in range(PUBLISHERS)}
    too_many: list[int] = []

    def serve(connection: socket.socket) -> None:
        came = b""
        answered = 0
        while piece := connection.recv(65536):
            came += piece
            mine = next(each for each in sent if each.startswith(came))
            whole = _whole(came)
            if whole - answered > window:
                too_many.append(whole - answered)
            for number in range(answered + 1, whole + 1):
                connection.sendall(b"\x40\x02" + number.to_bytes(2))
            answered = whole
        assert came == mine

    with server(serve) as port, closing(Publishers(port, readings(700, 1, 300), 1)) as publishers:
        publishers.send_acknowledged(window)
        assert [line.acknowledged for line in publishers.lines] == [len(line.ends) for line in publishers.lines]
    assert too_many == []


def _whole(packets: bytes) -> int:
    """How many whole packets of two bytes of length there are."""
    count = at = 0
    while at + 3 <= len(packets):
        at += 3 + (packets[at + 1] & 127) + (packets[at + 2] << 7)
        count += at <= len(packets)
    return count


@pytest.mark.parametrize(
    "answer, message",
    [(b"\x40\x02\x00\x02", "out of order"), (b"\x40\x02\x00\x01" * 2, "out of order"), (b"", "closed")],
)
def test_a_wrong_answer_is_an_error(answer: bytes, message: str) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)

    with (
        server(serve) as port,
        closing(Publishers(port, readings(300, 1, 300), 1)) as publishers,
        pytest.raises(LoadError, match=message),
    ):
        publishers.send_acknowledged(20)


def test_a_broker_that_does_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()

    def serve(connection: socket.socket) -> None:
        done.wait(10)

    with server(serve) as port, closing(Publishers(port, readings(300, 1, 300), 1)) as publishers:
        monkeypatch.setattr(store_load, "PATIENCE", 0.1)  # they are connected, however long that took
        with pytest.raises(LoadError, match="nothing has happened"):
            publishers.send_acknowledged(20)
        done.set()


def test_a_refused_client_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "CONNACK", b"\x20\x02\x00\x05")
    with server(lambda connection: None) as port, pytest.raises(LoadError, match="was not accepted"):
        Line(port, publisher_of(0), b"", [], b"")


def test_packet_ids_begin_again_after_the_last() -> None:
    answers = store_load._answers(65536)
    assert answers[-8:] == b"\x40\x02\xff\xff\x40\x02\x00\x01"
