"""How far behind a stream is."""

from __future__ import annotations

import json

from headwater.pipeline.source.progress import behind, metrics, offsets, with_metrics
from tests.pipeline.source.some_stores import fill
from tests.store.rest.served import EVERYTHING, Served


def test_messages_and_seconds_behind(one: Served, two: Served) -> None:
    fill(one, 10)
    fill(two, 5)
    given = {"url": f"{one.url},{two.url}", "token": EVERYTHING}
    progress = {"sources": [{"endOffset": json.dumps({"s1": 4, "s2": 5}), "latestOffset": {"s1": 9, "s2": 5}}]}
    assert offsets(progress) == {"s1": 4, "s2": 5}
    assert offsets(progress, "latestOffset") == {"s1": 9, "s2": 5}
    found = behind(progress, given)
    assert found.messages == {"s1": 6, "s2": 0}
    assert found.seconds is not None and found.seconds > 3600  # these messages are old
    read = {"sources": [{"endOffset": json.dumps({"s1": 10, "s2": 5})}]}
    assert behind(read, given).seconds == 0.0
    assert behind(read, {**given, "url": one.url}).seconds is None  # who knows
    assert offsets(None) == {} and behind(None, given).messages == {"s1": 10, "s2": 5}


def test_metrics_have_the_names_of_kafkas_source() -> None:
    source = {"endOffset": {"s1": 4, "s2": 5, "s3": 1}, "latestOffset": '{"s1": 9, "s2": 5}'}
    assert metrics(source) == {
        "avgOffsetsBehindLatest": str(5 / 3),
        "maxOffsetsBehindLatest": "5",
        "minOffsetsBehindLatest": "0",
        "offsetsBehindLatest.s1": "5",
        "offsetsBehindLatest.s2": "0",
        "offsetsBehindLatest.s3": "0",
    }
    for other in (
        {"endOffset": None, "latestOffset": None},
        {"endOffset": {"topic": {"0": 1}}, "latestOffset": {"topic": {"0": 2}}},
    ):
        assert metrics(other) == {}
    assert metrics({"endOffset": {"version": 3}, "latestOffset": {"version": 5}}) == {}, "that is a table"


def test_progress_with_metrics_and_seconds(one: Served) -> None:
    fill(one, 10)
    ours = {"endOffset": {"s1": 4}, "latestOffset": {"s1": 9}, "metrics": {}}
    other = {"endOffset": "5", "latestOffset": None, "metrics": {"theirs": "1"}}
    text = json.dumps({"batchId": 3, "sources": [ours, other]})
    found = with_metrics(text, {"url": one.url, "token": EVERYTHING})
    assert found["batchId"] == 3 and found["sources"][1] == other
    assert found["sources"][0]["metrics"]["maxOffsetsBehindLatest"] == "5"
    assert float(found["sources"][0]["metrics"]["secondsBehindLatest"]) > 3600  # these messages are old
    assert "secondsBehindLatest" not in with_metrics(text)["sources"][0]["metrics"]
