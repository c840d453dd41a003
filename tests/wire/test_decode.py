from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.wire import (
    FROM_CLIENT,
    V5,
    V311,
    PacketReader,
    RemoteProtocolError,
    UnsupportedVersionError,
    decode,
    decode_connect,
    encode,
)
from headwater.wire.packets import Connect, Packet
from headwater.wire.reasons import UNSUPPORTED_PROTOCOL_VERSION

from .bad_vectors import BAD, Bad
from .strategies import Sent, roles, sent_packets, versions
from .vectors import GOOD, Good


def read_one(data: bytes, version: int, role: int) -> Packet:
    """Decode `data`, which must be one whole packet."""
    reader = PacketReader()
    reader.feed(data)
    frames = list(reader)
    assert len(frames) == 1
    return decode(frames[0][0], frames[0][1], version, role)


def name_of(vector: Good | Bad) -> str:
    return vector.name


@pytest.mark.parametrize("vector", GOOD, ids=name_of)
def test_good_packet_is_read(vector: Good) -> None:
    assert read_one(bytes.fromhex(vector.hex), vector.version, vector.role) == vector.packet


@pytest.mark.parametrize("vector", BAD, ids=name_of)
def test_bad_packet_is_refused(vector: Bad) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read_one(bytes.fromhex(vector.hex), vector.version, vector.role)
    assert vector.says in caught.value.text
    assert caught.value.reason == vector.reason


@given(sent_packets)
@settings(max_examples=600)
def test_decode_reverses_encode(sent: Sent) -> None:
    assert read_one(encode(sent.packet, sent.version), sent.version, sent.role) == sent.packet


def check_that_it_parses_or_raises(first_byte: int, body: bytes, version: int, role: int) -> None:
    try:
        packet = decode(first_byte, body, version, role)
    except RemoteProtocolError:
        return
    if isinstance(packet, Connect):
        version = packet.version
    # What was accepted is legal for us as well, and means the same when we write it.
    assert read_one(encode(packet, version), version, role) == packet


@given(st.integers(0, 255), st.binary(max_size=40), versions, roles)
@example(0x10, b"\0\4MQTT\5\x06\0\0\0\0\0\0\0\1w", V5, FROM_CLIENT)
@settings(max_examples=600)
def test_any_bytes_parse_or_raise_the_remote_error(first_byte: int, body: bytes, version: int, role: int) -> None:
    check_that_it_parses_or_raises(first_byte, body, version, role)


@st.composite
def mutated(draw: st.DrawFn) -> tuple[int, bytes, int, int]:
    """A legal packet with a few bytes of its body replaced, removed or added, perhaps read in the other version."""
    sent = draw(sent_packets)
    reader = PacketReader()
    reader.feed(encode(sent.packet, sent.version))
    first_byte, body = next(iter(reader))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(st.binary(max_size=2)) + body[at + draw(st.integers(0, 2)) :]
    return first_byte, body, draw(st.just(sent.version) | versions), sent.role


@given(mutated())
@settings(max_examples=1000)
def test_mutated_packets_parse_or_raise_the_remote_error(case: tuple[int, bytes, int, int]) -> None:
    check_that_it_parses_or_raises(*case)


@given(sent_packets, st.data())
@settings(max_examples=300)
def test_packet_cut_anywhere_parses_or_raises_the_remote_error(sent: Sent, data: st.DataObject) -> None:
    whole = encode(sent.packet, sent.version)
    reader = PacketReader()
    reader.feed(whole)
    first_byte, body = next(iter(reader))
    cut = data.draw(st.integers(0, len(body)))
    check_that_it_parses_or_raises(first_byte, body[:cut], sent.version, sent.role)


def test_connect_says_its_own_version() -> None:
    body = b"\0\4MQTT\4\2\0\0\0\1c"
    assert decode(0x10, body, V5, FROM_CLIENT) == decode_connect(body) == Connect("c", V311)


@pytest.mark.parametrize(("name", "level"), [("MQIsdp", 4), ("MQTT", 6), ("HTTP", 5)])
def test_unsupported_version_tells_what_was_asked_for(name: str, level: int) -> None:
    body = bytes((0, len(name))) + name.encode() + bytes((level,)) + b"\2\0\0\0\1c"
    with pytest.raises(UnsupportedVersionError) as caught:
        decode_connect(body)
    assert (caught.value.protocol_name, caught.value.level) == (name, level)
    assert caught.value.reason == UNSUPPORTED_PROTOCOL_VERSION
