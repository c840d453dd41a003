"""The data folder: who uses it, which schema it has, and which of the stores in it counts.

    DIR/headwater.json      {"format": "headwater-data", "schema": 1, "store": "store", "made_by": "0.1.0"}
    DIR/lock                held while a process uses the folder; holds its process id
    DIR/store/              RocksDB; another name after a restore or an import
    DIR/messages/           the delivery store, which has a lock and a schema of its own
    DIR/messages-TIME/      one that a restore has brought, until it takes the place of the other
    DIR/replaced-TIME/      the store that `headwater restore --force` put aside; replaced-messages-TIME/ likewise
    DIR/damaged/            log files as they were found, if their end was damaged; nobody reads them
    DIR/damaged-TIME/       those that `headwater repair` found
    DIR/snapshot-TIME/      while a backup of a running broker is made
    DIR/cluster.json        the node's id in its cluster (links/identity.py)
    DIR/cluster.here        missing, or another file: what is here may be older than what other nodes have seen

`headwater.json` comes into being last, so a folder that has it has a store. `headwater.json.new` alone is a folder
whose making was cut off: nothing in it was ever promised to anybody. To put another store in the place of the old one,
it is made beside it, and `headwater.json` is replaced: a crash leaves the old one or the new one. That holds for the
delivery store, too: `headwater.json` names the one that is to be `messages`, and whoever opens the folder next renames
it. What was cut off before that is tidied up by the same.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import time
from pathlib import Path
from typing import Final, NamedTuple

from headwater.disk.errors import StorageError
from headwater.disk.files import sync_folder, write_whole
from headwater.disk.lock import LOCK

log = logging.getLogger("headwater.persistence")

DESCRIPTION: Final = "headwater.json"
UNFINISHED: Final = "headwater.json.new"
STORE: Final = "store"
FORMAT: Final = "headwater-data"
NOT_A_COPY: Final = "cluster.here"

_NAME: Final = re.compile(r"store(-[0-9TZ-]+)?")
_RESTORED: Final = re.compile(r"messages-[0-9TZ-]+")
MESSAGES: Final = "messages"
_NOT_OURS_AND_FINE: Final = frozenset({"lost+found", LOCK, MESSAGES})


def is_new(path: Path) -> bool:
    """Whether there is nothing of ours yet. Raises StorageError if there is something of others."""
    if (path / DESCRIPTION).exists():
        return False
    if (path / UNFINISHED).exists():
        return True
    strange = sorted(each.name for each in path.iterdir() if each.name not in _NOT_OURS_AND_FINE)
    if strange:
        raise StorageError(
            f"the folder {path} is not a data folder and not empty: it has {', '.join(strange[:3])}"
            + (f" and {len(strange) - 3} more" if len(strange) > 3 else "")
            + f", but no {DESCRIPTION}; name an empty folder, or restore a backup"
        )
    return True


class Description(NamedTuple):
    """What headwater.json says. `replaced` is a store that is to be put aside, not deleted; `messages` a delivery store
    that is to take the place of the one that is there, which is put aside as well."""

    schema: int
    store: str = STORE
    replaced: str | None = None
    messages: str | None = None


def read_description(path: Path) -> Description:
    """Of a folder that is not new."""
    file = path / DESCRIPTION
    try:
        found = json.loads(file.read_bytes())
    except OSError as error:
        raise StorageError(f"cannot read {file}: {error.strerror or error}") from None
    except ValueError as error:
        raise StorageError(f"{file} is damaged ({error}); restore a backup; nothing was deleted") from None
    if isinstance(found, dict) and found.get("format") == FORMAT:
        described = Description(
            found.get("schema", 0), found.get("store", STORE), found.get("replaced"), found.get("messages")
        )
        names = [described.store, *([] if described.replaced is None else [described.replaced])]
        messages = described.messages
        if (
            type(described.schema) is int
            and described.schema > 0
            and all(isinstance(name, str) and _NAME.fullmatch(name) for name in names)
            and (messages is None or (isinstance(messages, str) and _RESTORED.fullmatch(messages)))
        ):
            return described
    raise StorageError(f"{file} does not describe a data folder; name another folder, or restore a backup")


def write_description(path: Path, description: Description) -> None:
    """All of it is there after a crash, or what was there before."""
    from headwater import __version__

    told = {name: value for name, value in description._asdict().items() if value is not None}
    content: dict[str, object] = {"format": FORMAT, **told, "made_by": __version__}
    try:
        write_whole(path / UNFINISHED, f"{json.dumps(content)}\n".encode())
        os.replace(path / UNFINISHED, path / DESCRIPTION)
        sync_folder(path)
    except OSError as error:
        raise StorageError(f"cannot write {path / DESCRIPTION}: {error.strerror or error}") from None


def unused_name(path: Path, kind: str) -> str:
    """For a folder in `path`, such as `store-20301231T235959Z`."""
    name = first = f"{kind}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    count = 1
    while (path / name).exists():
        count += 1
        name = f"{first}-{count}"
    return name


def tidy(path: Path) -> None:
    """Finish what others were cut off in; only for who holds the lock."""
    if not (path / DESCRIPTION).exists():
        return
    described = read_description(path)
    if described.replaced is not None:
        aside = path / unused_name(path, "replaced")
        if (path / described.replaced).exists():
            os.replace(path / described.replaced, aside)
            log.info("the store that was replaced is %s; delete it when you do not need it any more", aside)
        write_description(path, described := described._replace(replaced=None))
    if described.messages is not None:
        _use_messages(path, path / described.messages)
        write_description(path, described._replace(messages=None))
    for each in path.iterdir():
        name = each.name
        if name != described.store and (
            _NAME.fullmatch(name) or _RESTORED.fullmatch(name) or name.startswith("snapshot-")
        ):
            shutil.rmtree(each, ignore_errors=True)


def _use_messages(path: Path, restored: Path) -> None:
    """May be cut off between any two steps, and is done again then."""
    if restored.exists():
        if (path / MESSAGES).exists():
            aside = path / unused_name(path, "replaced-messages")
            os.replace(path / MESSAGES, aside)
            log.info("the messages that were replaced are in %s; delete it when you do not need it any more", aside)
        os.replace(restored, path / MESSAGES)
        sync_folder(path)


def begin_folder(path: Path) -> None:
    """Mark the folder as ours before anything is in it."""
    try:
        write_whole(path / UNFINISHED, b"")
        sync_folder(path)
    except OSError as error:
        raise StorageError(f"cannot write to the data folder {path}: {error.strerror or error}") from None
