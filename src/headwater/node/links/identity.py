"""Who this node is: an id that it keeps, and the number of its life (`boot`), which grows with each start.

Both are in `cluster.json` in the data folder. The boot is the time of the start in seconds, or one more than the last
one if the clock has gone back: so it grows even where the file was lost, or there is no data folder and the id is a
setting.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple

from headwater.disk.files import sync_folder, write_whole
from headwater.node.settings import ConfigError
from headwater.peering.frames.fields import is_node_id
from headwater.peering.frames.frame import MAX_BOOT

FILE: Final = "cluster.json"


class Identity(NamedTuple):
    node: str
    boot: int
    is_kept: bool
    """Whether this node can come back: nobody need keep anything for one whose id was made up and kept nowhere."""


def begin_life(folder: Path | None, wanted: str) -> Identity:
    """The next life of the node that is kept in this folder, or of a new one; `wanted` is the id in the settings.
    Raises ConfigError."""
    known: dict[str, object] = {}
    if folder is not None and (folder / FILE).exists():
        try:
            known = json.loads((folder / FILE).read_text())
            node, boot = known["node"], known["boot"]
            if not isinstance(node, str) or not is_node_id(node):
                raise ValueError("it has no id of a node")
            if type(boot) is not int or not 0 <= boot <= MAX_BOOT:
                raise ValueError("it has no boot")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{folder / FILE} cannot be used ({error}); delete it to be a new node") from None
        if wanted and wanted != node:
            raise ConfigError(
                f"cluster.node is {wanted!r}, and {folder} is the data folder of node {node!r}: other nodes owe that "
                f"one messages. Use its id, or, to be a new node all the same, delete {folder / FILE}"
            )
        wanted = node
        last = boot
    else:
        last = 0
    node, boot = wanted or f"node-{token_hex(4)}", min(max(last + 1, int(time.time())), MAX_BOOT)
    if folder is not None:
        fresh = folder / f"{FILE}.new"
        write_whole(fresh, json.dumps({"node": node, "boot": boot}).encode() + b"\n")
        fresh.replace(folder / FILE)
        sync_folder(folder)
    return Identity(node, boot, is_kept=bool(folder or wanted))
