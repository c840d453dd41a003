"""Messages by HTTP: the same in every form, in pages and streams, and what is said when a question is wrong."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.store.entry import LATEST, Entry, iso, microseconds
from headwater.store.memory import MemoryStore
from headwater.store.query import Query
from headwater.store.reader import StoreReader
from headwater.store.rest.context import Limits
from headwater.store.rest.gate import Caller
from headwater.store.retention import Retention
from headwater.store.store import Store
from tests.store.messages import MICROSECONDS, NOON, SECOND, contents, found, numbered, payload, queries
from tests.store.rest.served import EVERYTHING, Served, serving

FORMS = ["json", "ndjson", "csv", "arrow"]


def write(served: Served, *entries: tuple[str, bytes]) -> None:
    for topic, content in entries:
        served.writer.take(topic, content)
    served.writer.sync()


def positions(rows: list[dict[str, Any]]) -> list[int]:
    return [row["position"] for row in rows]


# ---- forms ---------------------------------------------------------------------------------------------------------


def from_json(row: dict[str, Any]) -> Entry:
    text, encoded = row["payload"], row.get("payload_base64")
    assert (text is None) is (encoded is not None)
    properties = row["properties"]
    return Entry(
        *(row["position"], row["topic"], text.encode() if encoded is None else base64.b64decode(encoded), row["qos"]),
        *(row["retain"], row["publisher"], moment(row["time"]), moment(row["arrival"]), row["value"]),
        b"" if properties is None else json.dumps(properties, separators=(",", ":")).encode(),
    )


def moment(text: str) -> int:
    assert text.endswith("Z") and len(text) == 27
    return microseconds(datetime.fromisoformat(text))


def from_csv(row: dict[str, str]) -> Entry:
    body = base64.b64decode(row["payload_base64"]) if row["payload_base64"] else row["payload"].encode()
    return Entry(
        *(int(row["position"]), row["topic"], body, int(row["qos"]), {"true": True, "false": False}[row["retain"]]),
        *(row["publisher"], moment(row["time"]), moment(row["arrival"])),
        *(float(row["value"]) if row["value"] else None, row["properties"].encode()),
    )


def from_arrow(row: dict[str, Any]) -> Entry:
    times = [microseconds(row[name]) for name in ("time", "arrival")]
    return Entry(
        *(row["position"], row["topic"], row["payload"], row["qos"], row["retain"], row["publisher"], *times),
        *(row["value"], (row["properties"] or "").encode()),
    )


def rows_of(form: str, content: bytes) -> list[Entry]:
    if form == "json":
        return [from_json(row) for row in json.loads(content)["messages"]]
    if form == "ndjson":
        return [from_json(json.loads(line)) for line in content.splitlines()]
    if form == "csv":
        return [from_csv(row) for row in csv.DictReader(io.StringIO(content.decode(), newline=""))]
    return [from_arrow(row) for row in pa.ipc.open_stream(content).read_all().to_pylist()]


def parameters(query: Query) -> dict[str, Any]:
    found = {
        "topic": query.filter,
        "from": None if query.start is None else iso(query.start),
        "to": None if query.end is None else iso(query.end),
        "min": query.low,
        "max": query.high,
        "after": query.after,
        "before": query.before,
        "limit": query.limit,
    }
    return {name: value for name, value in found.items() if value is not None}


def is_sensible(query: Query) -> bool:
    """Others are refused."""
    numbers = [each for each in (query.low, query.high) if each is not None]
    return (
        query.limit != 0
        and all(abs(each) < float("inf") for each in numbers)
        and (len(numbers) < 2 or numbers[0] <= numbers[1])
        and (query.start is None or query.end is None or query.start <= query.end)
        and (query.after is None or query.before is None or query.before > query.after)
    )


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(contents(), max_size=30), queries(30).filter(is_sensible), st.booleans())
def test_all_forms_say_what_the_store_says(lasting: Served, some: list[Entry], query: Query, ruled: bool) -> None:
    store = MemoryStore("s1", MICROSECONDS)
    lasting.use(store)
    lasting.writer.write_entries(numbered(some))
    lasting.writer.sync()
    caller = PlainTopics()
    lasting.gate.callers["plain"] = caller  # type: ignore[assignment] # as narrow as the test needs
    expected = found(store, query._replace(may_read=caller.may_read if ruled else None))
    for form in FORMS:
        asked = {**parameters(query), "format": form}
        answer = lasting.call("GET", "/v1/messages", asked, token="plain" if ruled else EVERYTHING)
        assert answer.status_code == 200, answer.text
        assert rows_of(form, answer.content) == expected, form


class PlainTopics(Caller):
    def may_read(self, topic: str) -> bool:
        return topic.isascii()


def test_forms_are_chosen_by_accept_or_by_name(quick: Served) -> None:
    write(quick, ("a", b"1"))
    types = {
        "application/json": "application/json",
        "application/x-ndjson": "application/x-ndjson",
        "text/csv": "text/csv; charset=utf-8; header=present",
        "application/vnd.apache.arrow.stream": "application/vnd.apache.arrow.stream",
    }
    for form, (asked, expected) in zip(FORMS, types.items(), strict=True):
        by_header = quick.call("GET", "/v1/messages", headers={"Accept": asked})
        by_name = quick.call("GET", "/v1/messages", {"format": form}, headers={"Accept": "image/png"})
        for answer in (by_header, by_name):
            assert answer.headers["content-type"] == expected
            assert positions([each._asdict() for each in rows_of(form, answer.content)]) == [1]
    status, detail = quick.refusal("GET", "/v1/messages", headers={"Accept": "image/png"})
    assert status == 406 and "text/csv" in detail
    assert quick.refusal("GET", "/v1/messages", {"format": "xml"})[0] == 422


@pytest.mark.parametrize("form", ["json", "ndjson", "csv"])
def test_text_is_compressed_if_that_is_asked_for(quick: Served, form: str) -> None:
    write(quick, *(("a", payload(value=each)) for each in range(100)))
    headers = {"Accept-Encoding": "gzip"}
    with quick.client.stream(
        "GET", "/v1/messages", params={"format": form}, headers={**headers, "Authorization": f"Bearer {EVERYTHING}"}
    ) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers["content-encoding"] == "gzip" and "Accept-Encoding" in answer.headers["vary"]
    assert len(rows_of(form, gzip.decompress(raw))) == 100
    plain = quick.call("GET", "/v1/messages", {"format": form}, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers and len(plain.content) > len(raw)


def test_only_the_columns_that_are_wanted(quick: Served) -> None:
    write(quick, *(("a", b"1") for _ in range(3)))
    asked = {"format": "arrow", "columns": "topic,position,topic"}
    with pa.ipc.open_stream(quick.call("GET", "/v1/messages", asked).content) as stream:
        table = stream.read_all()
    assert table.column_names == ["topic", "position"] and table.num_rows == quick.store.next - quick.store.first
    status, said = quick.refusal("GET", "/v1/messages", {"format": "arrow", "columns": "topic,publsher"})
    assert (status, said) == (422, "`columns`: unknown column 'publsher'; did you mean 'publisher'?")
    assert quick.refusal("GET", "/v1/messages", {"format": "csv", "columns": "topic"})[0] == 422
    reader = StoreReader(quick.url, token=EVERYTHING)
    [batch] = reader.read(columns=["qos", "value"], dictionaries=False)
    assert batch.schema.names == ["position", "qos", "value"] and batch.num_rows == table.num_rows


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_arrow_compresses_by_itself(quick: Served, compression: str) -> None:
    write(quick, *(("a", b"same " * 20) for _ in range(500)))
    asked = {"format": "arrow", "compression": compression}
    small = quick.call("GET", "/v1/messages", asked, headers={"Accept-Encoding": "gzip"})
    large = quick.call("GET", "/v1/messages", {"format": "arrow"}, headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in small.headers
    assert len(small.content) < len(large.content) / 2
    assert rows_of("arrow", small.content) == rows_of("arrow", large.content)
    assert quick.refusal("GET", "/v1/messages", {"format": "csv", "compression": compression})[0] == 422


def test_payloads_that_are_no_text(quick: Served) -> None:
    bodies = [b"\xff\x00", b"", "é\0日\r\n\"',;".encode(), b"\xed\xa0\x80", b'{"a": [1]}']
    write(quick, *(("a", body) for body in bodies))
    for form in FORMS:
        content = quick.call("GET", "/v1/messages", {"format": form}).content
        assert [each.payload for each in rows_of(form, content)] == bodies


def test_times_of_the_year_9999(quick: Served) -> None:
    quick.writer.take("a", payload(LATEST))
    quick.writer.take("b", b"", arrival=NOON)
    quick.writer.sync()
    for form in FORMS:
        content = quick.call("GET", "/v1/messages", {"format": form, "from": "9999-12-31T23:59:59"}).content
        assert [(each.topic, each.time) for each in rows_of(form, content)] == [("a", LATEST)]


# ---- conditions ----------------------------------------------------------------------------------------------------


def test_what_is_asked_for(served: Served) -> None:
    for index in range(10):
        served.writer.take(f"room/{index % 2}", payload(NOON + index * SECOND, index))
    served.writer.sync()
    for asked, expected in [
        ({}, range(1, 11)),
        ({"topic": "room/+"}, range(1, 11)),
        ({"topic": "room/1"}, [2, 4, 6, 8, 10]),
        ({"topic": "hall/#"}, []),
        ({"from": iso(NOON + 8 * SECOND)}, [9, 10]),
        ({"to": iso(NOON + 2 * SECOND)}, [1, 2]),
        ({"from": (NOON + 8 * SECOND) // SECOND}, [9, 10]),
        ({"from": (NOON + 8 * SECOND) // 1000}, [9, 10]),
        ({"from": NOON + 8 * SECOND}, [9, 10]),
        ({"min": 3, "max": 4.5}, [4, 5]),
        ({"after": 7, "topic": "room/0"}, [9]),
        ({"after": "s1:8"}, [9, 10]),
        ({"after": 2, "before": 5}, [3, 4]),
        ({"before": "s1:3"}, [1, 2]),
        ({"limit": 2}, [1, 2]),
        ({"after": 1000}, []),
    ]:
        assert positions(served.get("/v1/messages", asked)["messages"]) == list(expected), asked


def test_topics_that_begin_with_a_dollar_are_there_without_a_filter(served: Served) -> None:
    write(served, ("$SYS/x", b""), ("a", b""))
    assert positions(served.get("/v1/messages")["messages"]) == [1, 2]
    assert positions(served.get("/v1/messages", {"topic": "#"})["messages"]) == [2]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"topic": ""}, "empty"),
        ({"topic": "a/#/b"}, "'#' must be the last level"),
        ({"topic": "a+"}, "'+' must stand alone"),
        ({"topic": "a\0b"}, "null character"),
        ({"topic": "/" * 2000}, "more than 1000 levels"),
        ({"from": "yesterday"}, "`from` must be ISO 8601 or a Unix timestamp"),
        ({"from": "nan"}, "`from` must be ISO 8601 or a Unix timestamp"),
        ({"to": "1e400"}, "to"),
        ({"from": "10000-01-01"}, "must be ISO 8601"),
        ({"to": "9" * 30}, "`to` must be ISO 8601 or a Unix timestamp"),
        ({"from": "2026-01-01T00:00:00 01:00"}, "%2B"),
        ({"from": 2, "to": 1}, "`from` is later than `to`"),
        ({"min": "nan"}, "min"),
        ({"max": "inf"}, "max"),
        ({"min": "1e999"}, "min"),
        ({"min": "a"}, "min"),
        ({"min": 2, "max": 1}, "`min` is greater than `max`"),
        ({"after": "s2:1"}, "another store"),
        ({"after": "-1"}, "after"),
        ({"after": "one"}, "after"),
        ({"after": "9" * 19}, "beyond any position"),
        ({"after": 5, "before": 5}, "`before` is not greater"),
        ({"before": "s2:1"}, "another store"),
        ({"limit": 0}, "limit"),
        ({"limit": 10_001}, "at most 10000"),
        ({"limit": 10**30}, "limit"),
        ({"limit": 10**30, "format": "csv"}, "limit"),
        ({"format": "parquet"}, "format"),
        ({"compression": "lz4"}, "`compression` is for Arrow"),
        ({"topics": "a"}, "unknown parameter 'topics'; did you mean 'topic'?"),
        ({"topic": ["a", "b"]}, "'topic' is given twice"),
    ],
)
def test_wrong_parameters(quick: Served, asked: dict[str, Any], reason: str) -> None:
    if "compression" in asked:
        asked = {**asked, "format": "csv"}
    status, detail = quick.refusal("GET", "/v1/messages", asked)
    assert status == 422 and reason in detail, detail


def test_a_query_that_is_not_in_utf_8(quick: Served) -> None:
    assert quick.refusal("GET", "/v1/messages?topic=%FF") == (422, "the query is not in UTF-8")


def test_any_limit_that_is_a_number_is_fine_for_a_stream(quick: Served) -> None:
    write(quick, ("a", b""), ("b", b""))
    content = quick.call("GET", "/v1/messages", {"format": "ndjson", "limit": 2**63 - 1}).content
    assert len(content.splitlines()) == 2
    assert len(quick.call("GET", "/v1/messages", {"format": "ndjson", "limit": 1}).content.splitlines()) == 1


# ---- pages ---------------------------------------------------------------------------------------------------------


def test_pages_follow_each_other(served: Served) -> None:
    write(served, *((f"é {each % 3}/&?", b"x") for each in range(25)))
    seen: list[int] = []
    path = "/v1/messages?limit=4&topic=" + "%C3%A9%200/%26%3F"
    while path:
        answer = served.call("GET", path)
        page = answer.json()
        seen += positions(page["messages"])
        link = answer.headers.get("link")
        assert (link is not None) is page["more"]
        path = ""
        if link is not None:
            target, relation = link.split(";")
            assert relation.strip() == 'rel="next"' and page["next"] == seen[-1]
            path = target.strip("<>")
            assert not urlsplit(path).netloc
    assert seen == list(range(1, 26, 3))


def test_a_page_that_is_exactly_full_is_the_last(quick: Served) -> None:
    write(quick, *(("a", b"") for _ in range(4)))
    page = quick.get("/v1/messages", {"limit": 4})
    assert (positions(page["messages"]), page["next"], page["more"]) == ([1, 2, 3, 4], 4, False)


def test_next_spares_those_who_may_read_everything_a_second_look(served: Served) -> None:
    write(served, ("a", b""), ("b", b""), ("b", b""))
    page = served.get("/v1/messages", {"topic": "a"})
    assert (positions(page["messages"]), page["next"], page["store"]) == ([1], 3, "s1")
    assert served.get("/v1/messages", {"topic": "a", "before": 3})["next"] == 2
    assert served.get("/v1/messages", {"after": 3})["next"] == 3
    served.add("eve", "a")
    assert served.get("/v1/messages", token="eve")["next"] == 1
    assert served.get("/v1/messages", {"after": 1}, token="eve")["next"] == 1
    served.add("nobody")
    assert served.get("/v1/messages", token="nobody") == {"store": "s1", "messages": [], "next": None, "more": False}


def test_a_page_is_bounded_in_bytes(quick: Served) -> None:
    mebibyte = 1 << 20
    write(quick, *(("a", b"x" * 3 * mebibyte) for _ in range(5)), ("a", b"y" * 9 * mebibyte), ("a", b"z"))
    seen, after = [], 0
    while True:
        page = quick.get("/v1/messages", {"after": after})
        seen.append(positions(page["messages"]))
        after = page["next"]
        if not page["more"]:
            break
    assert seen == [[1, 2], [3, 4], [5], [6], [7]]


def test_a_page_has_at_most_as_many_as_is_set(store: Store) -> None:
    with serving(store, Limits(page=3)) as served:
        write(served, *(("a", b"") for _ in range(5)))
        assert positions(served.get("/v1/messages")["messages"]) == [1, 2, 3]
        assert served.refusal("GET", "/v1/messages", {"limit": 4})[0] == 422


# ---- retention -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_what_retention_has_removed_is_gone(form: str) -> None:
    store = MemoryStore("s1", MICROSECONDS, Retention(age=10 * SECOND))
    with serving(store) as served:
        for index in range(8):
            served.writer.take("a", b"", arrival=NOON + index * SECOND)
        served.writer.sync()
        store.trim(NOON + 15 * SECOND)
        assert store.first == 6
        answer = served.call("GET", "/v1/messages", {"after": 2, "format": form})
        assert answer.status_code == 410
        said = answer.json()
        assert (said["error"], said["first"], said["next"], said["lost"]) == ("gone", 6, 9, 3)
        assert "6" in said["detail"]
        for asked in ({"after": 5}, {}):
            content = served.call("GET", "/v1/messages", {**asked, "format": form}).content
            assert [each.position for each in rows_of(form, content)] == [6, 7, 8]


def test_the_time_of_day_is_in_utc(quick: Served) -> None:
    quick.writer.take("a", b"", arrival=microseconds(datetime(2026, 1, 31, 12, tzinfo=UTC)))
    quick.writer.sync()
    [message] = quick.get("/v1/messages")["messages"]
    assert message["time"] == message["arrival"] == "2026-01-31T12:00:00.000000Z"


# ---- conditions on the content -------------------------------------------------------------------------------------


def test_messages_by_their_content() -> None:
    with serving(MemoryStore("s")) as served:
        write(served, *((f"t/{number % 2}", b'{"value": %d, "unit": "C"}' % number) for number in range(1000)))
        wanted = {"filter": "value >= 990 and topic[1] = 1 and unit = 'C'"}
        for form in FORMS:
            rows = rows_of(form, served.call("GET", "/v1/messages", wanted | {"format": form}).content)
            assert [row.position for row in rows] == [992, 994, 996, 998, 1000]


def test_pages_of_what_meets_a_condition() -> None:
    with serving(MemoryStore("s")) as served:
        write(served, *(("t", b'{"value": %d}' % (number % 7)) for number in range(3000)))
        found: list[int] = []
        after, more = 0, True
        while more:
            page = served.get("/v1/messages", {"filter": "value = 3", "limit": 100, "after": after})
            found += positions(page["messages"])
            after, more = page["next"], page["more"]
        assert found == [number + 1 for number in range(3000) if number % 7 == 3]


def test_changed_and_limit_are_about_the_answer() -> None:
    with serving(MemoryStore("s")) as served:
        write(served, *(("t", b'{"value": %d}' % (number // 10)) for number in range(100)))
        for _ in range(2):
            page = served.get("/v1/messages", {"filter": "changed(value)"})
            assert positions(page["messages"]) == list(range(1, 100, 10))


def test_a_condition_that_cannot_be_read() -> None:
    with serving(MemoryStore("s")) as served:
        for path in ("/v1/messages", "/v1/tail"):
            said = "`filter`: expected a name or a value, found the end at character 8"
            assert served.refusal("GET", path, {"filter": "value >"}) == (422, said)
