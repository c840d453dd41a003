"""How far a mirror has come, on disk: a small file that is replaced as a whole."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final, NamedTuple

from headwater.disk.files import sync_folder, write_whole

VERSION: Final = 2
ALONE: Final = 1
"""The version of a state of one store, which versions before this one knew alone."""


class OutputError(Exception):
    """It cannot be written there; the text says why, and what to do."""


class State(NamedTuple):
    """All that `filters` match in `store` up to `position` is written. The counts are of all runs together: `live`
    messages came by MQTT, `recovered` ones by REST only, `duplicate` ones came again and were left out, `lost` is how
    many positions retention took away before they were read. `others` are those of further stores of the edge, which
    have none themselves."""

    store: str
    filters: tuple[str, ...]
    position: int
    live: int = 0
    recovered: int = 0
    duplicate: int = 0
    lost: int = 0
    others: tuple[State, ...] = ()


class SavedState(NamedTuple):
    """A state, and the file and its size that go with it."""

    state: State
    file: str
    size: int


def read(path: Path) -> SavedState | None:
    """None if there is none, or one that has only begun."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    if not text:
        return None
    try:
        found = json.loads(text)
        if found["version"] not in (ALONE, VERSION):
            raise OutputError(f"{path} is of another version of headwater; name another output")
        state = _state(found["state"])
        return SavedState(state, str(found["file"]), int(found["size"]))
    except (ValueError, KeyError, TypeError):
        raise OutputError(f"{path} is no state of a mirror; move it away, and what it belongs to") from None


def _state(found: dict[str, Any]) -> State:
    filters, others = tuple(found["filters"]), tuple(map(_state, found.get("others", ())))
    return State(**{**found, "filters": filters, "others": others})


def begin(path: Path) -> None:
    """Say that what is beside it is a mirror's, and that nothing of it counts yet."""
    _replace(path, "")


def write(path: Path, kept: SavedState) -> None:
    """On disk when this returns."""
    version = VERSION if kept.state.others else ALONE
    content = {"version": version, "state": _written(kept.state), "file": kept.file, "size": kept.size}
    _replace(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def _written(state: State) -> dict[str, Any]:
    found = state._asdict()
    others = [_written(each) for each in found.pop("others")]
    return {**found, "others": others} if others else found


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.new")
    write_whole(new, text.encode())
    os.replace(new, path)
    sync_folder(path.parent)
