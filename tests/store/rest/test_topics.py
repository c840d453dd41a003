"""Topics by HTTP: which there are, their latest messages, and publishing."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import quote

import pytest

from headwater.store.store import Store
from tests.store.messages import NOON, SECOND, payload
from tests.store.rest.served import EVERYTHING, PATIENCE, Served, serving

STRANGE = [
    "a",
    "/",
    "//",
    "/a//b/",
    "a b",
    "é/日本",
    "%2F",
    "a?b=c&d",
    "a#b"[:1] + ";x",
    "latest",
    "a/latest",
    "..",
    "a\nb",
    "$x/y",
]


def raw(served: Served, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Any:
    """Sent as it is: a path that no library has tidied up."""
    connection = http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=PATIENCE)
    try:
        connection.request(method, path, body, {"Authorization": f"Bearer {EVERYTHING}", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


# ---- the list ------------------------------------------------------------------------------------------------------


def test_topics_with_their_first_and_last(served: Served) -> None:
    for index, topic in enumerate(["b", "a/x", "b", "$SYS/x"]):
        served.writer.take(topic, payload(NOON - index * SECOND))
    served.writer.sync()
    page = served.get("/v1/topics", {"filter": "#"})
    assert (page["store"], page["next"]) == ("s1", None)
    assert [each["topic"] for each in page["topics"]] == ["a/x", "b"]
    assert page["topics"][1] == {
        "topic": "b",
        "messages": 2,
        "first": 1,
        "last": 3,
        "first_time": "2025-10-09T08:53:20.000000Z",
        "last_time": "2025-10-09T08:53:18.000000Z",
    }
    assert [each["topic"] for each in served.get("/v1/topics")["topics"]] == ["$SYS/x", "a/x", "b"]
    assert [each["topic"] for each in served.get("/v1/topics", {"filter": "a/+"})["topics"]] == ["a/x"]


def test_topics_come_in_pages(served: Served) -> None:
    names = sorted({*STRANGE, *(f"t/{index}" for index in range(10))})
    served.writer.write(*names)
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        page = served.get("/v1/topics", {"limit": 4, "after": after})
        assert len(page["topics"]) <= 4
        seen += [each["topic"] for each in page["topics"]]
        after = page["next"]
    assert seen == names


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"filter": "a#"}, "'#' must stand alone"),
        ({"limit": 0}, "limit"),
        ({"limit": 10_001}, "limit"),
        ({"topic": "a"}, "unknown parameter 'topic'"),
    ],
)
def test_wrong_parameters(quick: Served, asked: dict[str, Any], reason: str) -> None:
    status, detail = quick.refusal("GET", "/v1/topics", asked)
    assert status == 422 and reason in detail


# ---- the latest ----------------------------------------------------------------------------------------------------


def test_the_latest_message_of_any_topic(served: Served) -> None:
    for topic in STRANGE:
        served.writer.take(topic, b"old")
        served.writer.take(topic, f"new of {topic}".encode())
    served.writer.sync()
    for topic in STRANGE:
        for quoted in (quote(topic, safe=""), quote(topic, safe="/")):
            status, headers, body = raw(served, "GET", f"/v1/topics/{quoted}/latest")
            assert status == 200, (topic, body)
            message = json.loads(body)
            assert (message["topic"], message["payload"]) == (topic, f"new of {topic}")
            status, headers, body = raw(served, "HEAD", f"/v1/topics/{quoted}/latest")
            assert (status, body) == (200, b"") and int(headers["content-length"]) > 0


def test_no_message_and_no_right_are_the_same_answer(served: Served) -> None:
    served.writer.write("secret", "open")
    served.add("eve", "open")
    assert served.get("/v1/topics/open/latest", token="eve")["position"] == 2
    hidden, missing = [served.call("GET", f"/v1/topics/{each}/latest", token="eve") for each in ("secret", "nothing")]
    assert hidden.status_code == missing.status_code == 404
    assert hidden.content == missing.content
    assert hidden.headers == missing.headers


@pytest.mark.parametrize("path", ["%FF", "a%00b", "", "a/+", "%23", "%C3", "/".join("x" * 1001)])
def test_no_topic(quick: Served, path: str) -> None:
    status, _, body = raw(quick, "GET", f"/v1/topics/{path}/latest")
    assert status == 422 and json.loads(body)["error"] == "unprocessable"
    if path:
        assert raw(quick, "PUT", f"/v1/topics/{path}", b"x")[0] == 422
    assert quick.gate.published == []


def test_the_longest_topic(served: Served) -> None:
    topic = "é" * 32767 + "x"
    for _ in range(2):
        status, headers, _ = raw(served, "PUT", f"/v1/topics/{quote(topic)}", b"1")
        assert status == 201 and "Location" not in headers  # a header that many clients would not take
    assert json.loads(raw(served, "GET", f"/v1/topics/{quote(topic)}/latest")[2])["topic"] == topic
    status, headers, body = raw(served, "GET", f"/v1/messages?limit=1&topic={quote(topic)}")
    assert status == 200 and json.loads(body)["more"] and "Link" not in headers
    for path in (f"/v1/topics/{quote(topic)}x/latest", f"/v1/messages?topic={quote(topic)}x"):
        status, _, body = raw(served, "GET", path)
        assert status == 422 and b"65535" in body


# ---- publishing ----------------------------------------------------------------------------------------------------


def test_put_replaces_the_latest_value_and_history_is_kept(served: Served) -> None:
    for value in (b"20", b"21"):
        answer = served.call("PUT", "/v1/topics/room/1", content=value)
        assert answer.status_code == 201 and answer.json()["store"] == "s1"
    assert answer.json()["position"] == 2
    assert served.call("GET", answer.headers["location"]).json()["payload"] == "21"
    messages = served.get("/v1/messages")["messages"]
    assert [(each["payload"], each["qos"], each["retain"]) for each in messages] == [("20", 1, True), ("21", 1, True)]


def test_post_publishes_once(quick: Served) -> None:
    asked = {"qos": 2, "retain": "false", "expiry": 60}
    headers = [
        ("Authorization", f"Bearer {EVERYTHING}"),
        ("Content-Type", "application/cbor"),
        ("Headwater-User-Property", "unit=°C".encode()),
        ("Headwater-User-Property", b"a = b=c"),
    ]
    answer = quick.client.post("/v1/topics/a", params=asked, content=b"\xff\x00", headers=headers)
    assert answer.status_code == 201
    [publication] = quick.gate.published
    assert publication == ("a", b"\xff\x00", 2, False, "application/cbor", (("unit", "°C"), ("a", "b=c")), 60)
    assert quick.call("POST", "/v1/topics/a").status_code == 201
    assert quick.gate.published[-1] == ("a", b"", 1, False, None, (), None)


def test_what_curl_says_of_any_body_is_no_content_type(quick: Served) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert quick.call("POST", "/v1/topics/a", content=b"1", headers=headers).status_code == 201
    assert quick.gate.published[-1].content_type is None


def test_a_topic_that_is_not_stored(quick: Served) -> None:
    quick.gate.stored = False
    answer = quick.call("POST", "/v1/topics/a", content=b"1")
    assert (answer.status_code, answer.json()) == (202, {"store": "s1", "position": None})


@pytest.mark.parametrize(
    ("asked", "headers", "reason"),
    [
        ({"qos": 3}, {}, "qos"),
        ({"qos": -1}, {}, "qos"),
        ({"retain": "perhaps"}, {}, "retain"),
        ({"expiry": 0}, {}, "expiry"),
        ({"expiry": 2**32}, {}, "expiry"),
        ({"dup": 1}, {}, "unknown parameter 'dup'"),
        ({}, {"Headwater-User-Property": "no sign"}, "name=value"),
        ({}, {"Headwater-User-Property": b"a=\xff"}, "not in UTF-8"),
        ({}, {"Content-Type": b"\xff"}, "not in UTF-8"),
    ],
)
def test_publishing_with_wrong_parameters(
    quick: Served, asked: dict[str, Any], headers: dict[str, Any], reason: str
) -> None:
    status, detail = quick.refusal("POST", "/v1/topics/a", asked, headers=headers)
    assert status == 422 and reason in detail
    assert quick.gate.published == []


def test_too_many_user_properties(quick: Served) -> None:
    headers = [("Authorization", f"Bearer {EVERYTHING}"), *[("Headwater-User-Property", "a=b")] * 101]
    assert quick.client.post("/v1/topics/a", headers=headers).status_code == 422
    assert quick.client.post("/v1/topics/a", headers=headers[:-1]).status_code == 201


def test_payloads_are_bounded(quick: Served) -> None:
    most = quick.gate.largest_payload
    assert quick.call("PUT", "/v1/topics/a", content=b"x" * most).status_code == 201
    assert quick.refusal("PUT", "/v1/topics/a", content=b"x" * (most + 1))[0] == 413
    parts = (b"x" * 10_000 for _ in range(most // 10_000 + 1))
    assert quick.refusal("PUT", "/v1/topics/a", content=parts)[0] == 413  # its length is not said
    assert len(quick.gate.published) == 1


def test_who_may_not_publish(quick: Served) -> None:
    quick.add("eve", "mine/#")
    assert quick.refusal("PUT", "/v1/topics/yours", token="eve", content=b"1")[0] == 403
    assert quick.call("PUT", "/v1/topics/mine/1", token="eve", content=b"1").status_code == 201
    assert [each.topic for each in quick.gate.published] == ["mine/1"]


def test_a_gate_that_refuses(quick: Served) -> None:
    answer = quick.call("POST", "/v1/topics/full", content=b"1")
    assert (answer.status_code, answer.json()) == (507, {"error": "full", "detail": "no room"})


@pytest.mark.parametrize("topic", ["a\r\nX-Evil: 1", "a\nb", "\r\n\r\n<script>", "é\x7f\x01"])
def test_nothing_in_a_topic_becomes_a_header(quick: Served, topic: str) -> None:
    status, headers, _ = raw(quick, "PUT", f"/v1/topics/{quote(topic, safe='')}", b"1")
    assert status == 201 and "X-Evil" not in headers
    assert headers["Location"] == f"/v1/topics/{quote(topic)}/latest" and headers["Location"].isprintable()
    status, headers, body = raw(quick, "GET", f"/v1/messages?limit=1&topic={quote(topic, safe='')}")
    assert (status, json.loads(body)["messages"][0]["topic"]) == (200, topic)
    raw(quick, "PUT", f"/v1/topics/{quote(topic, safe='')}", b"2")
    _, headers, _ = raw(quick, "GET", f"/v1/messages?limit=1&topic={quote(topic, safe='')}")
    assert "X-Evil" not in headers and quote(topic, safe="") in headers["Link"].replace("+", "%20")
    status, headers, _ = raw(quick, "GET", f"/v1/topics/{quote(topic, safe='')}/latest")
    assert status == 200 and "X-Evil" not in headers


def test_hostile_content_types_stay_inside_messages(store: Store) -> None:
    with serving(store) as served:
        for content_type in ("text/html", "a" * 60_000, 'x; q="\x80"'):
            headers = {"Content-Type": content_type.encode("utf-8")}
            assert served.call("PUT", "/v1/topics/a", content=b"<script>", headers=headers).status_code == 201
            answer = served.call("GET", "/v1/topics/a/latest")
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-content-type-options"] == "nosniff"
