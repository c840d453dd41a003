"""Who this node is: an id that it keeps, and the number of its life (`boot`), which grows with each start.

    cluster.json    {"node": "a", "boot": 1234, "since": 1200, "here": [inode, ctime of cluster.here in ns]}
    cluster.here    empty, and never touched

A boot is in the name of each message, so no two lives may share one. It is the time of the start in quarters of a
second since 2026, which fit its four bytes until 2060, or one more than the last one in this folder or this process. So
it grows even where the file was lost, or there is no data folder and the id is a setting. There, another process could
have begun in the same quarter: a life takes the next one, and does not begin before it. Whoever begins after that has
a later one still.

A data folder that is a copy may be older than what other nodes have had of this one: positions in its spools then mean
other messages. The time at which the status of a file changed cannot be copied, so `cluster.here` tells a copy from the
original, and `headwater restore` and `repair` delete it. From then on (`since`) spools have new names: what waited when
the copy was made is sent again, and nothing new is taken for something old.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple

from headwater.disk.files import sync_folder, write_whole
from headwater.node.persistence.folder import NOT_A_COPY
from headwater.node.settings import ConfigError
from headwater.peering.frames.fields import is_node_id
from headwater.peering.frames.frame import MAX_BOOT

FILE: Final = "cluster.json"
EPOCH: Final = 1_767_225_600
"""2026-01-01, in seconds of Unix time."""
PER_SECOND: Final = 4
WAITS: Final = 4
"""Pauses until a quarter has come: one, unless a clock is set meanwhile, or a process has many lives at once."""

_last: dict[str, int] = {}
"""The last boot of each node in this process."""


class Identity(NamedTuple):
    node: str
    boot: int
    is_kept: bool
    """Whether this node can come back: nobody need keep anything for one whose id was made up and kept nowhere."""
    since: int
    """The first life in this folder, as far as it is no copy: spools that were named before are to have new names."""


def begin_life(folder: Path | None, wanted: str) -> Identity:
    """The next life of the node that is kept in this folder, or of a new one; `wanted` is the id in the settings.
    Raises ConfigError."""
    if folder is None or not (folder / FILE).exists():
        node, last, since = wanted or f"node-{token_hex(4)}", 0, 0
    else:
        node, last, since = _read(folder)
        if wanted and wanted != node:
            raise ConfigError(
                f"cluster.node is {wanted!r}, and {folder} is the data folder of node {node!r}: other nodes owe that "
                f"one messages. Use its id, or, to be a new node all the same, delete {folder / FILE}"
            )
    boot = _next_boot(node, last) if folder is not None or not wanted else _own_quarter(node)
    since = since or boot
    if folder is not None:
        here = _mark(folder) if since == boot else _seen(folder)
        fresh = folder / f"{FILE}.new"
        content = {"node": node, "boot": boot, "since": since, "here": here}
        write_whole(fresh, json.dumps(content).encode() + b"\n")
        fresh.replace(folder / FILE)
        sync_folder(folder)
    return Identity(node, boot, bool(folder or wanted), since)


def _next_boot(node: str, last: int) -> int:
    last = max(last, _last.get(node, 0))
    _last[node] = min(max(last + 1, _quarter()), MAX_BOOT)
    return _last[node]


def _own_quarter(node: str) -> int:
    """The boot of a life that no file tells from others: the next quarter, waited for."""
    boot = _next_boot(node, _quarter())
    for _ in range(WAITS):
        left = boot / PER_SECOND - (time.time() - EPOCH)
        if left <= 0:
            break
        time.sleep(min(left, 1 / PER_SECOND))
    return boot


def _quarter() -> int:
    return int((time.time() - EPOCH) * PER_SECOND)


def _read(folder: Path) -> tuple[str, int, int]:
    """Node, boot and `since`, 0 if the folder is a copy."""
    try:
        known = json.loads((folder / FILE).read_text())
        node, boot = known["node"], known["boot"]
        if not isinstance(node, str) or not is_node_id(node):
            raise ValueError("it has no id of a node")
        if type(boot) is not int or not 0 <= boot <= MAX_BOOT:
            raise ValueError("it has no boot")
        since = known.get("since")
        if type(since) is not int or not 0 < since <= boot or known.get("here") != _seen(folder):
            since = 0
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{folder / FILE} cannot be used ({error}); delete it to be a new node") from None
    return node, boot, since


def _seen(folder: Path) -> list[int]:
    """What tells the file from any copy of it; empty: there is none."""
    try:
        found = (folder / NOT_A_COPY).stat()
    except FileNotFoundError:
        return []
    return [found.st_ino, found.st_ctime_ns]


def _mark(folder: Path) -> list[int]:
    """From now on it is no copy."""
    (folder / NOT_A_COPY).unlink(missing_ok=True)
    (folder / NOT_A_COPY).touch(mode=0o600)
    return _seen(folder)
