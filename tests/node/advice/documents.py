"""Advice for tests: good by default, and as wrong as asked for."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from headwater.node.advice.document import topic_of

GROUP = "$share/g/t"
TOPIC = topic_of("weights", GROUP)
EPOCH = 1_790_000_000.0
"""What the wall clock says when the broker's says 0."""


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def document(number: int = 1, at: float = EPOCH + 1000.0, seconds: float = 600.0, **others: Any) -> dict[str, Any]:
    made = {"version": 1, "number": number, "made": moment(at), "expires": moment(at + seconds)}
    if "parts" not in others:
        made["weights"] = {"one": 2.0, "two": 0.5}
    return made | others


def payload(number: int = 1, **others: Any) -> bytes:
    return json.dumps(document(number, **others)).encode()
