"""`headwater store stats|query|tail|readers|history|compact`: what a node has stored (docs/store.md)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headwater.cli.failure import fail
from headwater.cli.options import with_options
from headwater.cli.stored import Asked, AskedWrongly, Local, Remote, Source, opened
from headwater.cli.stored_output import (
    one_line,
    print_history,
    print_messages,
    print_statistics,
    print_table,
    write_messages,
)

if TYPE_CHECKING:
    from headwater.store.reader import StoreReader

URL: Final = "http://localhost:8080"
ROWS: Final = 100

store = typer.Typer(
    name="store",
    help="Look into what a node has stored: by REST while it runs (--url), or in its folder (--data-dir).",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    ARROW = "arrow"


@dataclass
class StoreOptions:
    """Which store, and who asks."""

    url: Annotated[str | None, typer.Option("--url", help=f"The node's REST.  [default: {URL}]")] = None
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="Instead, the folder of a node that does not run.")
    ] = None
    token: Annotated[str | None, typer.Option("--token", envvar="HEADWATER_REST__TOKEN", help="REST token.")] = None
    user: Annotated[str | None, typer.Option("-u", "--username", help="User name, with -P.")] = None
    password: Annotated[str | None, typer.Option("-P", "--pw", help="Password.")] = None
    cafile: Annotated[str | None, typer.Option("--cafile", help="Trust the certificates in this file (https).")] = None
    direct: Annotated[
        bool, typer.Option("--direct", help="Read what is in object storage from there, not through the node (Arrow).")
    ] = False

    @contextmanager
    def source(self, command: str) -> Iterator[Source]:
        """What goes wrong ends the command with an explanation."""
        if self.url is not None and self.data_dir is not None:
            raise typer.BadParameter("give --url or --data-dir, not both.")
        with ExitStack() as stack:
            if self.data_dir is not None:
                source: Source = Local(stack.enter_context(opened(command, self.data_dir)))
            else:
                source = Remote(self.reader(command))
            stack.enter_context(_failing(command))
            yield source

    def reader(self, command: str) -> StoreReader:
        try:
            from headwater.store.direct import Direct
            from headwater.store.reader import StoreReader
        except ImportError as error:
            fail(command, f"{error.name} is needed (pip install 'headwater[store]').")
        try:
            return StoreReader(
                self.url or URL,
                token=self.token,
                user=self.user,
                password=self.password,
                ca=self.cafile,
                retries=1,
                direct=Direct() if self.direct else None,
            )
        except ValueError as error:
            raise typer.BadParameter(f"{error}.") from None


with_store_options = with_options(StoreOptions, "of")

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
Topic = Annotated[str, typer.Option("-t", "--topic", help="Topic filter.")]


@store.command()
@with_store_options
def stats(
    of: StoreOptions,
    topics: Annotated[
        str | None, typer.Option("--topics", metavar="FILTER", help="The topics that match, too.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How much a store holds."""
    with of.source("store stats") as source:
        found = source.statistics()
        listed = None if topics is None else list(source.topics(topics))
    if as_json:
        print(json.dumps(found if listed is None else {**found, "listed": listed}))
        return
    print_statistics(found)
    if listed is not None:
        print_table(("topic", "messages", "first", "last", "first_time", "last_time"), listed)


@store.command()
@with_store_options
def query(
    of: StoreOptions,
    topic: Topic = "#",
    start: Annotated[
        str | None, typer.Option("--from", help="Measured at this time or later: ISO 8601, or a number since 1970.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Measured before this time.")] = None,
    low: Annotated[float | None, typer.Option("--min", help="With a value of at least this.")] = None,
    high: Annotated[float | None, typer.Option("--max", help="With a value of at most this.")] = None,
    after: Annotated[str | None, typer.Option("--after", help="Behind this position.")] = None,
    before: Annotated[str | None, typer.Option("--before", help="Before this position.")] = None,
    limit: Annotated[
        int | None, typer.Option("-n", "--limit", min=1, help=f"Most messages.  [default: all; of a table {ROWS}]")
    ] = None,
    form: Annotated[
        Form | None, typer.Option("-f", "--format", help="[default: a table; into a file, as it ends]")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write, which is there when all of it is.")
    ] = None,
) -> None:
    """Print messages in the order of their positions."""
    form = form or _form_of(output)
    if form == Form.TABLE and output is not None:
        raise typer.BadParameter("a table is for the terminal; choose another --format for a file.")
    limit = ROWS if limit is None and form == Form.TABLE else limit
    asked = Asked(topic, start, end, low, high, after, before, limit)
    with of.source("store query") as source:
        if form == Form.TABLE:
            print_messages(source.messages(asked), limit)
        else:
            write_messages("store query", source, asked, form.value, output)


@store.command()
@with_store_options
def tail(
    of: StoreOptions,
    topic: Topic = "#",
    after: Annotated[
        str | None, typer.Option("--after", help="Begin behind this position, and not with what comes now.")
    ] = None,
    count: Annotated[int | None, typer.Option("-C", "--count", min=1, help="Leave after so many messages.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print messages as a node stores them, until told to stop."""
    if of.data_dir is not None:
        raise typer.BadParameter("nothing comes to a folder that no node uses; give --url, or `store query`.")
    with _failing("store tail"), contextlib.suppress(KeyboardInterrupt):
        for number, message in enumerate(of.reader("store tail").tail(topic, after), 1):
            print(json.dumps(message, ensure_ascii=False) if as_json else one_line(message), flush=True)
            if number == count:
                return


@store.command()
@with_store_options
def readers(
    of: StoreOptions,
    commit: Annotated[
        tuple[str, str] | None, typer.Option("--commit", metavar="NAME POSITION", help="Set how far a reader is.")
    ] = None,
    forget: Annotated[str | None, typer.Option("--forget", metavar="NAME", help="Wait for this one no more.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the named readers, for which retention waits: how far each has come, and what it lost."""
    with of.source("store readers") as source:
        if forget is not None and not source.forget(forget):
            fail("store readers", f"there is no reader {forget!r}; without --forget they are listed.")
        if commit is not None:
            source.commit(*commit)
        found = source.readers()
    if as_json:
        print(json.dumps(found))
    else:
        print_table(("name", "position", "lag", "lost", "created", "committed"), found)


history = typer.Typer(
    name="history",
    help="What has gone from a store to object storage.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
store.add_typer(history)


@history.command("status")
@with_store_options
def history_status(of: StoreOptions, as_json: AsJson = False) -> None:
    """How much is there, what waits, and whether object storage is away. Exit status 1 if it is."""
    if of.data_dir is not None:
        raise typer.BadParameter("a node that runs knows; give --url.")
    with _failing("store history status"):
        found = of.reader("store history status").status()
    history = found["history"]
    if history is None:
        fail("store history status", "nothing goes to object storage; set store.history.url.")
    if as_json:
        print(json.dumps({"store": found["id"], "disk_first": found["disk_first"], "next": found["next"], **history}))
    else:
        print_history(found)
    raise typer.Exit(1 if history["failure"] else 0)


@store.command()
def compact(
    data_dir: Annotated[Path, typer.Option("--data-dir", help="The folder of a node that does not run.")],
) -> None:
    """Give back to the file system what retention has removed. A node that runs does so by itself, bit by bit."""
    from headwater.live import size

    with opened("store compact", data_dir) as found, _failing("store compact"):
        before = found.statistics().size
        found.compact()
        print(f"{data_dir}: {size(before)} before, {size(found.statistics().size)} now")


@contextmanager
def _failing(command: str) -> Iterator[None]:
    from headwater.disk.errors import StorageError
    from headwater.store.reader import Gone, Refused, Unreachable

    try:
        yield
    except Refused as error:
        hint = "; check --token, or -u and -P" if error.status in (401, 403) else ""
        fail(command, f"{error}{hint}.")
    except Gone as error:
        fail(command, f"{error}; what is left begins at {error.first}.")
    except Unreachable as error:
        fail(command, f"cannot ask {error}; is a node running there? Without one, give --data-dir.")
    except (AskedWrongly, StorageError) as error:
        fail(command, f"{error}.")


def _form_of(output: Path | None) -> Form:
    if output is None:
        return Form.TABLE
    endings = {f".{form.value}": form for form in Form if form != Form.TABLE}
    if output.suffix not in endings:
        raise typer.BadParameter(f"say --format: {output.name} does not end with {', '.join(endings)}.")
    return endings[output.suffix]
