"""How `headwater store` prints and writes messages, as REST has them in JSON."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from headwater.cli.failure import GENERAL, fail, forget_output
from headwater.store.columns import IN_TEXT

if TYPE_CHECKING:
    from headwater.cli.stored import Asked, Source


# ---- for people --------------------------------------------------------------------------------------------------


def one_line(message: Mapping[str, Any]) -> str:
    return f"{message['position']} {message['time']} {message['topic']} {_payload(message)}"


def print_messages(messages: Iterator[dict[str, Any]], limit: int | None) -> None:
    from headwater.cli.fitted import shortened

    rows = [{**message, "payload": shortened(_payload(message))} for message in messages]
    for name in print_table(("position", "time", "topic", "value", "payload"), rows):
        print(f"no room for {name} here: a wider terminal, or --format json, shows it", file=sys.stderr)
    if len(rows) == limit:
        print(f"the first {limit}; more with --limit, or --after {rows[-1]['position']}", file=sys.stderr)


def print_statistics(found: Mapping[str, Any]) -> None:
    from headwater.live import size

    messages, bytes_each = found["messages"], ""
    on_disk = found["next"] - found.get("disk_first", found["first"])
    if on_disk:
        bytes_each = f" ({found['size'] / on_disk:.1f} B a message, {found['payload_size'] / on_disk:.1f} B of payload)"
    print(f"store      {found['id']}")
    print(
        f"positions  {found['first']} to {found['next'] - 1}" if messages else f"positions  none before {found['next']}"
    )
    print(f"messages   {messages:,} of {found['topics']:,} topics")
    print(f"on disk    {size(found['size'])}{bytes_each}")
    print(f"blocks     {found['blocks']:,}, and {found['unsealed']:,} messages in none yet")
    print(f"readers    {found['readers']:,}")
    history = found.get("history")
    if history:
        print(f"history    {size(history['size'])} at {history['url']}")


def print_history(found: Mapping[str, Any]) -> None:
    """`history` of a store's status, and how much of the store is where."""
    from datetime import UTC, datetime

    from headwater.live import size

    history = found["history"]
    has = history["end"] > history["first"]
    positions = f"{history['first']} to {history['end'] - 1}" if has else "none yet"
    waiting = max(0, found["next"] - max(history["end"], found["disk_first"]))
    print(f"history    {history['url']}/{found['id']}")
    print(f"positions  {positions}")
    print(f"messages   {history['rows']:,} in {history['objects']:,} objects, {size(history['size'])}")
    print(f"on disk    positions from {found['disk_first']}; {waiting:,} that are not in history")
    print(f"waiting    {history['waiting']:,} blocks that are old enough")
    if history["failure"]:
        since = datetime.fromtimestamp(history["failed_since"], UTC).isoformat(timespec="seconds")
        print(f"AWAY       since {since}: {history['failure']}")
        print("           blocks stay on the disk until it is back, or the store's hard limits are reached")


def print_table(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the names of the columns for which there was no room."""
    from headwater.cli.fitted import Fitted, column_of, printable, show

    table = Fitted(column_of(name, (row[name] for row in rows)) for name in names)
    for row in rows:
        table.add(*(printable("" if row[name] is None else str(row[name])) for name in names))
    return show(table)


def _payload(message: Mapping[str, Any]) -> str:
    from headwater.cli.fitted import printable

    text = message["payload"]
    return printable(f"base64:{message['payload_base64']}" if text is None else text)


# ---- for programs ------------------------------------------------------------------------------------------------


def write_messages(command: str, source: Source, asked: Asked, form: str, file: Path | None) -> None:
    with _output(command, file) as output:
        if form == "arrow":
            _write_arrow(source, asked, output)
        elif form == "csv":
            _write_csv(source.messages(asked), output)
        else:
            _write_json(source.messages(asked), output, is_array=form == "json")


def _write_json(messages: Iterator[dict[str, Any]], output: BinaryIO, is_array: bool) -> None:
    before = b"[\n" if is_array else b""
    for message in messages:
        output.write(before + json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode())
        before = b",\n" if is_array else b"\n"
    if is_array:
        output.write(b"[]\n" if before == b"[\n" else b"\n]\n")
    elif before:
        output.write(before)


def _write_csv(messages: Iterator[dict[str, Any]], output: BinaryIO) -> None:
    text = io.TextIOWrapper(output, encoding="utf-8", newline="", write_through=True)
    try:
        writer = csv.writer(text)
        writer.writerow(IN_TEXT)
        for message in messages:
            writer.writerow([_cell(message.get(name)) for name in IN_TEXT])
    finally:
        text.detach()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) if isinstance(value, dict) else value


def _write_arrow(source: Source, asked: Asked, output: BinaryIO) -> None:
    import pyarrow

    from headwater.store.arrow_schema import SCHEMA

    with pyarrow.ipc.new_stream(output, SCHEMA) as writer:
        for batch in source.batches(asked):
            writer.write_batch(batch)


@contextmanager
def _output(command: str, file: Path | None) -> Iterator[BinaryIO]:
    """A file is there when all of it is."""
    try:
        if file is None:
            yield sys.stdout.buffer
            sys.stdout.flush()
            return
        unfinished = file.with_name(f"{file.name}.unfinished")
        try:
            with unfinished.open("wb") as output:
                yield output
                output.flush()
                os.fsync(output.fileno())
            os.replace(unfinished, file)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        if file is None:
            forget_output()
            if isinstance(error, BrokenPipeError):  # `headwater store query … | head`: nobody wants more
                raise SystemExit(GENERAL) from None
        fail(command, f"cannot write {file or 'the output'}: {error.strerror or error}.")
