"""Files that Mosquitto itself has written, imported; and damaged ones."""

from __future__ import annotations

import random
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from headwater.node.persistence.export import as_text
from headwater.node.persistence.importing import Imported, import_lines
from headwater.node.persistence.mosquitto_db import MAGIC, BadDatabase, MosquittoDb
from headwater.wire import FROM_SERVER, PacketReader, decode, encode
from headwater.wire.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    SubscribeRequest,
)
from tests.brokers import PATIENCE, running
from tests.node.transports.serving import serving


class Peer:
    """A client that acknowledges nothing by itself."""

    def __init__(self, port: int, connect: Connect) -> None:
        self.version = connect.version
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._reader = PacketReader(1 << 28)
        self._packets: list[Packet] = []
        self.send(connect)
        answer = self.packet()
        assert isinstance(answer, Connack) and answer.reason == 0
        self.present = answer.session_present

    def send(self, *packets: Packet) -> None:
        self.socket.sendall(b"".join(encode(packet, self.version) for packet in packets))

    def packet(self) -> Packet:
        while not self._packets:
            data = self.socket.recv(65536)
            assert data, "the broker has ended the connection"
            self._reader.feed(data)
            self._packets = [decode(first, body, self.version, FROM_SERVER) for first, body in self._reader]
        return self._packets.pop(0)

    def packets(self, count: int) -> list[Packet]:
        return [self.packet() for _ in range(count)]

    def publishes(self, count: int) -> list[Publish]:
        found = self.packets(count)
        assert all(isinstance(each, Publish) for each in found)
        return [each for each in found if isinstance(each, Publish)]

    def subscribe(self, filter: str, qos: int, **options: Any) -> None:
        identifier = options.pop("identifier", None)
        properties = Properties(subscription_identifiers=[identifier]) if identifier else None
        self.send(Subscribe(1, [SubscribeRequest(filter, qos, **options)], properties))
        self.packet()

    def close(self) -> None:
        self.socket.close()


def five(client_id: str, **more: Any) -> Connect:
    return Connect(client_id, 5, clean_start=False, properties=Properties(session_expiry_interval=5000), **more)


def write_down(port: int) -> list[Peer]:
    """What is to be in the file; the connections go on."""
    away = Peer(port, five("away", username="ann"))
    away.subscribe("a/#", 2, identifier=7, retain_as_published=True)
    old = Peer(port, Connect("old", 4, clean_start=False))
    old.subscribe("a/b", 1)
    for each in (away, old):
        each.send(Disconnect())
        each.close()
    flying = Peer(port, five("flying"))
    flying.subscribe("f", 2)
    sender = Peer(port, five("sender"))
    rich = Properties(
        payload_format_indicator=1,
        message_expiry_interval=4000,
        content_type="text/plain",
        response_topic="r/t",
        correlation_data=b"\x00\xff",
        user_properties=[("k", "v"), ("k", "w")],
    )
    sender.send(Publish("a/b", b"rich", 1, packet_id=1, properties=rich))
    sender.send(Publish("a/kept", b"retained", 1, retain=True, packet_id=2))
    sender.packets(2)
    for number, (payload, qos) in enumerate([(b"one", 1), (b"two", 2), (b"three", 2)], 3):
        sender.send(Publish("f", payload, qos, packet_id=number))
        assert isinstance(sender.packet(), Puback if qos == 1 else Pubrec)
        if qos == 2:
            sender.send(Pubrel(number))
            assert isinstance(sender.packet(), Pubcomp)
    flights = {each.payload: each.packet_id for each in flying.publishes(3)}
    flying.send(Pubrec(flights[b"three"]))
    assert isinstance(flying.packet(), Pubrel)
    sender.send(Publish("a/held", b"held", 2, retain=True, packet_id=9))
    assert isinstance(sender.packet(), Pubrec)
    return [flying, sender]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mosquitto")
    settings = f"allow_anonymous true\npersistence true\npersistence_location {folder}/"
    with running("mosquitto", folder, settings) as port:
        peers = write_down(port)
    for each in peers:
        each.close()
    return folder / "mosquitto.db"


def imported(database: Path, folder: Path) -> Imported:
    return import_lines(folder, (as_text(line).encode() for line in MosquittoDb(database).lines()))


def test_a_broker_goes_on_where_mosquitto_ended(database: Path, tmp_path: Path) -> None:
    assert imported(database, tmp_path / "data") == Imported(sessions=4, subscriptions=3, queued=7, retained=2)
    with serving({}, data_dir=str(tmp_path / "data"), allow_anonymous=True) as served:
        port = served.port()
        flying = Peer(port, five("flying"))
        assert flying.present
        one, two, released = flying.packets(3)
        assert isinstance(one, Publish) and (one.payload, one.qos, one.dup) == (b"one", 1, True)
        assert isinstance(two, Publish) and (two.payload, two.qos, two.dup) == (b"two", 2, True)
        assert isinstance(released, Pubrel), "the client has the message; it is not sent again"
        assert len({one.packet_id, two.packet_id, released.packet_id}) == 3

        sender = Peer(port, five("sender"))
        assert sender.present
        sender.send(Pubrel(9))
        done = sender.packet()
        assert isinstance(done, Pubcomp) and (done.packet_id, done.reason) == (9, 0), "its message was received"

        away = Peer(port, five("away", username="ann"))
        rich, kept, held = away.publishes(3)
        assert (rich.payload, rich.qos, kept.payload, held.payload, held.qos) == (b"rich", 1, b"retained", b"held", 2)
        properties = rich.properties
        assert properties is not None and properties.message_expiry_interval is not None
        assert 0 < properties.message_expiry_interval <= 4000
        assert (properties.payload_format_indicator, properties.content_type) == (1, "text/plain")
        assert (properties.response_topic, properties.correlation_data) == ("r/t", b"\x00\xff")
        assert properties.user_properties == [("k", "v"), ("k", "w")]
        assert properties.subscription_identifiers == [7]

        old = Peer(port, Connect("old", 4, clean_start=False))
        assert old.present and [each.payload for each in old.publishes(1)] == [b"rich"]

        new = Peer(port, Connect("new", 5))
        new.subscribe("a/+", 0)
        assert {(each.topic, each.payload) for each in new.publishes(2)} == {
            ("a/kept", b"retained"),
            ("a/held", b"held"),
        }
        for each in (flying, sender, away, old, new):
            each.close()


def test_sessions_are_their_users(database: Path) -> None:
    sessions = {line["client_id"]: line for line in MosquittoDb(database).lines() if line["kind"] == "session"}
    assert {name: line.get("user") for name, line in sessions.items()} == {
        "away": "ann",
        "old": None,
        "flying": None,
        "sender": None,
    }
    assert sessions["old"]["expiry"] == 0xFFFFFFFF and "until" not in sessions["old"]
    assert sessions["away"]["expiry"] == 5000 and sessions["away"]["until"] > 1e9


def test_a_file_that_is_cut_is_said(database: Path, tmp_path: Path) -> None:
    """Wherever, but between two chunks, which nothing tells from the end."""
    data, cut = database.read_bytes(), tmp_path / "cut.db"
    whole = 0
    for size in range(0, len(data), 7):
        cut.write_bytes(data[:size])
        try:
            MosquittoDb(cut)
            whole += 1
        except BadDatabase as error:
            assert "is not a persistence file" in str(error) or "is damaged" in str(error)
    assert whole < 10


def test_rubbish_is_said(database: Path, tmp_path: Path) -> None:
    """Whatever is in it, the import works or says what is wrong."""
    data, path = database.read_bytes(), tmp_path / "bad.db"
    chance = random.Random(5)
    refused = 0
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            list(MosquittoDb(path).lines())
        except BadDatabase as error:
            refused += 1
            assert str(path) in str(error)
    assert refused > 100


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not a persistence file"),
        (b"SQLite format 3\x00" + bytes(100), "is not a persistence file"),
        (MAGIC + struct.pack(">II", 0, 3), "has version 3"),
        (MAGIC + struct.pack(">II", 0, 6) + struct.pack(">II", 9, 0), "no chunk is of the kind 9, at byte 23"),
        (MAGIC + struct.pack(">II", 0, 6) + struct.pack(">II", 4, 80), "80 bytes are missing of the retained message"),
        (MAGIC + struct.pack(">II", 0, 6) + struct.pack(">II", 4, 4) + bytes(4), "makes no sense"),
        (MAGIC + struct.pack(">II", 0, 6) + struct.pack(">IIQBB6x", 1, 16, 1, 1, 4), "numbers of 4 bytes"),
        (MAGIC + struct.pack(">II", 0, 6) + struct.pack(">II", 4, 8) + bytes(8), "the message 0 is referred to"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(data)
    with pytest.raises(BadDatabase, match=said):
        list(MosquittoDb(path).lines())


def client(name: bytes, expiry: int = 0xFFFFFFFF, user: bytes = b"", version: int = 6) -> bytes:
    body = struct.pack("<q", 0) + struct.pack(">IHH", expiry, 0, len(name))
    if version == 6:
        body += struct.pack(">HH4x", 1883, len(user))
    body += name + user
    return struct.pack(">II", 6, len(body)) + body


def message(number: int, topic: bytes, qos: int = 1) -> bytes:
    body = struct.pack("<Qq", number, 0) + struct.pack(">IHHHHHBB", 1, 0, 0, 0, len(topic), 0, qos, 0) + topic + b"x"
    return struct.pack(">II", 2, len(body)) + body


def delivery(number: int, name: bytes, qos: int, state: int, incoming: bool = False) -> bytes:
    body = struct.pack("<Q", number) + struct.pack(">HHBBBB", 5, len(name), qos, state, 0, not incoming) + name
    return struct.pack(">II", 3, len(body)) + body


def subscription(name: bytes, filter: bytes, qos: int) -> bytes:
    body = struct.pack(">IHHBB2x", 0, len(name), len(filter), qos, 0) + name + filter
    return struct.pack(">II", 5, len(body)) + body


def lines_of(folder: Path, *chunks: bytes, version: int = 6) -> tuple[list[dict[str, Any]], dict[str, int]]:
    path = folder / "made.db"
    path.write_bytes(MAGIC + struct.pack(">II", 0, version) + b"".join(chunks))
    found = MosquittoDb(path)
    return list(found.lines())[1:], found.left_out


def test_files_of_mosquitto_1_6(tmp_path: Path) -> None:
    lines, _ = lines_of(tmp_path, client(b"c", version=5), version=5)
    assert lines == [{"kind": "session", "client_id": "c", "expiry": 0xFFFFFFFF}]


def test_a_user_name_that_is_other_memory_is_none(tmp_path: Path) -> None:
    """As Mosquitto writes clients without one behind a client that has one."""
    left_over = b"bob\x00\x81\xff" + bytes(762)
    users = [b"bob", left_over, b"bob", left_over, b"ann", b"bob", b"", b"bob"]
    chunks = [client(b"%d" % number, user=user) for number, user in enumerate(users)]
    lines, _ = lines_of(tmp_path, *chunks)
    assert [line.get("user") for line in lines] == ["bob", None, None, None, "ann", "bob", None, "bob"]


def test_what_has_no_place_here_is_left_out_and_told(tmp_path: Path) -> None:
    chunks = [
        message(1, b"t"),
        message(2, b"$SYS/x"),
        client(b"c"),
        delivery(1, b"c", 0, 11),
        client(b"short", expiry=0),
        delivery(1, b"short", 1, 11),
        delivery(1, b"nobody", 1, 11),
        struct.pack(">IIQ", 4, 8, 0)[:8] + struct.pack("<Q", 2),
    ]
    lines, left_out = lines_of(tmp_path, *chunks)
    assert [line["kind"] for line in lines] == ["session"]
    assert left_out == {
        "session that ends with its connection": 1,
        "queued message of QoS 0": 1,
        "message of a session that is not there": 2,
        "retained message of the broker's own": 1,
    }


def test_what_was_held_back_goes_to_groups_once(tmp_path: Path) -> None:
    chunks = [
        message(1, b"t/x", 2),
        client(b"p"),
        client(b"a"),
        client(b"b"),
        delivery(1, b"p", 2, 7, incoming=True),
        *(subscription(name, b"$share/g/t/#", 1) for name in (b"a", b"b")),
        subscription(b"a", b"other", 2),
    ]
    lines, _ = lines_of(tmp_path, *chunks)
    assert [line for line in lines if line["kind"] == "queued"] == [
        {"kind": "queued", "group": "$share/g/t/#", "qos": 1, "message": 1}
    ]
    assert {"kind": "received", "client_id": "p", "packet_id": 5} in lines
    import_lines(tmp_path / "data", (as_text(line).encode() for line in MosquittoDb(tmp_path / "made.db").lines()))
