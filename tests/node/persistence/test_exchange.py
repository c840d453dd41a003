"""Exports and imports: the same comes back, and what cannot be used is refused by its line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.message import Message, Subscription
from headwater.node.persistence import exchange
from headwater.node.persistence.backend import Backend
from headwater.node.persistence.export import Export, as_text
from headwater.node.persistence.importing import BadLines, Import, Imported, import_lines
from headwater.node.persistence.memory import MemoryBackend
from headwater.node.persistence.records import (
    DELIVERY,
    GROUP,
    MESSAGE,
    RECEIVED,
    RETAINED,
    SESSION,
    SUBSCRIPTION,
    delivery_in,
    delivery_key,
    delivery_record,
    group_record,
    message_in,
    number_key,
    received_key,
    record_of,
    retained_key,
    session_record,
    subscription_key,
    subscription_record,
)
from headwater.node.persistence.schema import open_folder
from headwater.routing.topics import split_shared
from headwater.session.journaled import DurableDelivery, JournaledMessage
from headwater.session.outbound import Outbound
from headwater.session.session import Session
from headwater.session.waiting import Budget
from tests.node.persistence.durable import DurableBroker


def exported(backend: Backend) -> list[dict[str, Any]]:
    left_out: list[str] = []
    lines = list(Export(backend, left_out.append).lines())
    assert left_out == []
    return lines


def as_lines(lines: list[dict[str, Any]]) -> list[bytes]:
    return [as_text(line).encode() + b"\n" for line in lines]


def imported(lines: list[dict[str, Any]], into: Backend | None = None) -> tuple[Backend, Imported]:
    backend = into or MemoryBackend()
    return backend, Import(backend).run(as_lines(lines))


# ---- whatever there is -----------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_characters="\0+#/", exclude_categories=["Cs"]), min_size=1, max_size=8)
TIMES = st.floats(0, 1e11)
BYTES = st.binary(max_size=20) | st.text(max_size=10).map(lambda text: text.encode("utf-8", "ignore"))
MESSAGES = st.builds(
    lambda topic, payload, qos, retain, others, owner: with_owner(
        Message(topic, payload, qos, retain, **others), owner
    ),
    TEXT,
    BYTES,
    st.integers(0, 2),
    st.booleans(),
    st.fixed_dictionaries(
        {"publisher": TEXT | st.just("")},
        optional={
            "expires_at": TIMES,
            "payload_format": st.integers(0, 1),
            "content_type": TEXT,
            "response_topic": TEXT,
            "correlation_data": BYTES,
            "user_properties": st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3),
        },
    ),
    st.none() | TEXT | st.just(""),
)
FILTERS = TEXT | st.just("#") | st.builds("$share/{}/{}".format, st.sampled_from("gh"), TEXT)
SUBSCRIPTIONS = st.dictionaries(
    FILTERS,
    st.builds(
        lambda qos, no_local, as_published, handling, identifier: {
            "qos": qos,
            "no_local": no_local,
            "retain_as_published": as_published,
            "retain_handling": handling,
            "identifier": identifier,
        },
        st.integers(0, 2),
        st.booleans(),
        st.booleans(),
        st.integers(0, 2),
        st.integers(0, 268_435_455),
    ),
    max_size=3,
)


def with_owner(message: Message, owner: str | None) -> Message:
    message.owner = owner
    return message


@st.composite
def stores(draw: st.DrawFn) -> MemoryBackend:
    """A store with all kinds of records, whose numbers have gaps and are in no particular order between kinds."""
    puts: list[tuple[bytes, bytes]] = []
    numbers = iter(sorted(draw(st.sets(st.integers(1, 1 << 40), min_size=60, max_size=60))))
    messages = [(next(numbers), message) for message in draw(st.lists(MESSAGES, max_size=4))]
    puts += [(number_key(MESSAGE, number), record_of(message, 0.0)) for number, message in messages]
    groups: set[str] = set()
    owners: list[tuple[int, bool]] = []
    for client_id in draw(st.lists(TEXT, max_size=4, unique=True)):
        session = Session(client_id, Outbound(Budget(1000), 10, 1000, 0))
        session.number = next(numbers)
        session.durable = draw(st.booleans())
        session.expiry_interval = draw(st.integers(0, 0xFFFFFFFF))
        session.username = draw(st.none() | TEXT)
        session.outbound.next_id = draw(st.integers(1, 65535))
        session.expires_at = draw(st.just(math.inf) | TIMES)
        if draw(st.booleans()):
            session.will = draw(MESSAGES)
            session.will_delay = draw(st.integers(0, 0xFFFFFFFF))
            session.will_expiry = draw(st.none() | st.integers(0, 0xFFFFFFFF))
            session.will_at = draw(st.just(math.inf) | TIMES)
        puts.append((number_key(SESSION, session.number), session_record(session, 0.0)))
        owners.append((session.number, True))
        for name, options in draw(SUBSCRIPTIONS).items():
            puts.append((subscription_key(session.number, name), subscription_record(Subscription(name, **options))))
            if name.startswith("$share/"):
                groups.add(name)
        for packet_id in draw(st.sets(st.integers(1, 65535), max_size=2)):
            puts.append((received_key(session.number, packet_id), b""))
    for name in sorted(groups):
        if draw(st.booleans()):
            share, filter = split_shared(name)
            number = next(numbers)
            puts.append((number_key(GROUP, number), group_record(share or "", filter)))
            owners.append((number, False))
    puts += draw(deliveries(owners, [number for number, _ in messages], numbers))
    for message in draw(st.lists(MESSAGES, max_size=3, unique_by=lambda message: message.topic)):
        message.retain = True
        puts.append((retained_key(message.topic), record_of(message, 0.0)))
    backend = MemoryBackend()
    backend.write(puts, [])
    return backend


@st.composite
def deliveries(draw: st.DrawFn, owners: list[tuple[int, bool]], messages: list[int], numbers: Any) -> list[Any]:
    puts = []
    packet_ids = iter(range(1, 100))
    for _ in range(draw(st.integers(0, 6)) if owners and messages else 0):
        owner, is_session = draw(st.sampled_from(owners))
        message = draw(st.sampled_from(messages))
        kept = DurableDelivery(
            next(numbers), owner, JournaledMessage(message, None, b"", b"", 0, ""), draw(st.integers(1, 2))
        )
        kept.retain = draw(st.booleans())
        kept.identifiers = draw(st.none() | st.lists(st.integers(1, 268_435_455), min_size=1, max_size=2))
        group = ""
        if is_session and draw(st.booleans()):
            kept.packet_id = next(packet_ids)
            kept.released = draw(st.booleans())
            group = draw(st.sampled_from(["", "$share/g/a"]))
        puts.append((delivery_key(owner, kept.number), delivery_record(kept, 0, group)))
    return puts


def meaning(backend: Backend) -> dict[str, Any]:
    """What the records say, without the numbers that lead from one to the other."""
    names: dict[bytes, str] = {}
    sessions = {}
    for key, value in backend.scan(SESSION):
        fields = json.loads(value)
        names[key[1:]] = fields["id"]
        sessions[fields["id"]] = fields
    for key, value in backend.scan(GROUP):
        names[key[1:]] = "$share/{}/{}".format(*json.loads(value))
    waiting: dict[str, list[Any]] = {}
    for key, value in backend.scan(DELIVERY):
        number, *rest = delivery_in(value)
        message = backend.get(number_key(MESSAGE, number))
        del rest[4]  # the size is worked out again
        waiting.setdefault(names[key[1:9]], []).append((message, *rest))
    return {
        "sessions": sessions,
        "subscriptions": {(names[key[1:9]], key[9:]): value for key, value in backend.scan(SUBSCRIPTION)},
        "received": {(names[key[1:9]], key[9:]) for key, _ in backend.scan(RECEIVED)},
        "waiting": waiting,
        "retained": dict(backend.scan(RETAINED)),
    }


@settings(max_examples=150, deadline=None)
@given(stores())
def test_export_import_export_is_the_same(store: MemoryBackend) -> None:
    lines = exported(store)
    again, _ = imported(lines)
    assert exported(again) == lines
    assert meaning(again) == meaning(store)
    twice, _ = imported(lines, into=again)  # and a second time changes nothing but what waits for groups twice
    sessions = [line for line in exported(twice) if line["kind"] not in ("message", "queued")]
    assert sessions == [line for line in lines if line["kind"] not in ("message", "queued")]


@settings(max_examples=50, deadline=None)
@given(MESSAGES)
def test_a_message_keeps_all_it_has(message: Message) -> None:
    line = {"kind": "retained", **exchange.content_of(message)}
    read = exchange.RetainedLine.model_validate(json.loads(as_text(line))).message()
    # Through the record on both sides: `stored` and the like are no part of it.
    assert record_of(read, 0.0) == record_of(message, 0.0)
    assert message_in(record_of(read, 0.0), 0.0).owner == message.owner


def test_a_session_record_has_no_field_that_an_import_would_refuse() -> None:
    session = Session("c", Outbound(Budget(1000), 10, 1000, 0))
    session.username, session.expires_at, session.will, session.will_expiry, session.will_at = (
        "u",
        1.0,
        Message("t"),
        1,
        1.0,
    )
    session.outbound.next_id = 7
    backend = MemoryBackend()
    backend.write([(number_key(SESSION, 1), session_record(session, 0.0))], [])
    imported(exported(backend))


# ---- a broker goes on ------------------------------------------------------------------------------------------


def test_a_broker_takes_up_what_was_imported() -> None:
    lines: list[dict[str, Any]] = [
        {"kind": "headwater-export", "schema": 1},
        {"kind": "session", "client_id": "away", "expiry": 4294967295, "away": True},
        {"kind": "subscription", "client_id": "away", "filter": "a/#", "qos": 1},
        {"kind": "subscription", "client_id": "away", "filter": "$share/g/jobs", "qos": 1},
        {"kind": "message", "id": 1, "topic": "a/b", "payload": "hello", "qos": 1},
        {"kind": "queued", "client_id": "away", "message": 1, "qos": 1},
        {"kind": "queued", "group": "$share/g/jobs", "message": 1, "qos": 1},
        {"kind": "retained", "topic": "r", "payload_base64": "/w=="},
    ]
    backend, counted = imported(lines)
    assert counted == (1, 2, 2, 1)
    assert isinstance(backend, MemoryBackend)
    broker = DurableBroker(backend)
    assert broker.recovered == (1, 2, 2, 1, 0)
    retained = broker.server.router.retained.get("r")
    assert retained is not None
    assert (retained.payload, retained.retain) == (b"\xff", True)


# ---- merging ---------------------------------------------------------------------------------------------------

HEADER: dict[str, Any] = {"kind": "headwater-export", "schema": 1}


def session(client_id: str) -> dict[str, Any]:
    return {"kind": "session", "client_id": client_id, "expiry": 100}


def subscription(client_id: str, filter: str) -> dict[str, Any]:
    return {"kind": "subscription", "client_id": client_id, "filter": filter, "qos": 1}


def message(number: int, payload: str) -> dict[str, Any]:
    return {"kind": "message", "id": number, "topic": "t", "payload": payload, "qos": 1}


def queued(number: int, **owner: str) -> dict[str, Any]:
    return {"kind": "queued", **owner, "message": number, "qos": 1}


def test_what_is_imported_wins_and_the_rest_stays() -> None:
    group = "$share/g/t"
    first = [
        *(HEADER, session("a"), subscription("a", "old"), session("b"), subscription("b", group)),
        *(message(1, "one"), queued(1, client_id="a"), queued(1, group=group)),
        {"kind": "retained", "topic": "x", "payload": "old"},
        {"kind": "retained", "topic": "y", "payload": "old"},
    ]
    second = [
        *(HEADER, session("a"), subscription("a", "new"), session("c"), subscription("c", group)),
        *(message(1, "two"), queued(1, client_id="a"), queued(1, group=group)),
        {"kind": "retained", "topic": "x", "payload": "new"},
    ]
    backend, _ = imported(first)
    imported(second, into=backend)
    found = exported(backend)
    texts = {line["id"]: line["payload"] for line in found if line["kind"] == "message"}
    waiting = [(line.get("client_id"), texts[line["message"]]) for line in found if line["kind"] == "queued"]
    assert waiting == [("a", "two"), (None, "one"), (None, "two")]
    assert [(line["client_id"], line["filter"]) for line in found if line["kind"] == "subscription"] == [
        ("b", group),
        ("a", "new"),
        ("c", group),
    ]
    assert [(line["topic"], line["payload"]) for line in found if line["kind"] == "retained"] == [
        ("x", "new"),
        ("y", "old"),
    ]


def test_a_group_that_loses_its_last_member_goes() -> None:
    group = "$share/g/t"
    first = [HEADER, session("a"), subscription("a", group), message(1, "one"), queued(1, group=group)]
    backend, _ = imported(first)
    imported([HEADER, session("a")], into=backend)
    assert [line["kind"] for line in exported(backend)] == ["headwater-export", "session"]
    assert list(backend.scan(GROUP)) == []


# ---- lines that cannot be used ---------------------------------------------------------------------------------

TEXT_OF_HEADER = as_text(HEADER)
BAD: dict[str, tuple[str, str]] = {
    "no JSON": ("{", "is not JSON"),
    "no text": ('{"kind": "retained", "topic": "\\ud800", "payload": ""}', "topic: is not Unicode text"),
    "a list": ("[]", "is not an object with a kind"),
    "no kind": ('{"topic": "a"}', "is not an object with a kind"),
    "a strange kind": ('{"kind": "cat"}', "kinds are headwater-export, session"),
    "a header again": (TEXT_OF_HEADER, "the first line, and no other"),
    "a strange field": (
        '{"kind": "retained", "topic": "a", "payload": "", "colour": 1}',
        "colour: there is no such",
    ),
    "no payload": ('{"kind": "retained", "topic": "a"}', "needs either payload or payload_base64"),
    "two payloads": (
        '{"kind": "retained", "topic": "a", "payload": "", "payload_base64": ""}',
        "needs either payload or payload_base64",
    ),
    "no base64": ('{"kind": "retained", "topic": "a", "payload_base64": "!"}', "payload_base64:"),
    "a wildcard in a topic": ('{"kind": "retained", "topic": "a/#", "payload": ""}', "topic:"),
    "a bad filter": ('{"kind": "subscription", "client_id": "a", "filter": "a/#/b", "qos": 1}', "filter:"),
    "a QoS of three": ('{"kind": "retained", "topic": "a", "payload": "", "qos": 3}', "qos:"),
    "a QoS that is true": ('{"kind": "retained", "topic": "a", "payload": "", "qos": true}', "qos:"),
    "not a time": ('{"kind": "retained", "topic": "a", "payload": "", "expires": NaN}', "expires:"),
    "no such session": (
        '{"kind": "subscription", "client_id": "a", "filter": "a", "qos": 1}',
        "there is no session 'a'",
    ),
    "no such message": ('{"kind": "queued", "client_id": "a", "message": 7, "qos": 1}', "there is no message 7 before"),
    "for nobody": ('{"kind": "queued", "message": 7, "qos": 1}', "needs a client_id, a group or both"),
    "no group": ('{"kind": "queued", "group": "a/b", "message": 7, "qos": 1}', "has a group that is none"),
    "a will without a session": (
        '{"kind": "will", "client_id": "a", "topic": "a", "payload": ""}',
        "behind its session",
    ),
    "deep": ("[" * 100_000, "is "),
}


@pytest.mark.parametrize(("line", "said"), BAD.values(), ids=BAD.keys())
def test_a_bad_line_is_refused_by_its_number(line: str, said: str) -> None:
    with pytest.raises(BadLines) as error:
        Import(MemoryBackend()).run([TEXT_OF_HEADER.encode(), as_text(session("z")).encode(), line.encode()])
    first, *rest = str(error.value).splitlines()
    assert first.startswith("line 3: ")
    assert said in first
    assert rest == ["nothing was imported"]


def complaints(*lines: dict[str, Any]) -> list[str]:
    with pytest.raises(BadLines) as error:
        imported([HEADER, *lines])
    return str(error.value).splitlines()


def test_what_may_be_there_once() -> None:
    assert "line 3: the session 'a' comes twice" in complaints(session("a"), session("a"))
    assert "line 3: the message 1 comes twice" in complaints(message(1, ""), message(1, ""))
    in_flight = {**queued(1, client_id="a"), "packet_id": 5}
    assert "line 5: packet id 5 of 'a' comes twice" in complaints(session("a"), message(1, ""), in_flight, in_flight)
    said = complaints(message(1, ""), queued(1, group="$share/g/t"))
    assert said[0] == "line 3: no session has a subscription of the group '$share/g/t'"


def test_an_export_begins_as_one() -> None:
    for lines, said in (
        ([], "line 1: there is nothing"),
        ([as_text(session("a")).encode()], "line 1: the first line, and no other"),
        (
            [b'{"kind": "headwater-export", "schema": 2}'],
            "line 1: the export has schema 2, this headwater reads schema 1",
        ),
        ([b"\xff\xfe"], "line 1: is not in UTF-8"),
        (["{}".encode("utf-16-le")], "line 1: is not JSON"),
    ):
        with pytest.raises(BadLines, match=said):
            Import(MemoryBackend()).run(lines)


def test_many_bad_lines_are_told_of_but_not_all() -> None:
    said = complaints(*[{"kind": "cat"}] * 1000)
    assert len(said) == 21
    assert said[-1] == "there may be more; nothing was imported"


# ---- folders ---------------------------------------------------------------------------------------------------


def test_all_or_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    many = [{"kind": "retained", "topic": f"t/{number}", "payload": "x"} for number in range(3000)]
    import_lines(folder, as_lines([HEADER, session("a"), *many]))
    before = exported_folder(folder)
    assert len(before) == 3002
    with pytest.raises(BadLines, match="line 3002: "):
        import_lines(folder, as_lines([HEADER, *[{**line, "payload": "y"} for line in many], session("")]))
    assert exported_folder(folder) == before
    assert len([each for each in folder.iterdir() if each.name.startswith("store")]) == 1


def exported_folder(folder: Path) -> list[dict[str, Any]]:
    backend = open_folder(folder)
    try:
        return exported(backend)
    finally:
        backend.close()


def test_what_cannot_be_understood_is_left_out_of_an_export() -> None:
    backend, _ = imported(
        [
            *(HEADER, session("a"), subscription("a", "f"), message(1, "one"), queued(1, client_id="a")),
            {"kind": "retained", "topic": "t", "payload": "x"},
        ]
    )
    backend.write(
        [
            (number_key(SESSION, 100), b"{"),
            (subscription_key(1, "g"), b"short"),
            (delivery_key(1, 101), b"short"),
            (
                delivery_key(1, 102),
                delivery_record(DurableDelivery(102, 1, JournaledMessage(999, None, b"", b"", 0, ""), 1), 0, ""),
            ),
            (retained_key("u"), b"\0" * 20),
        ],
        [],
    )
    left_out: list[str] = []
    kinds = [line["kind"] for line in Export(backend, left_out.append).lines()]
    assert kinds == ["headwater-export", "session", "subscription", "message", "queued", "retained"]
    assert len(left_out) == 5
