"""`layout=parquet`: files without a log, for those who want no more than a folder.

Theory. What a folder contains is what lies in it, so a file comes into it when it is complete and its batch is done.
Until then it is in a folder whose name begins with an underscore, which Spark and others do not look into; what tasks
that died have left stays there. Names say of which query and batch a file is: a batch that comes again takes the place
of its first try, and a query that uses the name of another one is refused. Who reads while a batch is settled may see
a part of it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from headwater.pipeline.lake.files import WrittenFile
from headwater.pipeline.lake.log import LakeError

WRITING: Final = "_writing"


def settle_batch(
    folder: Path, app: str, query: int, batch: int, files: Sequence[WrittenFile], overwrite: bool = False
) -> None:
    """Of a stream; with `overwrite`, instead of all that is there. Raises LakeError if the name is another query's."""
    there, of_app = _there(folder), re.compile(rf"{re.escape(app)}-([0-9a-f]{{16}})-([0-9]{{12}})-[0-9]{{5}}\.parquet")
    named = [(path, found.groups()) for path in there if (found := of_app.fullmatch(path.name))]
    ours = f"{query:016x}", f"{batch:012d}"
    if any(whose != ours[0] for _, (whose, _) in named):
        raise LakeError(
            f"another query has written to {folder} as {app!r}; or it is the same one, and its checkpoint was deleted. "
            "Give this query another `app` if its rows are new, or the checkpoint back that it had."
        )
    old = there if overwrite else [path for path, found in named if found == ours]
    _settle(folder, "-".join((app, *ours)), files, old)


def settle_rows(folder: Path, files: Sequence[WrittenFile], overwrite: bool) -> None:
    """Of a batch write: beside what is there, or instead of it."""
    _settle(folder, f"rows-{uuid.uuid4().hex}", files, _there(folder) if overwrite else [])


def _there(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*.parquet") if WRITING not in each.relative_to(folder).parts]


def _settle(folder: Path, name: str, files: Sequence[WrittenFile], old: Iterable[Path]) -> None:
    for each in old:
        each.unlink()
    for number, file in enumerate(files):
        written = folder / WRITING / file.path
        home = (folder / file.path).parent
        home.mkdir(parents=True, exist_ok=True)
        written.replace(home / f"{name}-{number:05d}.parquet")
