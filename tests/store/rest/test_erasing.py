"""Erasing by HTTP: who may, what is refused, and what is said of it afterwards."""

from __future__ import annotations

import pytest

from headwater.store.reader import Refused, StoreReader
from headwater.store.rest.erasing import PAGE
from tests.store.rest.served import EVERYTHING, Served


def test_messages_of_a_topic_and_at_positions(served: Served) -> None:
    served.writer.write("a", "secret/1", "b", "secret/2", "c")
    reader = StoreReader(served.url, token=EVERYTHING)
    assert reader.erase("secret/#") == (2, 5, False)
    assert [each["position"] for each in served.get("/v1/messages")["messages"]] == [1, 3, 5]
    assert reader.erase(positions="1,3-3") == (2, 5, False)
    assert reader.erase(positions="1-3", after=2) == (0, 5, False)
    assert served.get("/v1/messages")["messages"][0]["position"] == 5
    assert sorted(each for low, high in reader.erased() for each in range(low, high + 1)) == [1, 2, 3, 4]
    assert list(reader.erased(4)) == []
    assert served.get("/v1/topics/c/latest")["position"] == 5
    assert served.refusal("GET", "/v1/topics/a/latest")[0] == 404


def test_only_who_shows_the_token_may(served: Served) -> None:
    served.writer.write("a")
    served.add("alice", "#")
    for path in ("/v1/messages?topic=a", "/v1/messages"):
        with pytest.raises(Refused, match=r"rest\.token"):
            StoreReader(served.url, token="alice")._call("DELETE", path)
    assert len(served.get("/v1/messages")["messages"]) == 1


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", "say what"),
        ("topic=a&positions=1", "say what"),
        ("topic=a/%23/b", "`topic`"),
        ("positions=1-", "is written"),
        ("positions=5-4", "ends before"),
        ("positions=" + ",".join(map(str, range(1, 2003, 2))), "at most 1000"),
        ("topic=a&after=s2:4", "another store"),
        ("topics=a", "topic"),
    ],
)
def test_what_is_not_understood_is_refused(quick: Served, query: str, reason: str) -> None:
    quick.writer.write("a")
    status, detail = quick.refusal("DELETE", f"/v1/messages?{query}")
    assert status == 422
    assert reason in detail
    assert len(quick.get("/v1/messages")["messages"]) == 1


def test_many_ranges_come_in_pages(quick: Served) -> None:
    count = PAGE + 7
    quick.writer.write(*["x", "y"] * count)
    reader = StoreReader(quick.url, token=EVERYTHING)
    assert reader.erase("x")[0] == count
    assert len(list(reader.erased())) == count
