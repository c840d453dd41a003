"""What is on disk of a store that goes from one node to another, so that never both of them take positions of one id.

    FOLDER/handed-over.json   the store was here: to which node it went, and with which last position. Nobody opens it.
    FOLDER/taking-over.json   the store comes here and is not this node's yet. Only who takes it over opens it.

Theory. The right to take positions goes over in one step, when the first of these files is on disk at the source.
Before that the source has it, whatever the target has got: a target that finds no such file makes its copy anew. After
that the source cannot open its folder, and the target, which had checked its copy before, has only to delete the second
file. A crash between the two leaves a store that nobody opens, until the target is told that the first file is there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final, NamedTuple

from headwater.disk.errors import StorageError
from headwater.disk.files import sync_folder, write_whole

HANDED_OVER: Final = "handed-over.json"
TAKING_OVER: Final = "taking-over.json"
COPYING: Final = "copying"
READY: Final = "ready"


class HandedOver(StorageError):
    """The store is another node's now."""


class Fence(NamedTuple):
    """`hand_over` is the id of the hand-over, `position` the last that was given here."""

    store: str
    hand_over: str
    to: str
    position: int


class TakeOver(NamedTuple):
    """`step` is COPYING, or READY: the copy was checked, and goes to `position`."""

    store: str
    hand_over: str
    source: str
    step: str
    position: int = 0


def read_fence(folder: Path) -> Fence | None:
    """Raises StorageError if there is one that cannot be read: then nobody knows whose the store is."""
    return fence_in(folder / HANDED_OVER)


def fence_in(file: Path) -> Fence | None:
    """The same of a file of any name."""
    found = _read(file)
    try:
        return None if found is None else Fence(**found)
    except TypeError as error:
        raise StorageError(f"{file} is damaged ({error}); nothing was deleted") from None


def write_fence(folder: Path, fence: Fence) -> None:
    """On disk when this returns."""
    _write(folder, HANDED_OVER, fence._asdict())


def read_take_over(folder: Path) -> TakeOver | None:
    found = _read(folder / TAKING_OVER)
    try:
        return None if found is None else TakeOver(**found)
    except TypeError as error:
        raise StorageError(f"{folder / TAKING_OVER} is damaged ({error}); delete {folder} and begin anew") from None


def write_take_over(folder: Path, taking: TakeOver) -> None:
    _write(folder, TAKING_OVER, taking._asdict())


def adopt(folder: Path) -> None:
    """From now on the store is this node's."""
    (folder / TAKING_OVER).unlink(missing_ok=True)
    sync_folder(folder)


def check_own(folder: Path, is_taker: bool = False) -> None:
    """Raises HandedOver, or StorageError while it is not here yet."""
    fence = read_fence(folder)
    if fence is not None:
        raise HandedOver(
            f"the store {fence.store} in {folder} was handed over to {fence.to} at position {fence.position}, and "
            "takes no messages here any more; set store.enabled = false, or move the folder away and begin anew"
        )
    taking = None if is_taker else read_take_over(folder)
    if taking is not None:
        raise StorageError(
            f"the store {taking.store} is being taken over from {taking.source} into {folder}, and is not this node's "
            "yet; finish with headwater edge hand-over, or delete the folder"
        )


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise StorageError(f"{path} is damaged ({error}); nothing was deleted") from None
    if not isinstance(found, dict):
        raise StorageError(f"{path} is damaged; nothing was deleted")
    return found


def _write(folder: Path, name: str, content: dict[str, Any]) -> None:
    try:
        write_whole(folder / f"{name}.new", f"{json.dumps(content)}\n".encode())
        os.replace(folder / f"{name}.new", folder / name)
        sync_folder(folder)
    except OSError as error:
        raise StorageError(f"cannot write {folder / name}: {error.strerror or error}") from None
