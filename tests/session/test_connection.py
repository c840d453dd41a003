"""One connection's state: which packets may come when, topic aliases both ways, the client's own limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.message import Delivery, Message
from headwater.session.connection import AUTHENTICATING, CLOSING, CONNECTED, NEW, Connection
from headwater.wire import FROM_SERVER, decode
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import (
    AUTH,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    V5,
    V311,
    Connect,
    Disconnect,
    Properties,
    Publish,
)
from headwater.wire.reasons import PROTOCOL_ERROR, TOPIC_ALIAS_INVALID

ANY_TIME = {PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, DISCONNECT, AUTH}
TABLE = {NEW: {CONNECT}, AUTHENTICATING: {AUTH, DISCONNECT}, CONNECTED: ANY_TIME, CLOSING: set()}


class Kept(Connection):
    """A connection whose bytes are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


@pytest.mark.parametrize("kind", range(16))
@pytest.mark.parametrize("state", TABLE)
def test_each_state_takes_its_packets_only(state: int, kind: int) -> None:
    connection = Connection()
    connection.state = state
    if kind in TABLE[state]:
        connection.check_allowed(kind)
    else:
        with pytest.raises(RemoteProtocolError) as caught:
            connection.check_allowed(kind)
        assert caught.value.reason == PROTOCOL_ERROR


def test_a_connection_begins_new_and_has_no_way_out_of_its_own() -> None:
    connection = Connection()
    assert connection.state == NEW
    with pytest.raises(RuntimeError):
        connection.write(b"x")


def test_what_connect_says_is_learnt() -> None:
    connection = Connection()
    asked = Properties(
        receive_maximum=7,
        maximum_packet_size=99,
        topic_alias_maximum=3,
        request_problem_information=0,
        authentication_method="m",
    )
    connection.learn(Connect("c", V5, keep_alive=20, username="u", properties=asked))
    assert (connection.version, connection.client_id, connection.username, connection.keep_alive) == (5, "c", "u", 20)
    assert (connection.receive_maximum, connection.max_packet_out, connection.alias_limit_out) == (7, 99, 3)
    assert (connection.wants_problem_information, connection.authentication_method) == (False, "m")


@pytest.mark.parametrize("properties", [None, Properties()])
def test_what_connect_does_not_say_has_the_standards_defaults(properties: Properties | None) -> None:
    connection = Connection()
    connection.learn(Connect("c", V5, properties=properties))
    assert (connection.receive_maximum, connection.max_packet_out, connection.alias_limit_out) == (65535, 0, 0)
    assert (connection.wants_problem_information, connection.authentication_method) == (True, None)


def test_a_packet_larger_than_the_client_takes_is_not_sent() -> None:
    connection = Kept()
    connection.learn(Connect("c", V5, properties=Properties(maximum_packet_size=10)))
    assert connection.send(Publish("t", b"1234")) and len(connection.written[0]) == 10
    assert not connection.send(Publish("t", b"12345"))
    assert len(connection.written) == 1


@pytest.mark.parametrize(("version", "wanted", "given"), [(V5, 1, True), (V5, 0, False), (V311, 1, False)])
def test_reason_strings_are_for_those_who_want_them(version: int, wanted: int, given: bool) -> None:
    connection = Connection()
    connection.learn(Connect("c", version, properties=Properties(request_problem_information=wanted)))
    assert connection.problem("why") == (Properties(reason_string="why") if given else None)
    assert connection.problem("") is None


# ---- aliases from the client ----


def aliased(topic: str, alias: int | None) -> Publish:
    return Publish(topic, properties=None if alias is None else Properties(topic_alias=alias))


def test_an_alias_is_learnt_used_and_set_anew() -> None:
    connection = Connection()
    connection.alias_limit_in = 2
    assert connection.topic_of(aliased("plain", None)) == "plain"
    assert connection.topic_of(Publish("other", properties=Properties(content_type="x"))) == "other"
    assert connection.topic_of(aliased("a", 1)) == "a"
    assert connection.topic_of(aliased("b", 2)) == "b"
    assert connection.topic_of(aliased("", 1)) == "a"
    assert connection.topic_of(aliased("c", 1)) == "c"
    assert [connection.topic_of(aliased("", alias)) for alias in (1, 2)] == ["c", "b"]


@pytest.mark.parametrize(("limit", "alias", "reason"), [(2, 3, TOPIC_ALIAS_INVALID), (0, 1, TOPIC_ALIAS_INVALID)])
@pytest.mark.parametrize("topic", ["", "t"])
def test_an_alias_above_the_limit_is_refused(limit: int, alias: int, reason: int, topic: str) -> None:
    connection = Connection()
    connection.alias_limit_in = limit
    with pytest.raises(RemoteProtocolError) as caught:
        connection.topic_of(aliased(topic, alias))
    assert caught.value.reason == reason


def test_an_alias_that_was_never_set_is_refused() -> None:
    connection = Connection()
    connection.alias_limit_in = 2
    connection.topic_of(aliased("a", 1))
    with pytest.raises(RemoteProtocolError) as caught:
        connection.topic_of(aliased("", 2))
    assert caught.value.reason == PROTOCOL_ERROR


# ---- aliases to the client ----


@given(
    st.integers(0, 4),
    st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=30),
)
def test_a_client_that_reads_everything_understands_every_topic(limit: int, sent: list[tuple[str, bool]]) -> None:
    """Aliases go to the first topics, as many as granted; one that was not sent after all does not count."""
    server = Kept()
    server.learn(Connect("c", V5, properties=Properties(topic_alias_maximum=limit)))
    client = Connection()
    client.alias_limit_in = limit
    first: list[str] = []
    for topic, goes_out in sent:
        packet = server.publish_packet(Delivery(Message(topic, b"p"), 0, False), 0, False, 0.0)
        if not goes_out:
            continue
        server.send(packet)
        server.published(packet, topic)
        data = server.written[-1]
        received = decode(data[0], data[2:], V5, FROM_SERVER)
        assert isinstance(received, Publish)
        assert client.topic_of(received) == topic
        assert (received.topic == "") == (topic in first), "a topic with an alias is sent once only"
        if topic not in first and len(first) < limit:
            first.append(topic)


def test_a_311_client_gets_no_properties() -> None:
    connection = Kept()
    connection.learn(Connect("c", V311))
    message = Message("t", b"p", content_type="x")
    packet = connection.publish_packet(Delivery(message, 1, True), 9, True, 0.0)
    assert packet == Publish("t", b"p", 1, True, True, 9, None)


def test_sending_is_in_the_clients_version() -> None:
    for version, data in ((V311, b"\xe0\x00"), (V5, b"\xe0\x01\x8b")):
        connection = Kept()
        connection.learn(Connect("c", version))
        connection.send(Disconnect(0x8B if version == V5 else 0))
        assert connection.written == [data]
