"""What the node may answer with instead of a result, as values of JSON, and as the exception that it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headwater.disk.errors import StorageError
from headwater.node.admin.reach import BrokerStopped
from headwater.node.protocol.tracing import TooManyTraces
from headwater.store.rest.gate import Refused, Unauthorized
from headwater.store.store import PositionGone, UnknownReader


class NodeFailed(Exception):
    """It should not have: the node's log says why."""


_BY_TEXT: Final[dict[str, Callable[[str], Exception]]] = {
    "storage": StorageError,
    "value": ValueError,
    "reader": UnknownReader,
    "traces": lambda text: TooManyTraces(),
    "stopped": lambda text: BrokerStopped(),
    "failed": NodeFailed,
}


def told(error: Exception) -> list[Any] | None:
    """None: it is nothing that is told."""
    if isinstance(error, Refused):
        return ["refused", error.status, error.error, error.detail, error.more]
    if isinstance(error, PositionGone):
        return ["gone", error.asked, error.first]
    kinds = (("storage", StorageError), ("reader", UnknownReader), ("traces", TooManyTraces))
    for kind, made in (*kinds, ("stopped", BrokerStopped)):
        if isinstance(error, made):
            return [kind, str(error)]
    return ["value", str(error)] if isinstance(error, ValueError) else None


def failure_of(words: list[Any]) -> Exception:
    kind, *rest = words
    if kind == "refused":
        status, error, detail, more = rest
        return Unauthorized(detail) if status == Unauthorized("").status else Refused(status, error, detail, **more)
    if kind == "gone":
        return PositionGone(*rest)
    return _BY_TEXT[kind](rest[0])
