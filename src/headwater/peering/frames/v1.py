"""Frames of version 1 as bytes. Frozen by tests/peering/frames/test_v1.py: another form is another version.

    frame      kind:1  size:4  body
    Run0       protocol:1 hops:1 count:2 publisher:4 counter:8 boot:4 origin:text  packets
    Run1       position:8, and the same
    StateBegin origin:text boot:4 number:8 method:text size:4 count:2 neighbour:text …
    Change     origin:text boot:4 number:8 data        Neighbours: the same with count:2 neighbour:text …
    Have       everything:1 count:2 then of each  origin:text boot:4 number:8
    text       size:1 bytes

Numbers are big-endian. A frame has one form only: what was read is written again to the same bytes. Each kind has its
largest size, which is looked at before anything of the body is kept.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from headwater.peering.frames.fields import U16, U32, U64, Fields, short, u32_at
from headwater.peering.frames.frame import (
    MAC,
    MAX_CHANGE,
    MAX_CLIENT_ID,
    MAX_GOSSIP,
    MAX_METHOD,
    MAX_NODE_ID,
    MAX_NUMBER,
    MAX_STATE,
    MAX_STREAMS,
    MAX_TEXT,
    PART,
    Ack,
    Change,
    Frame,
    Gossip,
    Have,
    Heartbeat,
    InterestAck,
    Leave,
    MalformedFrame,
    Neighbours,
    Proof,
    Publisher,
    Refuse,
    Resume,
    RetainedItem,
    Run,
    Spool,
    Stamp,
    StateBegin,
    StateEnd,
    StatePart,
    Synced,
)
from headwater.peering.retained import clock as retained_clock
from headwater.peering.retained.reconciling import MOST_BYTES, MOST_ENTRIES, Branches, Entries, Leaves, Want
from headwater.peering.retained.replica import BRANCHES, IN_BRANCH, Entry

VERSION: Final = 1
MAX_ITEM: Final = 1 << 28
"""Bytes of a retained message with its stamp: the largest packet of MQTT fits."""
HEAD: Final = struct.Struct("!BI")
HEAD_SIZE: Final = 5
RUN_SIZE: Final = 21
_RUN0: Final = struct.Struct("!BIBBHIQIB")
_RUN1: Final = struct.Struct("!BIQBBHIQIB")
"""Of whole frames, up to the size of the origin."""
RUN0: Final = 1
RUN1: Final = 2
RUN_HEAD: Final = U64.size + RUN_SIZE + MAX_NODE_ID
"""Bytes of a run beside its packets, at most."""
_STAMPED: Final = 1 + MAX_NODE_ID + 12


# ---- runs: what is made for every message ------------------------------------------------------------------------


def run_head(
    protocol: int,
    hops: int,
    count: int,
    publisher: int,
    counter: int,
    origin: bytes,
    boot: int,
    position: int,
    size: int,
) -> bytes:
    """All of a run's frame before its packets, which have `size` bytes together. `position` 0: QoS 0."""
    size += RUN_SIZE + len(origin)
    if position:
        size += U64.size
        head = _RUN1.pack(RUN1, size, position, protocol, hops, count, publisher, counter, boot, len(origin))
    else:
        head = _RUN0.pack(RUN0, size, protocol, hops, count, publisher, counter, boot, len(origin))
    return head + origin if origin else head


def _run(run: Run) -> bytes:
    packets = run.packets
    head = run_head(
        *(run.protocol, run.hops, run.messages, run.publisher, run.counter),
        *(run.origin.encode(), run.boot, run.position, len(packets)),
    )
    return head + packets


def read_run(kind: int, data: bytes, at: int, end: int) -> Run:
    """The run whose body is `data[at:end]`: packets are copied once. Raises MalformedFrame."""
    position = 0
    if kind == RUN1:
        position = int.from_bytes(data[at : min(at + U64.size, end)], "big")
        at += U64.size
        if not position:
            raise MalformedFrame("a run of QoS 1 without a position")
    if at + RUN_SIZE > end:
        raise MalformedFrame("the frame ends too early")
    protocol, hops, count, size = data[at], data[at + 1], data[at + 2] << 8 | data[at + 3], data[at + 20]
    publisher, boot = u32_at(data, at + 4), u32_at(data, at + 16)
    counter = u32_at(data, at + 8) << 32 | u32_at(data, at + 12)
    at += RUN_SIZE
    origin = ""
    if size:
        fields = Fields(data[at - 1 : min(at + size, end)])
        origin = fields.node()
        at += size
    if (protocol != 4 and protocol != 5) or not count:
        raise MalformedFrame("malformed head of a run")
    if end - at < 2 * count or counter + count > MAX_NUMBER or position + count > MAX_NUMBER:
        raise MalformedFrame("malformed run")
    return Run(protocol, hops, count, publisher, counter, origin, boot, position, data[at:end])


# ---- all others ---------------------------------------------------------------------------------------------------


def _stamped(origin: str, stamp: Stamp) -> bytes:
    return short(origin) + U32.pack(stamp.boot) + U64.pack(stamp.number)


def _read_stamp(fields: Fields) -> Stamp:
    return Stamp(fields.u32(), fields.u64())


def _names(nodes: tuple[str, ...]) -> bytes:
    return U16.pack(len(nodes)) + b"".join(map(short, nodes))


def _read_names(fields: Fields) -> tuple[str, ...]:
    count = fields.u16()
    if count > MAX_STREAMS:
        raise MalformedFrame(f"{count} neighbours")
    return tuple(fields.node() for _ in range(count))


def _have(frame: Have) -> bytes:
    head = bytes((frame.everything,)) + U16.pack(len(frame.streams))
    return head + b"".join(_stamped(origin, stamp) for origin, stamp in frame.streams)


def _read_have(fields: Fields) -> Have:
    everything, count = fields.flag(), fields.u16()
    if count > MAX_STREAMS:
        raise MalformedFrame(f"{count} streams")
    return Have(everything, tuple((fields.node(), _read_stamp(fields)) for _ in range(count)))


def _begin(frame: StateBegin) -> bytes:
    head = _stamped(frame.origin, frame.stamp) + short(frame.method) + U32.pack(frame.size)
    return head + _names(frame.neighbours)


def _read_begin(fields: Fields) -> StateBegin:
    origin, stamp, method, size = fields.node(), _read_stamp(fields), fields.name(MAX_METHOD), fields.u32()
    if size > MAX_STATE:
        raise MalformedFrame(f"a state of {size} bytes")
    return StateBegin(origin, stamp, method, _read_names(fields), size)


def _read_publisher(fields: Fields) -> Publisher:
    number, protocol = fields.u32(), fields.u8()
    if protocol not in (4, 5):
        raise MalformedFrame("a publisher with an unknown version of MQTT")
    return Publisher(number, protocol, fields.text(len(fields.data) - fields.at))


def _entries(frame: Entries) -> bytes:
    found = [U16.pack(frame.leaf), _text(frame.after), _text(frame.until), U16.pack(len(frame.entries))]
    for topic, entry in frame.entries:
        found += [_text(topic), U64.pack(entry.stamp.time), short(entry.stamp.node), bytes((entry.is_deleted,))]
    return b"".join(found)


def _read_entries(fields: Fields) -> Entries:
    leaf, after, until = fields.u16(), fields.text(fields.u16()), fields.text(fields.u16())
    entries = []
    for _ in range(fields.u16()):
        topic, time, node = fields.text(fields.u16()), fields.u64(), fields.node()
        entries.append((topic, Entry(retained_clock.Stamp(time, node), fields.flag())))
    return Entries(leaf, after, until, tuple(entries))


def _text(text: str) -> bytes:
    data = text.encode()
    return U16.pack(len(data)) + data


def _read_want(fields: Fields) -> Want:
    return Want(tuple(fields.text(fields.u16()) for _ in range(fields.u16())))


def _prints(fingerprints: tuple[int, ...]) -> bytes:
    return b"".join(map(U64.pack, fingerprints))


def _read_prints(fields: Fields, count: int) -> tuple[int, ...]:
    return tuple(fields.u64() for _ in range(count))


_TOPICS: Final = MOST_BYTES + 65535 + MOST_ENTRIES * U16.size
"""Bytes of topics in one frame, at most."""
_NAMES: Final = U16.size + MAX_STREAMS * (1 + MAX_NODE_ID)

# kind: number, largest body, body of a frame, frame of a body
_KINDS: Final[dict[type, tuple[int, int, Callable[[Any], bytes], Callable[[Fields], Frame]]]] = {
    Proof: (3, MAC, lambda f: f.mac, lambda d: Proof(d.take(MAC))),
    Have: (4, 3 + MAX_STREAMS * _STAMPED, _have, _read_have),
    Synced: (5, 0, lambda f: b"", lambda d: Synced()),
    StateBegin: (6, _STAMPED + 1 + MAX_METHOD + 4 + _NAMES, _begin, _read_begin),
    StatePart: (7, PART, lambda f: f.data, lambda d: StatePart(d.rest())),
    StateEnd: (8, 0, lambda f: b"", lambda d: StateEnd()),
    Change: (
        9,
        _STAMPED + MAX_CHANGE,
        lambda f: _stamped(f.origin, f.stamp) + f.data,
        lambda d: Change(d.node(), _read_stamp(d), d.rest()),
    ),
    Neighbours: (
        10,
        _STAMPED + _NAMES,
        lambda f: _stamped(f.origin, f.stamp) + _names(f.neighbours),
        lambda d: Neighbours(d.node(), _read_stamp(d), _read_names(d)),
    ),
    InterestAck: (
        11,
        _STAMPED,
        lambda f: _stamped(f.origin, f.stamp),
        lambda d: InterestAck(d.node(), _read_stamp(d)),
    ),
    Spool: (12, 16, lambda f: U64.pack(f.spool) + U64.pack(f.first), lambda d: Spool(d.u64(), d.u64())),
    Resume: (13, 16, lambda f: U64.pack(f.spool) + U64.pack(f.position), lambda d: Resume(d.u64(), d.u64())),
    Publisher: (
        14,
        5 + MAX_CLIENT_ID,
        lambda f: U32.pack(f.number) + bytes((f.protocol,)) + f.client_id.encode(),
        _read_publisher,
    ),
    Ack: (15, 8, lambda f: U64.pack(f.position), lambda d: Ack(d.u64())),
    Heartbeat: (16, 24, lambda f: b"".join(map(U64.pack, f)), lambda d: Heartbeat(d.u64(), d.u64(), d.u64())),
    Gossip: (17, MAX_GOSSIP, lambda f: f.data, lambda d: Gossip(d.rest())),
    Refuse: (18, MAX_TEXT, lambda f: f.reason.encode(), lambda d: Refuse(d.text(len(d.data)))),
    Leave: (19, 1, lambda f: bytes((f.forget,)), lambda d: Leave(d.flag())),
    Branches: (20, 8 * BRANCHES, lambda f: _prints(f.fingerprints), lambda d: Branches(_read_prints(d, BRANCHES))),
    Leaves: (
        21,
        1 + 8 * IN_BRANCH,
        lambda f: bytes((f.branch,)) + _prints(f.fingerprints),
        lambda d: Leaves(d.u8(), _read_prints(d, IN_BRANCH)),
    ),
    Entries: (22, 8 + 2 * 65535 + _TOPICS + MOST_ENTRIES * (10 + MAX_NODE_ID), _entries, _read_entries),
    Want: (23, 2 + _TOPICS, lambda f: U16.pack(len(f.topics)) + b"".join(map(_text, f.topics)), _read_want),
    RetainedItem: (
        24,
        MAX_ITEM,
        lambda f: U64.pack(f.time) + short(f.node) + f.packet,
        lambda d: RetainedItem(d.u64(), d.node(), d.rest()),
    ),
}
_READERS: Final = {number: (largest, read) for number, largest, _, read in _KINDS.values()}


def largest_body(kind: int, largest_run: int) -> int:
    """Raises MalformedFrame if there is no such kind. `largest_run`: bytes of packets that a run may have."""
    if kind in (RUN0, RUN1):
        return RUN_HEAD + largest_run
    found = _READERS.get(kind)
    if found is None:
        raise MalformedFrame(f"there is no frame of kind {kind} in version {VERSION}")
    return found[0]


def encode(frame: Frame) -> bytes:
    if isinstance(frame, Run):
        return _run(frame)
    number, largest, write, _ = _KINDS[type(frame)]
    body = write(frame)
    assert len(body) <= largest, f"{type(frame).__name__} of {len(body)} bytes"
    return HEAD.pack(number, len(body)) + body


def decode(kind: int, body: bytes) -> Frame:
    """Of any kind but runs. Raises MalformedFrame."""
    fields = Fields(body)
    frame = _READERS[kind][1](fields)
    fields.end()
    return frame
