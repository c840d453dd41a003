"""How fast decoding is, against parsing alone: a ratio, since machines differ."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from headwater.pipeline.decoding import Rules, decode, json_text
from tests.pipeline.decoding.bronze import bronze, rules_of

COUNT = 20_000
FLAT = [
    {"ts": n, "value": n / 8, "device": f"press-{n % 50}", "unit": "C", "state": "running", "ok": True}
    for n in range(COUNT)
]
NESTED = [{"at": "2026-11-17T01:51:07Z", "value": n / 8, "meta": {"site": "north", "unit": "C"}} for n in range(COUNT)]


def least(work: Callable[[], object]) -> float:
    """Processor seconds of the best of some."""
    found = []
    for _ in range(5):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def test_a_document_costs_little_more_than_to_parse_it() -> None:
    """2.5 times as much; to look at each document by itself, as paths need it, is 8 times as much."""
    topics = [f"plant/line{n % 4}/press{n % 100}/state" for n in range(COUNT)]
    for documents in (FLAT, NESTED):
        payloads = [json.dumps(each).encode() for each in documents]
        batch = bronze(payloads, topics)
        parsing = least(lambda payloads=payloads: [json_text.loads(each) for each in payloads])  # type: ignore[misc]
        for rules in (Rules(), rules_of(decoder="json", device="{3}")):
            decoding = least(lambda batch=batch, rules=rules: decode(batch, rules))  # type: ignore[misc]
            assert decoding < 5 * parsing
