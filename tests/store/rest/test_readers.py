"""Readers and statistics by HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.store.memory import MemoryStore
from headwater.store.readers import MOST
from headwater.store.retention import Retention
from tests.store.messages import MICROSECONDS, NOON, SECOND
from tests.store.rest.served import Served, serving


def test_a_reader_from_its_first_commit_to_its_end(served: Served) -> None:
    served.writer.write("a", "b", "c")
    assert served.get("/v1/readers") == {"store": "s1", "readers": []}
    assert served.refusal("GET", "/v1/readers/lake")[0] == 404
    made = served.call("PUT", "/v1/readers/lake", json={"position": 1}).json()
    assert {**made, "created": "", "committed": ""} == {
        "name": "lake",
        "store": "s1",
        "position": 1,
        "lag": 2,
        "lost": 0,
        "created": "",
        "committed": "",
    }
    assert made["created"].endswith("Z")
    assert served.get("/v1/readers/lake") == made
    served.call("PUT", "/v1/readers/lake", json={"position": "s1:3"})
    [reader] = served.get("/v1/readers")["readers"]
    assert (reader["position"], reader["lag"], reader["created"]) == (3, 0, made["created"])
    assert served.store.reader("lake").position == 3
    assert served.call("PUT", "/v1/readers/lake", json={"position": 0}).json()["lag"] == 3  # back again
    assert served.call("DELETE", "/v1/readers/lake").status_code == 204
    assert served.refusal("DELETE", "/v1/readers/lake")[0] == 404


@pytest.mark.parametrize(
    ("name", "body", "status", "reason"),
    [
        ("lake", b'{"position": 4}', 409, "has not been given yet"),
        ("lake", b'{"position": "s2:1"}', 422, "another store"),
        ("lake", b'{"position": -1}', 422, "greater than or equal"),
        ("lake", b'{"position": true}', 422, ""),
        ("lake", b'{"position": 1.5}', 422, ""),
        ("lake", b'{"position": 1, "name": "x"}', 422, "Extra inputs"),
        ("lake", b'{"position": 99999999999999999999999}', 422, ""),
        ("lake", b"{}", 422, "Field required"),
        ("lake", b"[1]", 422, ""),
        ("lake", b"1", 422, ""),
        ("lake", b"", 422, "no JSON"),
        ("lake", b"\xff", 422, "no JSON"),
        ("lake", b'{"position": 1}' + b" " * 5000, 413, ""),
        ("-lake", b'{"position": 1}', 422, "a reader's name"),
        ("l%20ke", b'{"position": 1}', 422, "a reader's name"),
        ("x" * 129, b'{"position": 1}', 422, "a reader's name"),
    ],
)
def test_commits_that_cannot_be(quick: Served, name: str, body: bytes, status: int, reason: str) -> None:
    quick.writer.write("a", "b", "c")
    found, detail = quick.refusal("PUT", f"/v1/readers/{name}", content=body)
    assert found == status and reason in detail, detail
    assert quick.store.readers() == []


def test_a_commit_to_what_is_gone_and_what_was_lost() -> None:
    store = MemoryStore("s1", MICROSECONDS, Retention(age=10 * SECOND, hard_age=10 * SECOND))
    with serving(store) as served:
        for index in range(8):
            served.writer.take("a", arrival=NOON + index * SECOND)
        served.writer.sync()
        served.call("PUT", "/v1/readers/slow", json={"position": 2})
        store.trim(NOON + 15 * SECOND)
        reader = served.get("/v1/readers/slow")
        assert (reader["position"], reader["lost"], reader["lag"]) == (5, 3, 3)
        answer = served.call("PUT", "/v1/readers/slow", json={"position": 3})
        assert answer.status_code == 410
        assert (answer.json()["first"], answer.json()["lost"]) == (6, 2)


def test_readers_are_bounded() -> None:
    store = MemoryStore("s1")
    for index in range(MOST):
        store.commit(f"r{index}", 0)
    with serving(store) as served:
        status, detail = served.refusal("PUT", "/v1/readers/more", json={"position": 0})
        assert status == 409 and "readers already" in detail


def test_statistics(served: Served) -> None:
    served.writer.write("a", "b", "a")
    served.call("PUT", "/v1/readers/lake", json={"position": 1})
    said = served.get("/v1/store")
    expected: dict[str, Any] = {"id": "s1", "first": 1, "next": 4, "messages": 3, "topics": 2, "readers": 1, "tails": 0}
    assert expected.items() <= said.items()
    assert said["size"] > 0 and said["payload_size"] == 3
    head = served.call("HEAD", "/v1/store")
    assert (head.status_code, head.content) == (200, b"")


def test_they_are_for_those_who_may_read_everything(served: Served) -> None:
    served.writer.write("a")
    served.call("PUT", "/v1/readers/lake", json={"position": 0})
    served.add("some", "a/#", "b/#")
    served.add("all", "#")
    for method, path in [
        ("GET", "/v1/store"),
        ("GET", "/v1/readers"),
        ("GET", "/v1/readers/lake"),
        ("GET", "/v1/readers/nobody"),
        ("PUT", "/v1/readers/lake"),
        ("DELETE", "/v1/readers/lake"),
        ("DELETE", "/v1/readers/nobody"),
    ]:
        body = {"content": b'{"position": 1}'} if method == "PUT" else {}
        refused = served.call(method, path, token="some", **body)
        assert (refused.status_code, refused.json()["error"]) == (403, "forbidden")
        assert served.call(method, path, token="all", **body).status_code in (200, 204, 404)
