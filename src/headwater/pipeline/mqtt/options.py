"""The options of `format("mqtt")`: what they are called, what they mean, and errors that say what to write instead.

Names are compared without case, as everywhere in Spark. Needs the standard library only.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from headwater.pipeline.options import FALSE, TRUE, OptionError
from headwater.suggestion import unknown

MOST_UNACKNOWLEDGED: Final = 65_535
"""By the protocol, of one connection."""
SECRETS: Final = ("password",)


class BadOption(OptionError):
    """Something about the options has to be changed."""


def _option(name: str, doc: str, parse: Callable[[str], Any], default: Any = dataclasses.MISSING) -> Any:
    return field(default=default, metadata={"name": name, "doc": doc, "parse": parse})


def _text(value: str) -> str:
    return value


def _flag(value: str) -> bool:
    if value.lower() not in (*TRUE, *FALSE):
        raise ValueError("true or false")
    return value.lower() in TRUE


def _whole(least: int, most: int | None = None) -> Callable[[str], int]:
    def parse(value: str) -> int:
        wanted = f"a whole number, at least {least}" + (f" and at most {most:,}" if most is not None else "")
        try:
            number = int(value)
        except ValueError:
            raise ValueError(wanted) from None
        if number < least or (most is not None and number > most):
            raise ValueError(wanted)
        return number

    return parse


def _seconds(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 < number < 1e9:
        raise ValueError("seconds, more than 0")
    return number


def _size(value: str) -> int:
    text = value.strip().lower().removesuffix("b")
    factor = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}.get(text[-1:], 1)
    try:
        return _whole(1)(str(int(text.rstrip("kmg")) * factor))
    except ValueError:
        raise ValueError("bytes, such as 268435456 or 256m") from None


def _filters(value: str) -> tuple[str, ...]:
    """Comma separated, or a JSON list: for filters with commas in them."""
    wanted = 'filters such as plant/+/temperature,alarms/# or ["plant/#", "alarms/#"]'
    try:
        listed = json.loads(value) if value.lstrip().startswith("[") else [each.strip() for each in value.split(",")]
    except ValueError:
        raise ValueError(wanted) from None
    if not listed or not all(isinstance(each, str) and is_filter(each) for each in listed):
        raise ValueError(wanted)
    return tuple(dict.fromkeys(listed))


def is_filter(text: str) -> bool:
    levels = text.split("/")
    return (
        0 < len(text.encode("utf-8", "replace")) <= 65_000
        and "\0" not in text
        and not text.startswith("$share/")
        and all(each in ("+", "#") or not set(each) & {"+", "#"} for each in levels)
        and "#" not in levels[:-1]
    )


def on_disk(place: str) -> Path:
    """A folder as Spark writes it, with `file:` or without; ValueError if it is on no disk of this machine."""
    plain = place.removeprefix("file:")
    if not plain or re.match(r"[a-z0-9+.-]+:", plain, re.IGNORECASE):
        raise ValueError("a folder on a disk, such as /var/lib/pipeline/plant")
    return Path(plain if plain == place else "/" + plain.lstrip("/")).expanduser().absolute()


def _folder(value: str) -> str:
    return str(on_disk(value))


def _ledger(value: str) -> str:
    return value if value.lower() == "none" else _folder(value)


def _group(value: str) -> str:
    if not value or set(value) & set("/+#"):
        raise ValueError("a name without / + #")
    return value


def _broker(value: str) -> str:
    parts = urlsplit(value)
    try:
        is_fine = parts.scheme in ("mqtt", "mqtts") and parts.hostname and (parts.port or 1)
    except ValueError:
        is_fine = False
    if not is_fine or parts.path.strip("/") or parts.query:
        raise ValueError("an address such as mqtt://localhost:1883 or mqtts://broker.example:8883")
    return value


@dataclass(frozen=True, kw_only=True)
class BrokerOptions:
    """Where the broker is and who we are."""

    broker: str = _option("broker", "`mqtt://host:port` or `mqtts://host:port`.", _broker)
    username: str | None = _option("username", "For the broker; may be in `broker` as well.", _text, None)
    password: str | None = _option("password", "The same.", _text, None)
    ca: str | None = _option("ca", "File of authorities to trust, instead of the system's.", _text, None)
    cert: str | None = _option("cert", "File of our certificate, for brokers that ask for one.", _text, None)
    key: str | None = _option("key", "File of its key.", _text, None)

    @classmethod
    def of(cls, given: Mapping[str, str], others: Iterable[str] = ()) -> Self:
        """From what the user gave; `others` are names that may be there as well. Raises BadOption."""
        fields = {each.metadata["name"].lower(): each for each in dataclasses.fields(cls)}
        values = {}
        for name, value in given.items():
            if name.lower() in others:
                continue
            known = fields.get(name.lower())
            if known is None:
                names = [each.metadata["name"] for each in fields.values()]
                raise BadOption(unknown("option", name, names, " of format('mqtt')"))
            values[known.name] = _parsed(known, value)
        for each in fields.values():
            if each.default is dataclasses.MISSING and each.name not in values:
                raise BadOption(f'the option {each.metadata["name"]} is missing: .option("{each.metadata["name"]}", …)')
        return cls(**values)

    @property
    def address(self) -> tuple[str, int | None]:
        parts = urlsplit(self.broker)
        assert parts.hostname is not None
        return parts.hostname, parts.port

    @property
    def credentials(self) -> tuple[str | None, str | None]:
        parts = urlsplit(self.broker)
        user = self.username if self.username is not None else parts.username and unquote(parts.username)
        password = self.password if self.password is not None else parts.password and unquote(parts.password)
        return user, password

    def tls(self) -> ssl.SSLContext | bool:
        if not self.broker.startswith("mqtts:"):
            if self.ca or self.cert:
                raise BadOption("ca and cert are for mqtts:// addresses")
            return False
        context = ssl.create_default_context(cafile=self.ca)
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key)
        return context

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address[0]!r})"


@dataclass(frozen=True, kw_only=True, repr=False)
class ReadOptions(BrokerOptions):
    """Of the stream source."""

    topics: tuple[str, ...] = _option("topics", "Topic filters: comma separated, or a JSON list.", _filters)
    spool: str = _option(
        "spool", "Folder on the driver's machine, of this query alone; keep it like a checkpoint.", _folder
    )
    group: str | None = _option("group", "Name of the shared subscription; by default the client id.", _group, None)
    shared: bool = _option("shared", "`false`: an ordinary subscription, with retained messages.", _flag, True)
    client_id: str | None = _option("clientId", "Stable name; by default made of host and spool folder.", _text, None)
    qos: int = _option("qos", "Highest QoS to be sent with. 0 may be lost.", _whole(0, 2), 1)
    positions: bool = _option("positions", "Columns `store` and `position`, from our brokers.", _flag, False)
    connections: int = _option("connections", "Members of the group that this query is.", _whole(1, 255), 1)
    receive_maximum: int = _option(
        "receiveMaximum",
        "Unacknowledged messages for each connection.",
        _whole(1, MOST_UNACKNOWLEDGED),
        MOST_UNACKNOWLEDGED,
    )
    session_expiry: int = _option(
        "sessionExpiry", "Seconds that the broker keeps our session while we are away.", _whole(1, 2**32 - 1), 604_800
    )
    max_rows: int | None = _option(
        "maxRowsPerTrigger", "Rows of a micro-batch; by default all there are.", _whole(1), None
    )
    partition_rows: int = _option("rowsPerPartition", "Rows of one input partition.", _whole(1), 25_000)
    spool_bytes: int = _option("spoolBytes", "Bytes that are not committed; above, we stop reading.", _size, 256 << 20)
    spool_messages: int = _option("spoolMessages", "The same in messages.", _whole(1), 1_000_000)
    spooler_host: str = _option("spoolerHost", "Address of the driver's machine for executors.", _text, "127.0.0.1")
    linger: float = _option("linger", "Seconds after which a spooler ends that no query asks.", _seconds, 30.0)
    settle: float = _option("settle", "AvailableNow: seconds without a message that mean that is all.", _seconds, 1.0)
    fail_on_loss: bool = _option("failOnSpoolLoss", "Fail if the spool of the checkpoint is gone.", _flag, True)

    def __post_init__(self) -> None:
        if not self.shared and self.connections > 1:
            raise BadOption("several connections without a group would each get every message: shared=true")
        if not self.shared and self.group is not None:
            raise BadOption("a group is for shared subscriptions: leave out either group or shared=false")
        self.tls()

    @property
    def folder(self) -> Path:
        return Path(self.spool)

    @property
    def member_id(self) -> str:
        """The client id, without the number of the connection."""
        if self.client_id is not None:
            return self.client_id
        place = f"{socket.gethostname()}:{self.folder}".encode()
        return f"spark-{hashlib.sha256(place).hexdigest()[:12]}"

    @property
    def filters(self) -> tuple[str, ...]:
        """As they are subscribed to."""
        prefix = f"$share/{self.group or self.member_id}/" if self.shared else ""
        return tuple(prefix + each for each in self.topics)

    def as_json(self) -> str:
        """For the spooler; `from_json` is the way back."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> ReadOptions:
        values = json.loads(text)
        return cls(**{**values, "topics": tuple(values["topics"])})

    def digest(self) -> str:
        """Two spoolers with the same are the same. How much a query reads at a time is no affair of theirs."""
        plain = dataclasses.replace(self, max_rows=None, partition_rows=1, settle=1.0, fail_on_loss=True)
        return hashlib.sha256(plain.as_json().encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, repr=False)
class WriteOptions(BrokerOptions):
    """Of the writer."""

    topic: str | None = _option("topic", "For rows, if there is no column `topic`.", _text, None)
    qos: int = _option("qos", "For rows, if there is no column `qos`.", _whole(0, 2), 1)
    retain: bool = _option("retain", "For rows, if there is no column `retain`.", _flag, False)
    client_id: str | None = _option("clientId", "Prefix of client ids; by default the broker's choice.", _text, None)
    mark: bool = _option("mark", "Send the user property `headwater-batch`.", _flag, True)
    ledger: str | None = _option(
        "ledger", "Folder where acknowledged rows are noted; `none`; by default in a checkpoint on disk.", _ledger, None
    )
    run: str | None = _option("run", "Name of a batch write; the same name again is the same write.", _text, None)
    inflight: int = _option("inflight", "Rows under way at a time.", _whole(1, MOST_UNACKNOWLEDGED), 1000)
    timeout: float = _option("timeout", "Seconds without an acknowledgement after which a task fails.", _seconds, 60.0)

    def __post_init__(self) -> None:
        if self.topic is not None and (not self.topic or set(self.topic) & {"+", "#", "\0"}):
            raise BadOption("option topic: a topic without wildcards")
        if self.run is not None and not (self.run.replace("-", "").replace("_", "").isalnum()):
            raise BadOption("option run: letters, digits, - and _")
        self.tls()


def _parsed(known: dataclasses.Field[Any], value: str) -> Any:
    name = known.metadata["name"]
    try:
        return known.metadata["parse"](value)
    except ValueError as error:
        shown = "" if name in SECRETS else f", not {value!r}"
        raise BadOption(f"option {name}: {error}{shown}") from None
