"""Byte streams that no honest client sends: valid sessions made from a seed, and what goes wrong with them.

`conversation` is a client's whole valid life, as packets. Few client ids, topics and packet ids are drawn, so that
conversations meet: they take each other over, share groups, answer each other's messages. `mutate` damages the bytes;
`crafted` are the attacks that damage alone seldom finds.
"""

from __future__ import annotations

from random import Random
from typing import Final

from headwater.wire.encode import encode
from headwater.wire.packets import (
    Auth,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    SubscribeRequest,
    Unsubscribe,
    Will,
)
from headwater.wire.status import StatusReport, consent, encode_status

TOPICS: Final = ("a", "a/b", "a/b/c", "/", "$x/a", "long/" + "x" * 600)
FILTERS: Final = (*TOPICS, "#", "+", "a/#", "a/+/c", "$share/g/#", "$share/g/a/b", "$share/h/+", "$SYS/#")
CLIENT_IDS: Final = ("", "one", "two", "three", "four")
PAYLOADS: Final = (b"", b"x", b"payload" * 20, b"\x00" * 3000)
REPORTS: Final = (
    b"",
    b"{}",
    b"\xff",
    b"[" * 4000,
    b'{"msgsInQueue": NaN, "processingTimePerMsg": 1e308}',
    b'{"msgsInQueue": -1}',
    b'{"msgsInQueue": 0, "processingTimePerMsg": 0.000001}',
    b'{"msgsInQueue": 10000000, "processingTimePerMsg": 3600000}',
    b'{"numberOfMsgsInQueue": 3, "processingTimerPerMsg": 25.5}' + b" " * 5000,
    b'{"numberOfMsgsInQueue": 3, "processingTimerPerMsg": 25.5}',
    b'{"msgsInQueue": 1}',
)
INTERESTING: Final = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)


def conversation(random: Random) -> list[bytes]:
    """The packets of one client that obeys the standard, CONNECT first."""
    version = random.choice((4, 5))
    connect = _connect(random, version)
    packets: list[Packet] = [connect]
    packets += [_packet(random, version) for _ in range(random.randrange(1, 12))]
    if random.random() < 0.4:
        properties = Properties(session_expiry_interval=0) if version == 5 and random.random() < 0.3 else None
        packets.append(Disconnect(random.choice((0, 4)) if version == 5 else 0, properties))
    encoded = [encode(packet, version) for packet in packets]
    if connect.properties is not None and connect.properties.user_properties:
        for _ in range(random.randrange(1, 8)):
            encoded.insert(random.randrange(1, len(encoded) + 1), _report(random))
    return encoded


def _report(random: Random) -> bytes:
    properties = [("content-type", "application/json")] if random.random() < 0.3 else None
    return encode_status(StatusReport(random.choice(REPORTS), properties))


def _connect(random: Random, version: int) -> Connect:
    client_id = random.choice(CLIENT_IDS)
    clean = random.random() < 0.7 or not client_id
    will = None
    if random.random() < 0.4:
        will = Will(random.choice(TOPICS), random.choice(PAYLOADS), random.randrange(3), random.random() < 0.3)
    if version == 4:
        return Connect(client_id, 4, clean, random.choice((0, 0, 1, 60)), will=will)
    if will is not None and random.random() < 0.5:
        will.properties = Properties(will_delay_interval=1, message_expiry_interval=random.choice((0, 1, 100)))
    properties = Properties(session_expiry_interval=random.choice((0, 0, 1, 2)))
    if random.random() < 0.5:
        properties.receive_maximum = random.choice((1, 2, 65535))
    if random.random() < 0.3:
        properties.topic_alias_maximum = random.choice((0, 1, 65535))
    if random.random() < 0.3:
        properties.maximum_packet_size = random.choice((1, 20, 100, 5000))
    if random.random() < 0.1:
        properties.authentication_method = "unknown"
    if random.random() < 0.3:
        properties.user_properties = [consent(random.choice((1, 1000)))]
    return Connect(client_id, 5, clean, random.choice((0, 0, 1, 60)), "user", b"secret", will, properties)


def _packet(random: Random, version: int) -> Packet:
    chance = random.random()
    packet_id = random.choice((1, 1, 2, 3, 65535))
    if chance < 0.5:
        return _publish(random, version, packet_id)
    if chance < 0.7:
        return _subscribe(random, version, packet_id)
    if chance < 0.76:
        return Unsubscribe(packet_id, [random.choice(FILTERS), random.choice(FILTERS)])
    if chance < 0.8:
        return Pingreq()
    if chance < 0.82 and version == 5:
        return Auth(0x19, Properties(authentication_method="unknown"))
    return random.choice((Puback(packet_id), Pubrec(packet_id), Pubrel(packet_id), Pubcomp(packet_id)))


def _publish(random: Random, version: int, packet_id: int) -> Publish:
    qos = random.randrange(3)
    packet = Publish(random.choice(TOPICS), random.choice(PAYLOADS), qos, random.random() < 0.2)
    if qos:
        packet.packet_id = packet_id
        packet.dup = random.random() < 0.2
    if version == 5 and random.random() < 0.5:
        properties = packet.properties = Properties()
        if random.random() < 0.5:
            properties.topic_alias = random.choice((1, 2, 64))
            if random.random() < 0.4:
                packet.topic = ""
        if random.random() < 0.3:
            properties.message_expiry_interval = random.choice((0, 1, 100))
        if random.random() < 0.5:
            properties.user_properties = [("name", "value")] * random.randrange(1, 4)
        if random.random() < 0.2:
            properties.response_topic, properties.correlation_data = "a/b", b"\x00\xff"
    return packet


def _subscribe(random: Random, version: int, packet_id: int) -> Subscribe:
    requests = []
    for _ in range(random.randrange(1, 4)):
        request = SubscribeRequest(random.choice(FILTERS), random.randrange(3))
        if version == 5:
            request.no_local = random.random() < 0.2 and not request.filter.startswith("$share/")
            request.retain_as_published = random.random() < 0.3
            request.retain_handling = random.randrange(3)
        requests.append(request)
    identified = version == 5 and random.random() < 0.3
    return Subscribe(packet_id, requests, Properties(subscription_identifiers=[7]) if identified else None)


def mutate(random: Random, packets: list[bytes]) -> bytes:
    """The conversation with one to four kinds of damage."""
    packets = list(packets)
    for _ in range(random.randrange(3)):
        _mutate_packets(random, packets)
    stream = bytearray(b"".join(packets))
    for _ in range(random.randrange(1, 3)):
        damage(random, stream)
    return bytes(stream)


def _mutate_packets(random: Random, packets: list[bytes]) -> None:
    at = random.randrange(len(packets))
    packet = packets[at]
    kind = random.randrange(5)
    if kind == 0:
        packets.insert(random.randrange(len(packets) + 1), packet)
    elif kind == 1 and len(packets) > 1:
        del packets[at]
    elif kind == 2:
        random.shuffle(packets)
    elif kind == 3:  # a length that is not the body's
        packets[at] = packet[:1] + bytes([random.randrange(0x80)]) + packet[2:]
    else:
        length = random.choice((b"\x80\x80\x80\x80\x01", b"\xff\xff\xff\x7f", b"\x80\x00", b"\xff\xff\x03"))
        packets[at] = packet[:1] + length + packet[2:]


def damage(random: Random, stream: bytearray) -> None:
    """One kind of damage to some bytes."""
    if not stream:
        return
    at = random.randrange(len(stream))
    kind = random.randrange(7)
    if kind == 0:
        stream[at] ^= 1 << random.randrange(8)
    elif kind == 1:
        stream[at] = random.choice(INTERESTING)
    elif kind == 2:
        del stream[at:]
    elif kind == 3:
        del stream[at : at + random.randrange(1, 9)]
    elif kind == 4:
        stream[at:at] = random.randbytes(random.randrange(1, 9))
    elif kind == 5:
        stream[at:at] = stream[at : at + random.randrange(1, 40)]
    else:
        for _ in range(random.randrange(1, 20)):
            stream[random.randrange(len(stream))] = random.randrange(256)


def crafted(random: Random) -> bytes:
    """One of the known attacks."""
    connect = encode(Connect(random.choice(CLIENT_IDS), 5), 5)
    reporting = encode(Connect("two", 5, properties=Properties(user_properties=[consent(1)])), 5)
    many = Properties(user_properties=[("k" * 50, "v" * 50)] * 2000)
    deep = "/".join("x" * 30000)
    attacks = (
        b"\x10\xff\xff\xff\x7f",  # a CONNECT of 256 MB
        connect + b"\x30\xff\xff\xff\x7f\x00\x01a",
        connect + b"\x30\x80\x80\x80\x80\x80\x01",
        connect + encode(Publish("a", b"", properties=many), 5),
        encode(Connect("one", 5, properties=many), 5),
        connect + encode(Publish(deep, b"x"), 5),
        connect + encode(Subscribe(1, [SubscribeRequest(deep, 2)]), 5),
        connect + encode(Subscribe(1, [SubscribeRequest("+/" * 127 + "#", 0)] * 200), 5),
        connect + encode(Subscribe(1, [SubscribeRequest(f"{n}/#", 1) for n in range(500)]), 5),
        connect + b"".join(encode(Publish(f"{n}", b"", properties=Properties(topic_alias=1)), 5) for n in range(300)),
        connect + b"".join(encode(Publish("a", b"x", 2, packet_id=n + 1), 5) for n in range(1500)),
        connect + b"\xc0\x00" * 3000,
        reporting + encode_status(StatusReport(REPORTS[-1])) * 3000,
        reporting + encode_status(StatusReport(b" " * 1_000_000)),
        reporting + encode_status(StatusReport(REPORTS[-1], many.user_properties)),
        connect + connect,
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # TLS
        random.randbytes(random.randrange(1, 2000)),
    )
    return random.choice(attacks)


def stream(random: Random) -> bytes:
    """Any of these: mostly damaged, sometimes valid, sometimes crafted."""
    chance = random.random()
    if chance < 0.15:
        return crafted(random)
    packets = conversation(random)
    return b"".join(packets) if chance < 0.35 else mutate(random, packets)


def pieces(random: Random, data: bytes) -> list[bytes]:
    """The stream as it arrives: whole, in a few pieces, or byte by byte."""
    chance = random.random()
    if chance < 0.4 or len(data) < 2:
        return [data] if data else []
    if chance < 0.55 and len(data) < 400:
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted(random.randrange(len(data)) for _ in range(random.randrange(1, 6)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if end > start]
