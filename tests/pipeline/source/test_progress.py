"""How far behind a stream is."""

from __future__ import annotations

import json

from headwater.pipeline.source.progress import behind, offsets
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
