"""`headwater backup`, `restore`, `export`, `import` and `repair`: data folders kept, moved and mended
(docs/persistence.md)."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from headwater.cli.admin import Admin as AdminApi
from headwater.cli.admin import AdminError, read_token
from headwater.cli.failure import GENERAL, complain, fail, forget_output

if TYPE_CHECKING:
    from headwater.node.persistence.backup import Snapshot

PATIENCE = 600.0

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The data folder.")]
Admin = Annotated[
    str | None,
    typer.Option(
        "--admin", metavar="URL", help="Of a broker that runs with this folder, its admin API: http://localhost:18830."
    ),
]
TokenFile = Annotated[Path | None, typer.Option("--token-file", help="Its token.  [default: $HEADWATER_ADMIN__TOKEN]")]


def backup(
    folder: Folder,
    to: Annotated[Path, typer.Argument(metavar="TO", help="The backup, a folder that is made.")],
    admin: Admin = None,
    token_file: TokenFile = None,
    based: Annotated[
        Path | None, typer.Option("--based-on", metavar="BACKUP", help="Share unchanged files with this earlier one.")
    ] = None,
) -> None:
    """Make a backup of a data folder: sessions, retained messages and the delivery store. A broker that runs with it
    goes on; it has to be told with --admin."""
    with _failing("backup"):
        from headwater.node.persistence.backup import make_backup

        with _snapshot("backup", folder, admin, token_file) as taken:
            print(f"{to}: {make_backup(taken, to, based)}")


def restore(
    source: Annotated[Path, typer.Argument(metavar="FROM", help="The backup.")],
    folder: Folder,
    force: Annotated[bool, typer.Option("--force", help="Put aside what is in DIR; it is not deleted.")] = False,
) -> None:
    """Restore a backup into an unused folder. Every byte is checked before."""
    with _failing("restore"):
        from headwater.node.persistence.backup import restore
        from headwater.node.persistence.folder import MESSAGES

        restored = restore(source, folder, force=force)
        print(f"{folder}: {restored}")
        if restored.messages is None and (folder / MESSAGES).is_dir():
            print(f"the backup has no delivery store: {folder / MESSAGES} is as it was")


def export_data(
    folder: Folder,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Where to; without it, to the output.")] = None,
    admin: Admin = None,
    token_file: TokenFile = None,
) -> None:
    """Write sessions and retained messages of a data folder as lines of JSON. With --admin, of a broker that runs."""
    left_out: list[str] = []

    def tell(text: str) -> None:
        left_out.append(text)
        complain("export", text)

    with _failing("export"):
        from headwater.node.persistence.export import Export, as_text
        from headwater.node.persistence.rocks import RocksBackend
        from headwater.node.persistence.schema import check_is_current

        with _snapshot("export", folder, admin, token_file, messages=False) as taken, _output(file) as output:
            check_is_current(folder, taken.schema)
            backend = RocksBackend(taken.store, create=False)
            try:
                for line in Export(backend, tell).lines():
                    output.write(as_text(line) + "\n")
            finally:
                backend.close()
    if left_out:
        fail("export", f"{len(left_out)} records were left out")


def import_data(
    folder: Folder,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="An export; without it, the input.")] = None,
    mosquitto_db: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Mosquitto's persistence file, mosquitto.db, instead of an export."),
    ] = None,
) -> None:
    """Merge an export into a data folder that no broker uses, all of it or nothing. What is imported wins."""
    if file is not None and mosquitto_db is not None:
        fail("import", "one thing at a time: an export, or Mosquitto's file")
    with _failing("import"):
        from headwater.node.persistence.importing import import_lines

        if mosquitto_db is not None:
            _import_mosquitto(folder, mosquitto_db)
            return
        try:
            with contextlib.nullcontext(sys.stdin.buffer) if file is None else open(file, "rb") as lines:
                print(f"{folder}: {import_lines(folder, lines)}")
        except OSError as error:
            fail("import", f"cannot read {file}: {error.strerror or error}")


def _import_mosquitto(folder: Path, file: Path) -> None:
    from headwater.node.persistence.export import as_text
    from headwater.node.persistence.importing import import_lines
    from headwater.node.persistence.mosquitto_db import MosquittoDb

    try:
        found = MosquittoDb(file)
    except OSError as error:
        fail("import", f"cannot read {file}: {error.strerror or error}")
    imported = import_lines(folder, (as_text(line).encode() for line in found.lines()))
    for what, count in found.left_out.items():
        complain("import", f"left out, {count:,} times: {what}")
    print(f"{folder}: {imported}")


def repair(
    folder: Folder,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is damaged and would be lost; 1 if so.")] = False,
) -> None:
    """Mend a data folder whose logs are damaged, of sessions and of messages: what is whole is kept, the damaged files
    are put aside. No broker may use it."""
    with _failing("repair"):
        from headwater.node.persistence.folder import DESCRIPTION
        from headwater.node.persistence.repairing import look_at
        from headwater.node.persistence.repairing import repair as repaired

        if not (folder / DESCRIPTION).exists():
            fail("repair", f"{folder} is not a data folder: it has no {DESCRIPTION}")
        done = look_at(folder) if dry_run else repaired(folder)
        for line in (*done.damages, *done.lines):
            print(line)
        if not done.damages:
            print(f"{folder}: no log is damaged")
        if done.kept is not None:
            print(f"the damaged files are kept in {done.kept}")
        if dry_run and done.damages:
            raise typer.Exit(GENERAL)


@contextmanager
def _failing(command: str) -> Iterator[None]:
    from headwater.disk.errors import StorageError

    try:
        yield
    except StorageError as error:
        fail(command, str(error))


@contextmanager
def _output(file: Path | None) -> Iterator[TextIO]:
    """A file is there when all of it is; into what is there and no file (a pipe, a device) it goes as it comes."""
    try:
        if file is None:
            yield sys.stdout
            sys.stdout.flush()
        elif file.exists() and not file.is_file():
            with open(file, "w", encoding="utf-8", newline="\n") as output:
                yield output
        else:
            with _whole(Path(os.path.realpath(file))) as output:
                yield output
    except OSError as error:
        if file is None:
            forget_output()
            if isinstance(error, BrokenPipeError):  # `headwater export … | head`: nobody wants more
                raise typer.Exit(GENERAL) from None
        fail("export", f"cannot write {file or 'the output'}: {error.strerror or error}")


@contextmanager
def _whole(file: Path) -> Iterator[TextIO]:
    unfinished = file.with_name(f"{file.name}.unfinished")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8", newline="\n") as output:
            yield output
            output.flush()
            os.fsync(descriptor)
        os.replace(unfinished, file)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def _snapshot(
    command: str, folder: Path, admin: str | None, token_file: Path | None, *, messages: bool = True
) -> Iterator[Snapshot]:
    """The broker makes it, or we do if there is none."""
    from headwater.disk.errors import StorageError
    from headwater.disk.lock import InUse
    from headwater.node.persistence.backup import Snapshot, snapshot_offline

    if admin is None:
        try:
            with snapshot_offline(folder, messages=messages) as taken:
                yield taken
        except InUse as error:
            raise StorageError(f"{error}; or ask the broker that runs, with --admin and --token-file") from None
        return
    try:
        said = AdminApi(admin, read_token(command, token_file)).ask("/v1/snapshot", "POST", PATIENCE)
    except AdminError as error:
        fail(command, str(error))
    taken = Snapshot(folder, said["name"], said["schema"])
    if not re.fullmatch(r"snapshot-[0-9TZ-]+", taken.name) or not taken.path.is_dir():
        fail(command, f"the broker at {admin} does not use {folder}: its copy is in {said['folder']}")
    try:
        yield taken
    finally:
        shutil.rmtree(taken.path, ignore_errors=True)
