"""Status reports on the wire: every example of docs/status-reports.md, consent, and what is malformed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.wire import FROM_CLIENT, FROM_SERVER, PacketReader, RemoteProtocolError, decode, encode
from headwater.wire.packets import Connack, Connect, Packet, Pingreq, Pingresp, Properties
from headwater.wire.status import (
    LONGEST_INTERVAL,
    StatusReport,
    consent,
    decode_status,
    encode_status,
    interval_of,
)
from tests.wire.strategies import texts

PAGE = Path(__file__).parent.parent.parent / "docs" / "status-reports.md"


def examples() -> dict[str, bytes]:
    """The bytes of each example on the page, by the line before it. Hex digits end where two spaces are."""
    found = {}
    text = PAGE.read_text(encoding="utf-8")
    for title, block in re.findall(
        r"^([^\n]+):[^\n:]*\n```\n((?:(?:[0-9A-F]{2} )+ [^\n]*\n)+)```$", text, re.MULTILINE
    ):
        found[title] = b"".join(bytes.fromhex(line.partition("  ")[0]) for line in block.splitlines())
    return found


def frame(data: bytes) -> tuple[int, bytes]:
    """The only packet in these bytes, of which none is left."""
    reader = PacketReader()
    reader.feed(data)
    [(first, body)] = reader
    assert len(data) == 2 + len(body)
    return first, body


def example_packet(title: str, direction: int) -> Packet:
    return decode(*frame(examples()[title]), 5, direction)


def test_the_page_has_these_examples() -> None:
    assert list(examples()) == [
        "A client asks",
        "The broker grants it",
        "A report",
        "A report with a User Property",
        "The answer to either",
    ]


def test_a_client_asks() -> None:
    asked = Connect("w1", 5, keep_alive=60, properties=Properties(user_properties=[consent(1000)]))
    assert encode(asked, 5) == examples()["A client asks"]
    packet = example_packet("A client asks", FROM_CLIENT)
    assert isinstance(packet, Connect) and interval_of(packet.properties) == 1000


def test_the_broker_grants_it() -> None:
    packet = example_packet("The broker grants it", FROM_SERVER)
    assert isinstance(packet, Connack) and interval_of(packet.properties) == 50
    assert encode(packet, 5) == examples()["The broker grants it"]


def test_reports() -> None:
    plain, described = examples()["A report"], examples()["A report with a User Property"]
    assert plain == encode_status(StatusReport(b'{"msgsInQueue":3,"processingTimePerMsg":25.5}'))
    properties = [("content-type", "application/json")]
    assert described == encode_status(StatusReport(b'{"msgsInQueue":0,"processingTimePerMsg":0}', properties))
    assert encode(Pingresp(), 5) == examples()["The answer to either"]


@pytest.mark.parametrize("version", [4, 5])
def test_to_others_a_report_is_malformed(version: int) -> None:
    """What the standard knows is a PINGREQ of two bytes."""
    for title in ("A report", "A report with a User Property"):
        with pytest.raises(RemoteProtocolError) as caught:
            decode(*frame(examples()[title]), version, FROM_CLIENT)
        assert caught.value.reason == 0x81
    assert decode(0xC0, b"", version, FROM_CLIENT) == Pingreq()


@given(st.binary(max_size=300), st.lists(st.tuples(texts, texts), max_size=3))
def test_what_is_encoded_is_decoded(payload: bytes, properties: list[tuple[str, str]]) -> None:
    data = encode_status(StatusReport(payload, properties or None))
    reader = PacketReader()
    reader.feed(data)
    [(first, body)] = reader
    report = decode_status(body)
    assert (first, report.payload, report.user_properties or []) == (0xC0, payload, properties)


@pytest.mark.parametrize(
    "body",
    [
        "05",  # properties that are not there
        "03 26 00 01",  # a User Property that is cut off
        "80 00",  # a length that is not minimal
        "07 26 00 01 FF 00 01 61",  # a name that is not UTF-8
        "02 01 01",  # a payload format indicator, which has no place here
        "03 21 00 05",
        "02 7F 00",  # no such property
    ],
)
def test_malformed_property_blocks(body: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_status(bytes.fromhex(body))
    assert caught.value.reason == 0x81


@given(st.binary(min_size=1, max_size=64))
def test_any_bytes_are_a_report_or_malformed(body: bytes) -> None:
    try:
        report = decode_status(body)
    except RemoteProtocolError as error:
        assert error.reason == 0x81
    else:
        assert body.endswith(report.payload)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "0",
        "-1",
        "+5",
        " 5",
        "5 ",
        "1.5",
        "1e3",
        "0x10",
        "yes",
        "1_000",
        "٥",
        "²",
        str(LONGEST_INTERVAL + 1),
        "9" * 5000,
    ],
)
def test_what_is_no_interval_is_no_consent(value: str) -> None:
    assert interval_of(Properties(user_properties=[("status-report-ms", value)])) == 0


def test_consent_is_given_once_among_others() -> None:
    others = [("a", "1"), ("Status-Report-Ms", "7")]
    assert interval_of(None) == interval_of(Properties()) == interval_of(Properties(user_properties=others)) == 0
    assert interval_of(Properties(user_properties=[*others, consent(7)])) == 7
    assert interval_of(Properties(user_properties=[consent(LONGEST_INTERVAL)])) == LONGEST_INTERVAL
    assert interval_of(Properties(user_properties=[consent(7), *others, consent(7)])) == 0
