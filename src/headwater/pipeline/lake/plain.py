"""`layout=parquet`: files without a log, for those who want no more than a folder.

Theory. What a folder contains is what lies in it, so a file comes into it when it is complete and its batch is done.
Until then it is in a folder whose name begins with an underscore, which Spark and others do not look into; what tasks
that died have left stays there. Names say of which batch a file is: a batch that comes again takes the place of its
first try. Who reads while a batch is settled may see a part of it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from headwater.pipeline.lake.files import WrittenFile

WRITING: Final = "_writing"


def settle_batch(folder: Path, app: str, batch: int, files: Sequence[WrittenFile]) -> None:
    """Of a stream."""
    name = f"{app}-{batch:012d}"
    of_batch = re.compile(rf"{re.escape(name)}-[0-9]{{5}}\.parquet")
    _settle(folder, name, files, [each for each in _there(folder) if of_batch.fullmatch(each.name)])


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
