"""The options of `format("headwater")`, read and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from headwater.pipeline.options import OptionError, Options
from headwater.pipeline.source.pacing import DELAY, seconds
from headwater.routing.topics import LEVELS_ASKED, InvalidTopicFilter, check_filter
from headwater.store.direct import Direct
from headwater.store.reader import StoreReader

FORMAT: Final = "headwater"
OPTIONS: Final = {
    "url": "address of a store, or several with commas between them; one of an edge is enough for all its stores",
    "urlsFile": "a file with addresses, one in each line, that is read again for each batch: stores may come",
    "follow": "true: all stores of the edges of these nodes are read, also those that come later; false: only these",
    "token": "who asks: a token",
    "user": "who asks: a user's name",
    "password": "and password",
    "ca": "a file with the authorities that may have signed the certificate",
    "reader": "name under which commits are told to the stores; retention waits for it",
    "groupId": "the same, by the name that Kafka's users know",
    "startingOffsets": "earliest, latest, a time of arrival (ISO 8601), or JSON {store id: last position before}",
    "startingTimestamp": "instead of startingOffsets: a time of arrival, in milliseconds since 1970 or ISO 8601",
    "endingOffsets": "for batch reads: latest, a time of arrival, or JSON {store id: last position}",
    "endingTimestamp": "instead of endingOffsets: a time of arrival, in milliseconds since 1970 or ISO 8601",
    "failOnDataLoss": "true: messages that retention removed unread are an error; false: they are left out, and told",
    "maxRowsPerTrigger": "most messages of a batch, of all stores together (also maxOffsetsPerTrigger)",
    "maxOffsetsPerTrigger": "the same, by the name that Kafka's source has for it",
    "minOffsetsPerTrigger": "a batch waits until so many messages are there, of all stores together",
    "maxTriggerDelay": "but no longer than this after the batch before, such as 30s, 15m or 1h; 15m if not given",
    "maxBytesPerTrigger": "about as many bytes of a batch at most, by the stores' mean size of a message",
    "rowsPerPartition": "a range is cut into partitions of so many messages",
    "topic": "a topic filter with wildcards, asked of the stores",
    "from": "time of measurement from which on (ISO 8601)",
    "to": "time of measurement before which (ISO 8601)",
    "store": "only the store of this id",
    "pushdown": "true: stores answer conditions of `where`; for DataFrames with one query, as Spark mixes them up",
    "includeHeaders": "true: a column headers has the user properties, as Kafka's source has headers",
    "payloadSchema": "columns of JSON payloads, as Spark's DDL: temp double, unit string",
    "payloadColumn": "a struct of this name has the columns of payloadSchema, instead of standing beside the others",
    "waitForStore": "seconds for which a store that does not answer is waited for: 600 for streams, 15 for batch reads",
    "history": "node: old messages come from the node, too; direct: what is in object storage is read from there",
    "historyOptions": "JSON: how object storage is reached, as deltalake's options; else by the environment",
    "unknownStores": "fail: offsets that name a store which is at none of the addresses are an error; keep: for later",
}
ROWS_PER_PARTITION: Final = 250_000
WAIT_FOR_STORE: Final = 600.0
WAIT_FOR_BATCH: Final = 15.0
"""Seconds: somebody waits for the answer of a batch read."""
HISTORY: Final = ("node", "direct")
UNKNOWN_STORES: Final = ("fail", "keep")
Start = Literal["earliest", "latest"] | datetime | dict[str, int]


@dataclass(frozen=True)
class Settings:
    """Picklable: it travels to executors. What is secret is not in its text."""

    urls: tuple[str, ...]
    urls_file: str | None
    token: str | None = field(repr=False)
    user: str | None
    password: str | None = field(repr=False)
    ca: str | None
    reader: str | None
    start: Start
    end: Start
    fail_on_loss: bool
    most_rows: int | None
    most_bytes: int | None
    rows_per_partition: int
    topic: str | None
    measured_from: datetime | None
    measured_to: datetime | None
    store: str | None
    pushdown: bool
    patience: float
    unknown_stores: str = "fail"
    follow: bool = True
    is_direct: bool = False
    history_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    least_rows: int | None = None
    longest_delay: float = DELAY
    headers: bool = False
    payload_schema: str | None = None
    payload_column: str | None = None

    def addresses(self) -> list[str]:
        """As they are now. OSError: the file cannot be read."""
        if self.urls_file is None:
            return list(self.urls)
        lines = Path(self.urls_file).read_text(encoding="utf-8").splitlines()
        found = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        return list(dict.fromkeys([*self.urls, *found]))

    def client(self, url: str, *, retries: int = 5, timeout: float = 30.0, direct: Direct | None = None) -> StoreReader:
        return StoreReader(
            url,
            direct=direct,
            token=self.token,
            user=self.user,
            password=self.password,
            ca=self.ca,
            retries=retries,
            timeout=timeout,
        )


def read_settings(given: Mapping[str, str], *, wait: float = WAIT_FOR_STORE) -> Settings:
    """`wait` is `waitForStore` unless that is given. Raises OptionError."""
    options = Options(FORMAT, given, OPTIONS)
    least = options.count("minOffsetsPerTrigger")
    settings = Settings(
        urls=tuple(each.strip() for each in (options.text("url") or "").split(",") if each.strip()),
        urls_file=options.text("urlsFile"),
        token=options.text("token"),
        user=options.text("user"),
        password=options.text("password"),
        ca=options.text("ca"),
        reader=_one_of(options, "reader", "groupId"),
        start=_boundary(options, "starting", "earliest"),
        end=_boundary(options, "ending", "latest"),
        fail_on_loss=options.flag("failOnDataLoss", True),
        most_rows=options.count("maxRowsPerTrigger", options.count("maxOffsetsPerTrigger")),
        most_bytes=options.count("maxBytesPerTrigger"),
        rows_per_partition=options.count("rowsPerPartition", ROWS_PER_PARTITION) or ROWS_PER_PARTITION,
        topic=_filter(options),
        measured_from=_time(options, "from"),
        measured_to=_time(options, "to"),
        store=options.text("store"),
        pushdown=options.flag("pushdown", False),
        patience=options.seconds("waitForStore", wait),
        unknown_stores=options.text("unknownStores", "fail") or "fail",
        follow=options.flag("follow", True),
        is_direct=_history(options) == "direct",
        history_options=_history_options(options),
        least_rows=least,
        longest_delay=_delay(options, least),
        headers=options.flag("includeHeaders", False),
        payload_schema=options.text("payloadSchema"),
        payload_column=options.text("payloadColumn"),
    )
    _check(settings, options)
    return settings


def _check(settings: Settings, options: Options) -> None:
    """Of options that belong together. Raises OptionError."""
    least, most = settings.least_rows, settings.most_rows
    if not settings.urls and settings.urls_file is None:
        raise options.wrong("url", "is needed, such as http://localhost:8080 (or urlsFile)")
    if least is not None and most is not None and least > most:
        raise options.wrong("minOffsetsPerTrigger", f"is {least}, and a batch has {most} at most")
    if settings.payload_column and not settings.payload_schema:
        raise options.wrong("payloadColumn", "needs payloadSchema, which says what is in it")
    if settings.unknown_stores not in UNKNOWN_STORES:
        raise options.wrong("unknownStores", f"is one of {', '.join(UNKNOWN_STORES)}, not {settings.unknown_stores!r}")
    if settings.measured_from and settings.measured_to and settings.measured_from >= settings.measured_to:
        raise options.wrong("from", "is not before `to`: nothing could be read")
    for url in settings.urls or ("http://localhost:8080",):  # those of a file are looked at when it is read
        try:
            settings.client(url)
        except ValueError as error:
            raise OptionError(f"format({FORMAT!r}): {error}") from None


def _history(options: Options) -> str:
    found = options.text("history", "node") or "node"
    if found not in HISTORY:
        raise options.wrong("history", f"is one of {', '.join(HISTORY)}, not {found!r}")
    return found


def _history_options(options: Options) -> dict[str, str]:
    text = options.text("historyOptions")
    try:
        found = json.loads(text or "{}")
        if isinstance(found, dict) and all(isinstance(each, str) for each in found.values()):
            return found
    except ValueError:
        pass
    raise options.wrong("historyOptions", 'is JSON such as {"AWS_REGION": "eu-north-1"}')


def _filter(options: Options) -> str | None:
    found = options.text("topic")
    try:
        if found is not None:
            check_filter(found, LEVELS_ASKED)
    except InvalidTopicFilter as error:
        raise options.wrong("topic", f"is {found!r}: {error}") from None
    return found


def _time(options: Options, name: str) -> datetime | None:
    found = options.text(name)
    try:
        moment = None if found is None else datetime.fromisoformat(found)
    except ValueError:
        raise options.wrong(name, f"is a time such as 2026-01-31T12:00:00Z, not {found!r}") from None
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def _one_of(options: Options, name: str, other: str) -> str | None:
    if options.text(name) is not None and options.text(other) is not None:
        raise options.wrong(other, f"says the same as {name}; give one of them")
    return options.text(name, options.text(other))


def _delay(options: Options, least: int | None) -> float:
    text = options.text("maxTriggerDelay")
    found = DELAY if text is None else seconds(text)
    if found is None:
        raise options.wrong("maxTriggerDelay", f"is a time such as 30s, 15m or 1h, not {text!r}")
    if text is not None and least is None:
        raise options.wrong("maxTriggerDelay", "needs minOffsetsPerTrigger, for which a batch waits")
    return found


def _boundary(options: Options, side: str, default: str) -> Start:
    """`starting` or `ending`, as offsets or a timestamp."""
    name = f"{side}Timestamp"
    text = options.text(name)
    if text is None:
        return _offsets(options, f"{side}Offsets", default)
    _one_of(options, f"{side}Offsets", name)
    if text.strip().isdecimal():
        try:
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        except (ValueError, OverflowError, OSError):
            raise options.wrong(name, f"is milliseconds since 1970, not {text!r}") from None
    return _time(options, name) or "earliest"


def _offsets(options: Options, name: str, default: str) -> Start:
    text = (options.text(name) or default).strip()
    if text == "earliest" or text == "latest":
        return text  # type: ignore[return-value] # one of the two
    try:
        if text.startswith("{"):
            found = json.loads(text)
            if all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in found.values()):
                return {str(id): position for id, position in found.items()}
        else:
            moment = datetime.fromisoformat(text)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except ValueError:
        pass
    raise options.wrong(
        name, f'is earliest, latest, a time such as 2026-01-31T12:00:00Z, or {{"store id": position}}, not {text!r}'
    )
