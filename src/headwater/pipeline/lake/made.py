"""With which settings a table was made, and a new content for it in one commit.

Theory. A derived table is a function of bronze and of the settings that decide what its rows are. So its commits carry
a note, `settings`, with a number for them; what the number stands for is in a file beside the table, which is there
before the note (as the names of stores are: one too many does no harm). Who is about to add rows compares the number
with that of its own settings.

A table that is to be made with other settings is built in another folder and takes the place of the old one when it
is whole: `take_place` moves its files and commits them as all that the table has, with its notes and its number. Who
reads sees the old table or the new one. Files that were moved and not committed are found by whoever tries again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from typing import Any, Final

from deltalake import CommitProperties, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from headwater.objects import Missing, Place
from headwater.objects.place import PART
from headwater.pipeline.lake.actions import addition
from headwater.pipeline.lake.files import WrittenFile
from headwater.pipeline.lake.log import LakeError, Log, Positions, View
from headwater.pipeline.lake.snapshot import Snapshot

SETTINGS: Final = "settings"
REMADE: Final = "remade"
"""The note with the number of the plan by which the table was made again last."""
UNTIL: Final = "until"
"""The note of a table of windows or minutes: microseconds since 1970 before which everything is in it."""
FOLDER: Final = "_headwater/settings"

Made = Mapping[str, Any]
"""Settings by name, as JSON has them."""


def number_of(made: Made) -> int:
    """Of settings: the same ones have the same, in every process."""
    digest = hashlib.sha256(_text(made).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def remember(log: Log, made: Made) -> int:
    """Their number, of which the table knows then what it stands for."""
    number = number_of(made)
    log.place.put_if_absent(f"{FOLDER}/{number}.json", _text(made).encode())
    return number


def made_with(log: Log, seen: View) -> Made | None:
    """None: nobody has noted it."""
    number = seen.note(SETTINGS)
    if number is None:
        return None
    try:
        found: Made = json.loads(log.place.get(f"{FOLDER}/{number}.json").data)
    except (Missing, ValueError):
        return {}
    return found


def take_place(log: Log, built: Snapshot, notes: Mapping[str, int], job: str, positions: Positions) -> None:
    """All that the table has is what was built elsewhere, and these are its notes: one commit. Raises LakeError."""
    log.remember_stores(positions)
    actions = [addition(each, True) for each in _moved(built, log)]
    all_notes = {**notes, **{f"{job}/{store}": position for store, position in positions.items()}}
    table = log.open()
    if log.epoch is not None:
        log.check_epoch(table)
    try:
        table.create_write_transaction(
            list[AddAction](actions),  # type: ignore[arg-type] # lists are invariant
            "overwrite",
            built.log.open().schema(),
            [] if log.partition is None else [log.partition],
            commit_properties=CommitProperties(
                app_transactions=[Transaction(name, version) for name, version in all_notes.items()]
            ),
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=True),
        )
    except CommitFailedError as error:
        raise LakeError(
            f"{log.where}: somebody else has written to the table while it was replaced ({error}); is the same "
            "pipeline running twice?"
        ) from error


def _moved(built: Snapshot, log: Log) -> list[WrittenFile]:
    """Its files, which are in the table's folder then, as somebody else's commit would name them."""
    files = built.written()
    for each in files:
        if built.log.place.head(each.path) is not None:  # else it was moved by somebody who did not come to commit it
            _move(each.path, built.log.place, log.place)
    return files


def _move(name: str, source: Place, target: Place) -> None:
    if source.folder is not None and target.folder is not None:
        to = target.folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(source.folder / name, to)
        return
    with source.open(name) as file, target.sink(name) as sink:
        while data := file.read(PART):
            sink.write(data)
    source.delete([name])


def differences(before: Made, now: Made) -> dict[str, tuple[Any, Any]]:
    """Settings that are others now, with both values. What only one of them knows is no difference: versions of the
    package come with settings that were not there before."""
    fresh = json.loads(_text(now))
    return {name: (old, fresh[name]) for name, old in before.items() if name in fresh and fresh[name] != old}


def _text(made: Made) -> str:
    return json.dumps(made, sort_keys=True, separators=(",", ":"), default=str)
