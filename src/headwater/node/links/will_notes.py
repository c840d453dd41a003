"""What nodes say to each other about wills, as bytes.

    of a node to the deputy of its wills, notes:
    TELL      epoch:8 stamp:8 delay:8 left:8 expiry:8 size:2 client id, message as on disk (records.py)
              `left` < 0: the client is connected; `expiry` < 0: the message does not expire
    DONE      epoch:8        all are told; what was told in an earlier epoch is void
    DROP      stamp:8 …      these are void
    RELEASE   stamp:8 …      the same, and to be answered
    ASK       epoch:8        begin of an epoch: to be answered
    PONG      time:8         that of the PING, and the lease
    of the deputy:
    PING      time:8         note
    RELEASED  stamp:8 …      letter
    ALL       epoch:8        letter: all that was settled before was told
    SETTLED   stamp:8 …      letter: published, or void as the client is elsewhere
    of a deputy to all, and back, notes:
    QUERY     time:8 node    is your link with this node down?
    VOTE      time:8 down:8 node     `down` for so long; < 0: it is up

Numbers are big-endian; times are seconds.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from headwater.peering.frames.frame import MalformedFrame

TELL: Final = 1
DONE: Final = 2
DROP: Final = 3
RELEASE: Final = 4
ASK: Final = 5
PONG: Final = 6
PING: Final = 7
RELEASED: Final = 8
ALL: Final = 9
SETTLED: Final = 10
QUERY: Final = 11
VOTE: Final = 12
LETTERS: Final = (RELEASED, ALL, SETTLED)

_TELL: Final = struct.Struct(">BQQdddH")
_NUMBER: Final = struct.Struct(">Q")
_TIME: Final = struct.Struct(">d")
_VOTE: Final = struct.Struct(">dd")


class Told(NamedTuple):
    """A will, as a deputy is told of it."""

    epoch: int
    stamp: int
    delay: float
    left: float
    """Of the delay; < 0: the client is connected."""
    expiry: float
    client_id: str
    record: bytes


def tell(told: Told) -> bytes:
    client_id = told.client_id.encode()
    head = _TELL.pack(TELL, told.epoch, told.stamp, told.delay, told.left, told.expiry, len(client_id))
    return head + client_id + told.record


def told_in(body: bytes) -> Told:
    if len(body) < _TELL.size:
        raise MalformedFrame("a will that is cut off")
    _, epoch, stamp, delay, left, expiry, size = _TELL.unpack_from(body)
    end = _TELL.size + size
    if not delay >= 0 or left != left or expiry != expiry:
        raise MalformedFrame("a will with times that are none")
    return Told(epoch, stamp, delay, left, expiry, _text(body[_TELL.size : end]), body[end:])


def of_numbers(kind: int, numbers: list[int]) -> bytes:
    return struct.pack(f">B{len(numbers)}Q", kind, *numbers)


def numbers_in(body: bytes) -> list[int]:
    if len(body) % _NUMBER.size != 1:
        raise MalformedFrame("stamps of wills that are cut off")
    return list(struct.unpack_from(f">{len(body) // _NUMBER.size}Q", body, 1))


def number_in(body: bytes) -> int:
    numbers = numbers_in(body)
    if len(numbers) != 1:
        raise MalformedFrame("a note about wills that is cut off")
    return numbers[0]


def of_time(kind: int, time: float, node: str = "") -> bytes:
    return bytes([kind]) + _TIME.pack(time) + node.encode()


def time_in(body: bytes) -> tuple[float, str]:
    if len(body) <= _TIME.size:
        raise MalformedFrame("a note about wills that is cut off")
    return _TIME.unpack_from(body, 1)[0], _text(body[1 + _TIME.size :])


def vote(time: float, down: float, node: str) -> bytes:
    return bytes([VOTE]) + _VOTE.pack(time, down) + node.encode()


def vote_in(body: bytes) -> tuple[float, float, str]:
    if len(body) <= _VOTE.size:
        raise MalformedFrame("a vote that is cut off")
    time, down = _VOTE.unpack_from(body, 1)
    return time, down, _text(body[1 + _VOTE.size :])


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise MalformedFrame("a name that is not UTF-8") from None
