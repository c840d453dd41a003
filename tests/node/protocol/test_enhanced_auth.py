"""Enhanced authentication: AUTH packets exchanged with a guard, before CONNACK and again later (MQTT 5.0, 4.12)."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.node.access.settings import AccessSettings
from headwater.node.config import Config
from headwater.node.hooks import Challenge, Hooks, Refusal
from headwater.node.plane.channel import Entrance
from headwater.wire.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Will,
)
from headwater.wire.reasons import (
    BAD_AUTHENTICATION_METHOD,
    BANNED,
    CONTINUE_AUTHENTICATION,
    NO_MATCHING_SUBSCRIBERS,
    NOT_AUTHORIZED,
    PROTOCOL_ERROR,
    QUOTA_EXCEEDED,
    REAUTHENTICATE,
    SUCCESS,
)
from tests.node.memory import Client, MemoryBroker

METHOD = "count"
"""The client counts on from what it is asked; after 3 it is known."""


def count(client: object, method: str, data: bytes | None, again: bool) -> Challenge | bool | None:
    if method != METHOD:
        return None
    steps = {b"1": Challenge(b"2?"), b"2": Challenge(b"3?"), b"3": Challenge(b"welcome", done=True)}
    return steps.get(data or b"", False)


def step(data: bytes, reason: int = CONTINUE_AUTHENTICATION, method: str = METHOD) -> Auth:
    return Auth(reason, Properties(authentication_method=method, authentication_data=data))


def begin(data: bytes = b"1", method: str = METHOD, hooks: Hooks | None = None) -> tuple[MemoryBroker, Client]:
    if hooks is None:
        hooks = Hooks()
        hooks.add("auth_packet", count)
    broker = MemoryBroker(Config(sys_interval=0, allow_anonymous=False), hooks)
    client = Client(broker)
    client.version = 5
    asked = Properties(authentication_method=method, authentication_data=data)
    client.send(Connect("c", 5, properties=asked))
    return broker, client


def authenticated() -> tuple[MemoryBroker, Client]:
    broker, client = begin()
    client.send(step(b"2"))
    client.send(step(b"3"))
    assert isinstance(client.packets()[-1], Connack)
    return broker, client


def reason_of(packets: list[Packet]) -> int:
    [packet] = packets
    assert isinstance(packet, Connack | Disconnect)
    return packet.reason


def test_an_exchange_of_several_steps() -> None:
    broker, client = begin()
    assert client.packets() == [step(b"2?")]
    assert broker.server.sessions == {}
    client.send(step(b"2"))
    assert client.packets() == [step(b"3?")]
    client.send(step(b"3"))
    [answer] = client.packets()
    assert isinstance(answer, Connack) and answer.reason == SUCCESS and answer.properties is not None
    assert answer.properties.authentication_method == METHOD
    assert answer.properties.authentication_data == b"welcome"
    client.send(Pingreq())
    assert client.packets() == [Pingresp()]


def test_a_client_that_is_known_at_once() -> None:
    _, client = begin(b"3")
    assert reason_of(client.packets()) == SUCCESS


@pytest.mark.parametrize("at", [1, 2])
def test_a_wrong_answer_is_refused(at: int) -> None:
    broker, client = begin(b"wrong" if at == 1 else b"1")
    if at == 2:
        client.packets()
        client.send(step(b"wrong"))
    assert reason_of(client.packets()) == NOT_AUTHORIZED
    assert client.socket.shut and broker.server.sessions == {}


def test_a_method_that_no_guard_knows() -> None:
    for hooks in (None, Hooks()):
        _, client = begin(method="other", hooks=hooks)
        assert reason_of(client.packets()) == BAD_AUTHENTICATION_METHOD
        assert client.socket.shut


def test_the_method_may_not_change() -> None:
    for state in (begin, authenticated):
        _, client = state()
        client.packets()
        client.send(step(b"2", method="other"))
        assert reason_of(client.packets()) == PROTOCOL_ERROR


@pytest.mark.parametrize("packet", [Publish("t", b"m"), Pingreq(), Connect("c", 5)])
def test_nothing_else_may_come_during_the_exchange(packet: Packet) -> None:
    broker, client = begin()
    client.packets()
    client.send(packet)
    assert reason_of(client.packets()) == PROTOCOL_ERROR
    assert client.socket.shut and broker.server.sessions == {}


def test_a_client_may_leave_during_the_exchange() -> None:
    broker, client = begin()
    client.packets()
    client.send(Disconnect())
    assert client.packets() == [] and broker.server.sessions == {}


def test_an_exchange_that_takes_too_long() -> None:
    broker, client = begin()
    client.packets()
    broker.later(broker.server.config.connect_timeout + 0.1)
    assert client.socket.shut and broker.server.sessions == {}


def test_authenticating_again_while_messages_flow() -> None:
    _, client = authenticated()
    client.send(step(b"1", REAUTHENTICATE))
    assert client.packets() == [step(b"2?")]
    client.send(Pingreq())
    assert client.packets() == [Pingresp()]
    client.send(step(b"2"))
    client.send(step(b"3"))
    assert client.packets() == [step(b"3?"), step(b"welcome", SUCCESS)]


def test_failing_to_authenticate_again_ends_the_connection() -> None:
    _, client = authenticated()
    client.send(step(b"wrong", REAUTHENTICATE))
    assert reason_of(client.packets()) == NOT_AUTHORIZED
    assert client.socket.shut


@pytest.mark.parametrize("reason", [SUCCESS, REAUTHENTICATE])
def test_a_step_with_the_wrong_reason(reason: int) -> None:
    _, client = begin()
    client.packets()
    client.send(step(b"2", reason))
    assert reason_of(client.packets()) == PROTOCOL_ERROR


def test_auth_without_a_method_in_connect() -> None:
    client = MemoryBroker().client("c")
    client.send(step(b"1", REAUTHENTICATE))
    assert reason_of(client.packets()) == PROTOCOL_ERROR


def test_a_guard_that_raises_has_refused() -> None:
    """With its own reason, or 0x83 when it was not meant."""

    def locked(*arguments: object) -> None:
        raise Refusal(0x8A, "banned")

    def broken(*arguments: object) -> None:
        raise ZeroDivisionError

    for guard, reason in ((locked, 0x8A), (broken, 0x83)):
        hooks = Hooks()
        hooks.add("auth_packet", guard)
        hooks.add("auth_packet", lambda *arguments: Challenge(done=True))
        broker, client = begin(hooks=hooks)
        assert reason_of(client.packets()) == reason and broker.server.sessions == {}
        assert hooks.failures == ({"auth_packet": 1} if guard is broken else {})


def test_the_first_guard_that_knows_the_method_answers() -> None:
    hooks = Hooks()
    asked: list[tuple[str, bool]] = []
    hooks.add("auth_packet", lambda client, method, data, again: asked.append((method, again)))
    hooks.add("auth_packet", count)
    _, client = begin(b"3", hooks=hooks)
    client.send(step(b"3", REAUTHENTICATE))
    assert asked == [(METHOD, False), (METHOD, True)]


# ---- who it is: what the exchange has proved, and nothing else ---------------------------------------------------


def proves(identity: str | None) -> Hooks:
    """A guard that takes everybody, as this user."""
    hooks = Hooks()
    hooks.add("auth_packet", lambda client, method, data, again: Challenge(done=True, username=identity))
    return hooks


def claim(
    name: str, hooks: Hooks, access: AccessSettings | None = None, *, will: Will | None = None, as_id: bool = False
) -> tuple[MemoryBroker, Client]:
    """A client whose CONNECT says `name`, whatever the exchange proves."""
    config = Config(sys_interval=0, allow_anonymous=False, access=access or AccessSettings())
    broker = MemoryBroker(config, hooks)
    return broker, claims(broker, name, will=will, as_id=as_id)


def claims(broker: MemoryBroker, name: str, *, will: Will | None = None, as_id: bool = False) -> Client:
    client = Client(broker)
    client.version = 5
    if as_id:
        client.channel.entrance = Entrance()
        client.channel.entrance.username_as_client_id = True
    asked = Properties(authentication_method=METHOD, authentication_data=b"1")
    client.send(Connect("c", 5, username=name, password=b"x", will=will, properties=asked))
    return client


@pytest.mark.parametrize("identity", ["alice", None])
def test_the_user_is_whom_the_exchange_proved(identity: str | None) -> None:
    broker, client = claim("root", proves(identity))
    assert reason_of(client.packets()) == SUCCESS
    assert client.channel.username == identity
    assert broker.server.sessions["c"].username == identity


def test_a_certificate_does_not_replace_what_the_exchange_proved() -> None:
    broker = MemoryBroker(Config(sys_interval=0), proves("alice"))
    client = Client(broker)
    client.version, client.channel.identity = 5, "of the certificate"
    client.send(Connect("c", 5, properties=Properties(authentication_method=METHOD)))
    assert reason_of(client.packets()) == SUCCESS and client.channel.username == "alice"


def test_nobody_is_known_until_the_exchange_has_ended() -> None:
    hooks = Hooks()
    hooks.add("auth_packet", count)
    broker, client = claim("root", hooks)
    assert client.channel.username is None
    seen: list[str | None] = []
    hooks.add("disconnect", lambda client, reason: seen.append(client.username))
    broker.server.access.ban("user", "root", None, "")
    broker.turn()
    client.send(Disconnect())
    assert seen == [None]


def test_rules_and_wills_are_of_whom_the_exchange_proved(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("user root\ntopic readwrite #\nuser alice\ntopic readwrite of/alice/#\n")
    will = Will("of/root/will", b"stolen")
    broker, client = claim("root", proves("alice"), AccessSettings(acl_file=str(rules)), will=will)
    assert reason_of(client.packets()) == SUCCESS
    client.send(Publish("of/root/x", b"", 1, packet_id=1))
    client.send(Publish("of/alice/x", b"", 1, packet_id=2))
    answers = [packet.reason for packet in client.packets() if isinstance(packet, Puback)]
    assert answers == [NOT_AUTHORIZED, NO_MATCHING_SUBSCRIBERS]
    client.lose()
    assert broker.server.access.refused_publishes == 2


def test_quotas_are_of_whom_the_exchange_proved() -> None:
    broker, first = claim("any", proves("alice"), AccessSettings(max_sessions_per_user=1), as_id=False)
    assert reason_of(first.packets()) == SUCCESS
    second = Client(broker)
    second.version = 5
    asked = Properties(authentication_method=METHOD)
    second.send(Connect("d", 5, username="somebody else", properties=asked))
    assert reason_of(second.packets()) == QUOTA_EXCEEDED


def test_bans_are_of_whom_the_exchange_proved() -> None:
    broker, _ = claim("x", proves("alice"))
    broker.server.access.ban("user", "alice", None, "")
    broker.server.access.ban("user", "mallory", None, "")
    assert reason_of(claims(broker, "innocent").packets()) == BANNED
    broker.server.access.bans.lift("user", "alice")
    assert reason_of(claims(broker, "mallory").packets()) == SUCCESS, "its exchange proves that it is alice"


def test_user_names_as_client_ids_are_of_whom_the_exchange_proved() -> None:
    broker, client = claim("root", proves("alice"), as_id=True)
    assert reason_of(client.packets()) == SUCCESS
    assert list(broker.server.sessions) == ["alice"]
    broker, client = claim("root", proves(None), as_id=True)
    assert reason_of(client.packets()) == NOT_AUTHORIZED and not broker.server.sessions


def test_authenticating_again_as_somebody_else_ends_the_connection() -> None:
    users = ["alice", "alice", "bob"]
    hooks = Hooks()
    hooks.add("auth_packet", lambda client, method, data, again: Challenge(done=True, username=users.pop(0)))
    _, client = claim("x", hooks)
    client.packets()
    client.send(step(b"", REAUTHENTICATE))
    (again,) = client.packets()
    assert isinstance(again, Auth) and again.reason == SUCCESS and client.channel.username == "alice"
    client.send(step(b"", REAUTHENTICATE))
    assert reason_of(client.packets()) == NOT_AUTHORIZED and client.socket.shut


def test_an_exchange_that_fails_counts_as_a_wrong_password() -> None:
    hooks = Hooks()
    hooks.add("auth_packet", lambda *arguments: False)
    access = AccessSettings(ban_failures=2, ban_exempt=[])
    broker, _ = claim("root", hooks, access)
    for expected in (NOT_AUTHORIZED, BANNED):
        client = claims(broker, "root")
        assert reason_of(client.packets()) == expected
