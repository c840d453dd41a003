from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.wire.errors import LocalProtocolError, RemoteProtocolError
from headwater.wire.primitives import (
    Reader,
    encode_binary,
    encode_packet_id,
    encode_string,
    encode_unsigned,
    encode_varint,
)
from headwater.wire.reasons import MALFORMED_PACKET, PROTOCOL_ERROR

from .strategies import texts

# Table 1-1 of the standard: the smallest and the largest value of each length.
VARINTS = [
    (0, "00"),
    (127, "7f"),
    (128, "8001"),
    (16_383, "ff7f"),
    (16_384, "808001"),
    (2_097_151, "ffff7f"),
    (2_097_152, "80808001"),
    (268_435_455, "ffffff7f"),
]


def reader_of(data: bytes) -> Reader:
    return Reader(data, 0, len(data))


@pytest.mark.parametrize(("value", "written"), VARINTS)
def test_varint_at_the_edges_of_each_length(value: int, written: str) -> None:
    assert encode_varint(value).hex() == written
    reader = reader_of(bytes.fromhex(written))
    assert reader.varint() == value
    reader.finish()


@given(st.integers(0, 268_435_455))
def test_varint_is_read_as_written(value: int) -> None:
    assert reader_of(encode_varint(value) + b"\xff").varint() == value


@pytest.mark.parametrize(
    "written", ["", "80", "ffff", "8000", "ff00", "80808000", "ffffff80", "ffffffff", "8080808001"]
)
def test_varint_cut_padded_or_too_long_is_malformed(written: str) -> None:  # [MQTT-1.5.5-1]
    with pytest.raises(RemoteProtocolError) as caught:
        reader_of(bytes.fromhex(written)).varint()
    assert caught.value.reason == MALFORMED_PACKET


@pytest.mark.parametrize("value", [-1, 268_435_456])
def test_varint_out_of_range_is_not_written(value: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode_varint(value)


def test_integers_are_big_endian() -> None:
    reader = reader_of(bytes.fromhex("01 0203 04050607 fffefdfc"))
    assert (reader.byte(), reader.uint16(), reader.uint32(), reader.uint32()) == (1, 0x0203, 0x04050607, 0xFFFEFDFC)
    reader.finish()
    assert encode_unsigned(0x0203, 2) + encode_unsigned(0x04050607, 4) == bytes.fromhex("0203 04050607")


@pytest.mark.parametrize(("value", "size"), [(-1, 1), (256, 1), (65_536, 2), (4_294_967_296, 4)])
def test_integer_out_of_range_is_not_written(value: int, size: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode_unsigned(value, size)


@given(texts)
def test_string_is_read_as_written(text: str) -> None:
    reader = reader_of(encode_string(text))
    assert reader.string() == text
    reader.finish()


@given(st.binary(max_size=40))
def test_binary_is_read_as_written(value: bytes) -> None:
    reader = reader_of(encode_binary(value))
    assert reader.binary() == value
    reader.finish()


def test_longest_string() -> None:
    text = "\u20ac" * 21_845
    assert reader_of(encode_string(text)).string() == text
    with pytest.raises(LocalProtocolError):
        encode_string(text + "x")


def test_byte_order_mark_is_kept() -> None:  # [MQTT-1.5.4-3]
    assert reader_of(bytes.fromhex("0007 efbbbf 61 efbbbf")).string() == "\ufeffa\ufeff"


@pytest.mark.parametrize("content", ["00", "6100", "eda080", "edbfbf", "c080", "ff", "c3", "f4908080", "e28261"])
def test_ill_formed_string_is_malformed(content: str) -> None:  # [MQTT-1.5.4-1] [MQTT-1.5.4-2]
    with pytest.raises(RemoteProtocolError) as caught:
        reader_of(encode_binary(bytes.fromhex(content))).string()
    assert caught.value.reason == MALFORMED_PACKET


@pytest.mark.parametrize("text", ["\0", "a\0", "\ud800", "\udfff"])
def test_string_that_utf8_or_mqtt_forbids_is_not_written(text: str) -> None:  # [MQTT-1.5.4-1] [MQTT-1.5.4-2]
    with pytest.raises(LocalProtocolError):
        encode_string(text)


@pytest.mark.parametrize(
    ("field", "data"),
    [
        ("byte", ""),
        ("uint16", "00"),
        ("uint32", "000000"),
        ("binary", "00"),
        ("binary", "000261"),
        ("string", "ffff61"),
        ("packet_id", "01"),
    ],
)
def test_short_input_is_malformed(field: str, data: str) -> None:
    # The bytes behind the end belong to somebody else.
    content = bytes.fromhex(data)
    with pytest.raises(RemoteProtocolError) as caught:
        getattr(Reader(content + b"\1" * 4, 0, len(content)), field)()
    assert caught.value.reason == MALFORMED_PACKET


def test_rest_and_finish_stop_at_the_end() -> None:
    reader = Reader(b"abcdef", 1, 4)
    with pytest.raises(RemoteProtocolError):
        reader.finish()
    assert reader.rest() == b"bcd"
    assert reader.left() == 0
    reader.finish()


def test_packet_id_zero_is_a_protocol_error() -> None:  # [MQTT-2.2.1-3]
    with pytest.raises(RemoteProtocolError) as caught:
        reader_of(b"\0\0").packet_id()
    assert caught.value.reason == PROTOCOL_ERROR
    assert reader_of(encode_packet_id(65_535)).packet_id() == 65_535
    for packet_id in (-1, 0, 65_536):
        with pytest.raises(LocalProtocolError):
            encode_packet_id(packet_id)
