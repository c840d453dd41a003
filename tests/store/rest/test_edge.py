"""One address for an edge of several stores: who is sent elsewhere, what is merged, and what is missing is said."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from headwater.store.directory import Move
from headwater.store.memory import MemoryStore
from headwater.store.reader import StoreReader
from headwater.store.rest.others import CONNECTIONS
from headwater.store.retention import Retention
from tests.store.messages import MICROSECONDS, NOON, SECOND
from tests.store.rest.served import EVERYTHING, Served
from tests.store.rest.some_edge import SomeEdge, an_edge

Two = tuple[SomeEdge, Served, Served]


@pytest.fixture(scope="module")
def lasting() -> Iterator[tuple[SomeEdge, list[Served]]]:
    with an_edge("a", "b") as found:
        yield found


@pytest.fixture
def two(lasting: tuple[SomeEdge, list[Served]]) -> Two:
    edge, (a, b) = lasting
    a.use(MemoryStore("a", MICROSECONDS))
    b.use(MemoryStore("b", MICROSECONDS))
    edge.holdings, edge.moves, edge.token = [], [], EVERYTHING
    return edge, a, b


def write(served: Served, topic: str, *seconds: int) -> None:
    """A message at each of these seconds after noon."""
    for each in seconds:
        served.writer.take(topic, f"{served.store.id}{each}".encode(), arrival=NOON + each * SECOND)
    served.writer.sync()


def split(two: Two) -> Two:
    """`plant/#` was in `a` up to position 3, and is in `b` from 2 on; the clock of b's node is behind."""
    edge, a, b = two
    write(a, "plant/1", 10, 20, 30)
    write(a, "office/1", 40)
    write(b, "barn/1", 5)
    write(b, "plant/1", 25, 50)
    edge.holds(a, "office/#")
    edge.holds(b, "barn/#")
    edge.holds(a, "plant/#", last=3, epoch=1)
    edge.holds(b, "plant/#", first=2, epoch=2)
    return two


def names(page: Any) -> list[str]:
    return [f"{row['store']}:{row['position']}" for row in page["messages"]]


EVERY = ["b:1", "a:1", "a:2", "a:3", "b:2", "a:4", "b:3"]


def test_a_range_that_crosses_a_split_is_answered_from_both_stores(two: Two) -> None:
    _, a, b = split(two)
    for node in (a, b):
        page = node.get("/v1/messages")
        assert names(page) == EVERY
        assert (page["next"], page["more"]) == ("a:4,b:3", False)
        assert names(node.get("/v1/messages", {"topic": "plant/#"})) == ["a:1", "a:2", "a:3", "b:2", "b:3"]
        assert names(node.get("/v1/messages", {"after": page["next"]})) == []
    row = a.get("/v1/messages")["messages"][0]
    assert row == {"store": "b", **b.get("/v1/messages", {"scope": "store"})["messages"][0]}


def test_conditions_on_the_content_are_asked_of_what_is_merged(two: Two) -> None:
    edge, a, b = two
    edge.holds(a, "x/a")
    edge.holds(b, "x/b")
    for number in range(10):
        served, topic = (a, "x/a") if number % 2 else (b, "x/b")
        properties = json.dumps({"user": [["n", str(number)]], "content_type": "t"}).encode() if number > 4 else b""
        body = b"\xff" if number == 3 else json.dumps({"value": number // 2}).encode()
        served.writer.take(topic, body, arrival=NOON + number * SECOND, properties=properties)
        served.writer.sync()
    for node in (a, b):
        for form in ("json", "ndjson"):
            answer = node.call("GET", "/v1/messages", {"filter": "value > 1", "format": form})
            rows = answer.json()["messages"] if form == "json" else map(json.loads, answer.text.splitlines())
            assert [json.loads(row["payload"])["value"] for row in rows] == [2, 2, 3, 3, 4, 4]
        page = node.get("/v1/messages", {"filter": "value > 1", "limit": 3})
        assert names(page) == ["b:3", "a:3", "b:4"]
        assert names(node.get("/v1/messages", {"filter": "value > 1", "after": page["next"]})) == ["a:4", "b:5", "a:5"]


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7])
def test_pages_follow_their_cursor(two: Two, limit: int) -> None:
    _, a, b = split(two)
    found: list[str] = []
    path = f"/v1/messages?limit={limit}"
    for number in range(10):
        answer = (a, b)[number % 2].call("GET", path)  # any node goes on where another one ended
        page = answer.json()
        found += names(page)
        assert page["more"] is ("next" in answer.links)
        if not page["more"]:
            break
        path = answer.links["next"]["url"]
    assert found == EVERY


def test_a_cursor_goes_on_when_more_has_come(two: Two) -> None:
    _, a, b = split(two)
    cursor = a.get("/v1/messages")["next"]
    write(a, "office/1", 60)
    write(b, "plant/1", 55)
    page = a.get("/v1/messages", {"after": cursor})
    assert names(page) == ["b:4", "a:5"]
    assert names(a.get("/v1/messages", {"after": cursor, "before": "a:5,"})) == ["b:4"]
    assert names(a.get("/v1/messages", {"after": "a:4,"})) == ["b:1", "b:2", "b:3", "b:4", "a:5"]


def test_lines_are_merged_as_well(two: Two) -> None:
    _, a, _ = split(two)
    answer = a.call("GET", "/v1/messages", {"format": "ndjson"})
    assert names({"messages": [json.loads(line) for line in answer.text.splitlines()]}) == EVERY
    answer = a.call("GET", "/v1/messages", {"format": "ndjson", "limit": 4})
    assert names({"messages": [json.loads(line) for line in answer.text.splitlines()]}) == EVERY[:4]
    for form in ("csv", "arrow"):
        assert "can be had as JSON" in a.refusal("GET", "/v1/messages", {"format": form})[1]


def test_many_messages_come_in_many_pages(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    edge, a, b = two
    monkeypatch.setattr("headwater.store.rest.merged.PAGE", 7)
    write(a, "x/1", *range(0, 200, 2))
    write(b, "x/2", *range(1, 200, 2))
    edge.holds(a, "x/1")
    edge.holds(b, "x/2")
    answer = a.call("GET", "/v1/messages", {"format": "ndjson"})
    payloads = [json.loads(line)["payload"] for line in answer.text.splitlines()]
    assert payloads == [f"{'ab'[number % 2]}{number}" for number in range(200)]


def test_who_asks_for_what_another_store_has_alone_is_sent_there(two: Two) -> None:
    _, a, b = split(two)
    for question in ({"topic": "barn/#", "limit": 5}, {"after": "b:1"}, {"before": "b:3", "topic": "plant/#"}):
        answer = a.call("GET", "/v1/messages", question)
        assert answer.status_code == 307
        assert answer.headers["location"].startswith(f"{b.url}/v1/messages?")
        followed = httpx.get(answer.headers["location"], headers={"Authorization": f"Bearer {EVERYTHING}"})
        assert followed.json() == b.get("/v1/messages", {**question, "scope": "store"})


@pytest.mark.parametrize("form", ["json", "ndjson", "csv"])
def test_what_one_store_has_is_answered_as_if_there_were_no_other(two: Two, form: str) -> None:
    _, a, _ = two
    write(a, "office/1", 40)
    questions: list[dict[str, Any]] = [{"topic": "office/#"}, {"after": 0}, {"after": "a:0"}, {"scope": "store"}]
    before = [a.call("GET", "/v1/messages", {"format": form, **each}).content for each in questions]
    _, a, b = two
    two[0].holds(a, "office/#")
    two[0].holds(b, "plant/#")
    assert [a.call("GET", "/v1/messages", {"format": form, **each}).content for each in questions] == before


def test_readers_by_position_ask_one_store(two: Two) -> None:
    _, a, _ = split(two)
    reader = StoreReader(a.url, token=EVERYTHING)
    assert [row["position"] for row in reader.messages()] == [1, 2, 3, 4]
    assert sum(batch.num_rows for batch in reader.read()) == 4
    assert reader.store_id() == "a"
    assert [f"{row['store']}:{row['position']}" for row in reader.messages(scope="edge")] == EVERY
    assert [row["position"] for row in reader.messages(topic="barn/#", scope="edge")] == [1]  # sent elsewhere


@pytest.mark.parametrize(
    ("question", "status", "words"),
    [
        ({"after": "a:1,a:2"}, 400, "names the store a twice"),
        ({"after": "a:9999999999999999999,"}, 400, "beyond any position"),
        ({"after": "a:1,z:2"}, 422, "the store z, which is none of this edge"),
        ({"after": "a:1,b:2", "before": "a:7"}, 422, "both"),
        ({"after": "a:1,b:2", "scope": "store"}, 422, "needs the scope"),
        ({"after": "z:2"}, 422, "another store"),
        ({"after": "a:1,,b:2"}, 400, "is written id:position"),
    ],
)
def test_wrong_cursors(two: Two, question: dict[str, Any], status: int, words: str) -> None:
    _, a, _ = split(two)
    found, detail = a.refusal("GET", "/v1/messages", question)
    assert found == status
    assert words in detail


def test_a_caller_sees_of_other_stores_what_it_may_see_here(two: Two) -> None:
    _, a, b = split(two)
    a.add("plants", "plant/#")
    write(b, "barn/1", *range(60, 120))
    assert names(a.get("/v1/messages", token="plants")) == ["a:1", "a:2", "a:3", "b:2", "b:3"]
    page = a.get("/v1/messages", {"limit": 2}, token="plants")
    assert names(page) == ["a:1", "a:2"]
    assert names(a.get("/v1/messages", {"limit": 3, "after": page["next"]}, token="plants")) == ["a:3", "b:2", "b:3"]
    assert {each.authorization for each in b.gate.approaches} == {f"Bearer {EVERYTHING}"}, "whose token is whose"


# ---- what is missing ----------------------------------------------------------------------------------------------


def away(edge: SomeEdge) -> None:
    """Nobody listens where `b` is said to be."""
    edge.holdings = [each._replace(url="http://127.0.0.1:9") if each.store == "b" else each for each in edge.holdings]


def test_a_store_that_does_not_answer_is_named(two: Two) -> None:
    edge, a, _ = split(two)
    away(edge)
    for form in ("json", "ndjson"):
        answer = a.call("GET", "/v1/messages", {"format": form})
        assert answer.status_code == 503
        assert answer.headers["content-type"] == "application/problem+json"
        body = answer.json()
        assert body["error"] == "incomplete"
        assert [(each["store"], each["url"]) for each in body["missing"]] == [("b", "http://127.0.0.1:9")]
        assert "the store b at http://127.0.0.1:9" in body["detail"]
    assert len(a.get("/v1/messages", {"topic": "office/#"})["messages"]) == 1


def test_who_asks_for_a_part_gets_it_and_goes_on_later(two: Two) -> None:
    edge, a, b = split(two)
    away(edge)
    page = a.get("/v1/messages", {"partial": "true"})
    assert names(page) == ["a:1", "a:2", "a:3", "a:4"]
    assert [each["store"] for each in page["missing"]] == ["b"]
    answer = a.call("GET", "/v1/messages", {"partial": "true", "format": "ndjson"})
    assert len(answer.text.splitlines()) == 4
    assert answer.headers["headwater-missing"] == "b"
    edge.holdings = [each._replace(url=b.url) if each.store == "b" else each for each in edge.holdings]
    assert names(a.get("/v1/messages", {"after": page["next"]})) == ["b:1", "b:2", "b:3"]


def test_a_store_that_refuses_this_node_is_missing_too(two: Two) -> None:
    edge, a, _ = split(two)
    edge.token = "nobody"
    answer = a.call("GET", "/v1/messages")
    assert answer.status_code == 503
    assert "show a token (401" in answer.json()["missing"][0]["why"]


def test_a_node_that_says_nothing_is_missing(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    edge, a, _ = split(two)
    monkeypatch.setattr("tests.store.rest.some_edge.TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        edge.holdings = [each._replace(url=url) if each.store == "b" else each for each in edge.holdings]
        assert "timed out" in a.call("GET", "/v1/messages").json()["missing"][0]["why"]


def test_connections_to_other_nodes_are_bounded(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    _edge, a, _ = split(two)
    going = threading.Semaphore(0)
    at_once: list[int] = []
    lock = threading.Lock()
    open_now = [0]

    class Counted:
        def topics_page(self, *_: Any, **__: Any) -> dict[str, Any]:
            with lock:
                open_now[0] += 1
                at_once.append(open_now[0])
                if len(at_once) == CONNECTIONS:
                    going.release(1000)  # as many as may be are there together
            assert going.acquire(timeout=10)
            with lock:
                open_now[0] -= 1
            return {"store": "b", "topics": [], "next": None}

    monkeypatch.setattr(SomeEdge, "client", lambda self, place: Counted())
    with ThreadPoolExecutor(3 * CONNECTIONS) as pool:
        found = list(pool.map(lambda _: a.get("/v1/topics")["store"], range(3 * CONNECTIONS)))
    assert found == ["a"] * 3 * CONNECTIONS
    assert max(at_once) == CONNECTIONS


def test_another_store_where_one_was_is_missing(two: Two) -> None:
    edge, a, _ = split(two)
    edge.holdings = [each._replace(url=a.url) for each in edge.holdings]
    assert "the store a answers there" in a.call("GET", "/v1/messages").json()["detail"]


def test_a_store_that_goes_away_in_the_middle_cuts_the_stream(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    _edge, a, _b = split(two)
    monkeypatch.setattr("headwater.store.rest.merged.PAGE", 1)
    real = SomeEdge.client
    calls: list[str] = []

    def client(self: SomeEdge, place: Any) -> StoreReader:
        calls.append(place.id)
        return real(self, place._replace(url="http://127.0.0.1:9") if len(calls) > 1 else place)

    monkeypatch.setattr(SomeEdge, "client", client)
    with pytest.raises(httpx.RemoteProtocolError):
        a.call("GET", "/v1/messages", {"format": "ndjson"})
    assert len(calls) == 2


def test_retention_was_faster_at_another_store(two: Two) -> None:
    _, a, b = split(two)
    store = MemoryStore("b", MICROSECONDS, Retention(age=SECOND))
    b.use(store)
    write(b, "plant/1", 5, 25, 50)
    store.trim(NOON + 40 * SECOND)
    first = store.first
    assert first > 1
    answer = a.call("GET", "/v1/messages", {"after": "a:0,b:1"})
    assert answer.status_code == 410
    assert (answer.json()["store"], answer.json()["first"]) == ("b", first)


# ---- topics -------------------------------------------------------------------------------------------------------


def topics(page: Any) -> list[tuple[str, str, int]]:
    return [(row["topic"], row["store"], row["messages"]) for row in page["topics"]]


ALL_TOPICS = [("barn/1", "b", 1), ("office/1", "a", 1), ("plant/1", "a", 3), ("plant/1", "b", 2)]


def test_topics_of_all_stores(two: Two) -> None:
    _, a, b = split(two)
    for node in (a, b):
        page = node.get("/v1/topics")
        assert topics(page) == ALL_TOPICS
        assert (page["store"], page["next"]) == (node.store.id, None)
    own = a.get("/v1/topics", {"scope": "store"})
    assert [row["topic"] for row in own["topics"]] == ["office/1", "plant/1"]
    assert a.call("GET", "/v1/topics", {"filter": "office/#"}).json()["topics"] == own["topics"][:1]
    assert [each["topic"] for each in StoreReader(a.url, token=EVERYTHING).topics()] == ["office/1", "plant/1"]
    assert len(list(StoreReader(a.url, token=EVERYTHING).topics(scope="edge"))) == 4


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_of_topics_split_no_topic(two: Two, limit: int) -> None:
    _, a, b = split(two)
    for number in range(5):
        write(b, f"barn/x{number}", 60)
        write(a, f"office/x{number}", 60)
    whole = topics(a.get("/v1/topics"))
    assert len(whole) == 14
    found: list[tuple[str, str, int]] = []
    after = ""
    while True:
        page = a.get("/v1/topics", {"limit": limit, "after": after})
        found += topics(page)
        if page["next"] is None:
            break
        after = page["next"]
    assert found == whole


def test_topics_of_others_are_judged_here(two: Two) -> None:
    _, a, _ = split(two)
    a.add("plants", "plant/#")
    assert topics(a.get("/v1/topics", token="plants")) == ALL_TOPICS[2:]


def test_topics_of_a_store_that_is_away(two: Two) -> None:
    edge, a, _ = split(two)
    away(edge)
    assert a.call("GET", "/v1/topics").status_code == 503
    page = a.get("/v1/topics", {"partial": "true"})
    assert topics(page) == [each for each in ALL_TOPICS if each[1] == "a"]
    assert page["missing"][0]["store"] == "b"


def test_the_latest_message_is_that_of_the_new_store_whatever_the_clocks_say(two: Two) -> None:
    _, a, b = split(two)
    assert a.get("/v1/topics/plant/1/latest") == {"store": "b", **b.get("/v1/topics/plant/1/latest?scope=store")}
    assert "store" not in a.get("/v1/topics/office/1/latest")
    assert b.get("/v1/topics/office/1/latest")["store"] == "a"
    assert a.refusal("GET", "/v1/topics/plant/2/latest")[0] == 404
    a.add("offices", "office/#")
    assert a.refusal("GET", "/v1/topics/plant/1/latest", token="offices") == a.refusal(
        "GET", "/v1/topics/none/1/latest", token="offices"
    )


# ---- the directory ------------------------------------------------------------------------------------------------


def test_every_node_says_which_stores_there_are(two: Two) -> None:
    edge, a, b = two
    a.add("nobody", "nothing")
    assert a.refusal("GET", "/v1/edge", token="nobody") == (404, "this node is part of no edge (edge.name)")
    assert StoreReader(a.url, token=EVERYTHING).directory() is None
    split(two)
    assert a.refusal("GET", "/v1/edge", token="nobody")[0] == 403
    for node in (a, b):
        found = StoreReader(node.url, token=EVERYTHING).directory()
        assert found is not None
        assert found.holdings == tuple(sorted(edge.holdings, key=lambda each: each.epoch))
        assert found.node == f"node-{node.store.id}"
    assert a.call("GET", "/v1/edge", token=None).status_code == 401


# ---- moves and ends -----------------------------------------------------------------------------------------------


def test_a_store_that_has_ended_is_not_asked_for_what_is_behind_its_end(two: Two) -> None:
    edge, a, _b = split(two)
    edge.holdings = [each._replace(last=3) if each.store == "b" else each for each in edge.holdings]
    away(edge)
    write(a, "office/1", 60)
    page = a.get("/v1/messages", {"after": "a:4,b:3"})
    assert names(page) == ["a:5"]
    assert page["next"] == "a:5,b:3"
    assert a.call("GET", "/v1/messages", {"after": "a:4,b:2"}).status_code == 503


def test_while_a_move_goes_on_what_comes_later_is_read_later(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    edge, a, _b = split(two)
    edge.holdings = [each._replace(last=None) if each.epoch == 1 else each for each in edge.holdings]
    edge.moves = [Move("plant/#", 2, ("node-a",), 1000.0)]
    monkeypatch.setattr("headwater.store.rest.asked.time.time", lambda: 1010.0)
    page = a.get("/v1/messages")
    assert names(page) == ["b:1", "a:1", "a:2", "a:3", "a:4"]
    assert page["next"] == "a:4,b:1"
    write(a, "plant/1", 31)
    edge.holdings = [each._replace(last=5) if each.epoch == 1 else each for each in edge.holdings]
    edge.moves = []
    assert names(a.get("/v1/messages", {"after": page["next"]})) == ["a:5", "b:2", "b:3"]


def test_a_move_that_does_not_end_holds_nothing_back_for_ever(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    edge, a, _ = split(two)
    edge.holdings = [each._replace(last=None) if each.epoch == 1 else each for each in edge.holdings]
    edge.moves = [Move("plant/#", 2, ("node-a",), 1000.0)]
    monkeypatch.setattr("headwater.store.rest.asked.time.time", lambda: 1061.0)
    assert len(names(a.get("/v1/messages"))) == 7


def test_more_stores_than_a_cursor_holds(two: Two) -> None:
    edge, a, b = two
    edge.holds(b, "x")
    edge.holdings += [edge.holdings[0]._replace(store=f"s{number}") for number in range(40)]
    status, detail = a.refusal("GET", "/v1/messages", {"topic": "x"})
    assert status == 422
    assert "32 can be asked at once" in detail
