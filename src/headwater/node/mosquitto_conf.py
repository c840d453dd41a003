"""Mosquitto's configuration file as one of ours.

Theory. A mosquitto.conf is a list of `name value` lines. Each is dealt with by one entry of a table here: it becomes
one or several of our settings, or it is said in a sentence why it is not needed or not supported; no line is passed
over in silence. Lines from `listener` on, up to the next one, are of that listener. What is left unsaid has Mosquitto's
default, which is stated where it differs in meaning from ours (who may connect, and where we listen).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from headwater.node.config import Config
from headwater.node.mosquitto_leftovers import NOT_NEEDED, NOT_SUPPORTED
from headwater.node.settings import ConfigError, table_of
from headwater.node.toml_text import toml_value

EVERYWHERE: Final = "0.0.0.0"
UNLIMITED_MESSAGES: Final = 1 << 31
UNLIMITED_BYTES: Final = 1 << 40
LARGEST_HEADERS: Final = 132 * 1024
"""What a PUBLISH may have beside its payload: a topic and, say, as much of properties."""
UNITS: Final = {"h": 3600, "d": 86_400, "w": 604_800, "m": 2_592_000, "y": 31_536_000}
LEVELS: Final = {
    **dict.fromkeys(("all", "debug", "internal"), "debug"),
    **dict.fromkeys(("information", "notice", "subscribe", "unsubscribe", "websockets"), "info"),
    "warning": "warning",
    "error": "error",
    "none": "error",
}
TLS_VERSIONS: Final = {"tlsv1.3": "1.3", "tlsv1.2": "1.2", "tlsv1.1": "1.2"}

SECRETS: Final = ("password", "remote_password", "local_password", "bridge_psk", "tls_engine_kpass_sha1")

FOR_CERTIFICATES: Final = ("cafile", "crlfile", "use_identity_as_username", "use_subject_as_username")


@dataclass(frozen=True)
class Line:
    file: str
    number: int
    name: str
    value: str

    def __str__(self) -> str:
        secret = self.name in SECRETS
        return f"{self.file}:{self.number}: {self.name} {'…' if secret else self.value}".rstrip()


@dataclass
class Listener:
    """One of Mosquitto's; `tls` holds what makes TLS of it."""

    settings: dict[str, Any] = field(default_factory=dict)
    tls: dict[str, Any] = field(default_factory=dict)
    stated: bool = False
    """Whether the file has said where it listens."""


class Conversion:
    """`settings` are ours, by dotted names; `remarks` say what has become of every other line."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.remarks: list[str] = []
        self.default = Listener()
        self.listeners: list[Listener] = []
        self.per_listener = False
        self._levels: list[str] = []
        self._destinations: list[str] = []
        self._persistence: dict[str, str] = {}

    def read(self, path: Path) -> None:
        for line in _lines(path):
            if line.name == "include_dir":
                folder = path.parent / line.value
                for each in sorted(folder.glob("*.conf")):
                    self.read(each)
            else:
                self._take(line)

    def _take(self, line: Line) -> None:
        convert = CONVERTERS.get(line.name)
        if convert is not None:
            try:
                remark = convert(self, line.value)
            except (ValueError, IndexError, KeyError) as error:
                raise ConfigError(f"{line}: the value is not understood") from error
            if remark:
                self.remarks.append(f"{line}\n  {remark}")
        elif line.name in NOT_NEEDED:
            self.remarks.append(f"{line}\n  not needed: {NOT_NEEDED[line.name]}")
        else:
            reason = NOT_SUPPORTED.get(line.name, "it is not known here")
            self.remarks.append(f"{line}\n  NOT SUPPORTED: {reason}")

    @property
    def here(self) -> Listener:
        """The listener that lines are about now."""
        return self.listeners[-1] if self.listeners else self.default

    def log_type(self, value: str) -> str:
        self._levels.append(LEVELS[value])
        return ""

    def log_dest(self, value: str) -> str:
        kind, _, path = value.partition(" ")
        if kind == "topic":
            return "NOT SUPPORTED: log lines are not published; choose another log_to."
        if kind in ("stderr", "stdout", "none"):
            self._destinations.append("stderr")
            return "standard error is used." if kind != "stderr" else ""
        self._destinations.append({"file": f"file:{path.strip()}", "syslog": "syslog"}[kind])
        return ""

    def persistence(self, name: str, value: str) -> str:
        self._persistence[name] = value
        return ""

    def finish(self) -> None:
        """Draw the conclusions that need the whole file."""
        if self._levels:
            order = ["debug", "info", "warning", "error"]
            self.settings["log_level"] = min(self._levels, key=order.index)
        if self._destinations:
            self.settings["log_to"] = list(dict.fromkeys(self._destinations))
        self._finish_persistence()
        listeners = ([self.default] if self.default.stated else []) + self.listeners
        if not listeners:
            return  # as Mosquitto: port 1883 of loopback, where everybody may connect
        if self.settings.get("allow_anonymous") is None:
            self.settings["allow_anonymous"] = False  # Mosquitto's default as soon as there is a listener
        for listener in listeners:
            listener.settings.setdefault("host", EVERYWHERE)
        if len(listeners) == 1 and not listeners[0].tls and listeners[0].settings.keys() <= {"host", "port", *GLOBAL}:
            for name, value in listeners[0].settings.items():
                self.settings[name] = value
        else:
            self._finish_listeners(listeners)

    def _finish_listeners(self, listeners: list[Listener]) -> None:
        rows = []
        for listener in listeners:
            rows.append({**listener.settings, **({"tls": _finish_tls(listener.tls)} if listener.tls else {})})
            unused = [name for name in FOR_CERTIFICATES if name in listener.tls]
            if unused and listener.tls.get("require_certificate") != "true":
                self.remarks.append(f"{', '.join(unused)}\n  not needed: clients are not asked for certificates.")
        self.settings["listeners"] = rows

    def _finish_persistence(self) -> None:
        if self._persistence.get("persistence") == "true":
            self.settings["data_dir"] = self._persistence.get("persistence_location", "") or "."
        elif self._persistence.get("persistence_location"):
            self.remarks.append("persistence_location\n  not needed: persistence is not switched on.")


GLOBAL: Final = frozenset({"allow_anonymous", "max_connections"})
"""Settings of a listener that mean the same for the whole broker when it is the only one."""


def _lines(path: Path) -> Iterator[Line]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text: {error}") from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            name, _, value = line.strip().partition(" ")
            yield Line(path.name, number, name, value.strip())


# ---- one function for each kind of line --------------------------------------------------------------------------

Converter = Callable[[Conversion, str], str]
"""Takes a value and returns a remark, or an empty text."""


def _true(value: str) -> bool:
    return {"true": True, "false": False, "1": True, "0": False}[value]


def _number(name: str, unlimited: int | None = None, remark: str = "", least: int = 0) -> Converter:
    """A number under our name; Mosquitto writes "no limit" as 0 or -1."""

    def convert(conversion: Conversion, value: str) -> str:
        number = int(value)
        if number <= 0 and unlimited is not None:
            number = unlimited
        conversion.settings[name] = max(number, least)
        return remark

    return convert


def _flag(name: str, yes: Any = True, no: Any = False) -> Converter:
    def convert(conversion: Conversion, value: str) -> str:
        conversion.settings[name] = yes if _true(value) else no
        return ""

    return convert


def _inflight(conversion: Conversion, value: str) -> str:
    """Mosquitto bounds both directions by it, and tells clients of 5.0."""
    number = int(value) or 65535
    conversion.settings["max_inflight"] = conversion.settings["receive_maximum"] = number
    return ""


def _anonymous(conversion: Conversion, value: str) -> str:
    settings = conversion.here.settings if conversion.per_listener else conversion.settings
    settings["allow_anonymous"] = _true(value)
    return ""


def _per_listener(conversion: Conversion, value: str) -> str:
    conversion.per_listener = _true(value)
    return ""


def _listener(conversion: Conversion, value: str) -> str:
    port, _, address = value.partition(" ")
    listener = Listener(stated=True)
    conversion.listeners.append(listener)
    if int(port) == 0 and address.strip().startswith("/"):
        listener.settings |= {"unix": address.strip(), "host": "localhost"}
        return ""
    listener.settings["port"] = int(port)
    if address.strip():
        listener.settings["host"] = address.strip()
    return ""


def _port(conversion: Conversion, value: str) -> str:
    conversion.default.settings["port"] = int(value)
    conversion.default.stated = True
    return ""


def _bind_address(conversion: Conversion, value: str) -> str:
    conversion.default.settings["host"] = value
    conversion.default.settings.setdefault("port", 1883)
    conversion.default.stated = True
    return ""


def _protocol(conversion: Conversion, value: str) -> str:
    if value == "websockets":
        conversion.here.settings |= {"protocol": "websocket", "websocket_path": "/"}
    return "" if value in ("websockets", "mqtt") else "NOT SUPPORTED: there are only mqtt and websockets."


def _socket_domain(conversion: Conversion, value: str) -> str:
    conversion.here.settings.setdefault("host", {"ipv4": EVERYWHERE, "ipv6": "::"}[value])
    return ""


def _connections(conversion: Conversion, value: str) -> str:
    if int(value) > 0:
        conversion.here.settings["max_connections"] = int(value)
    return ""


def _tls(name: str) -> Converter:
    def convert(conversion: Conversion, value: str) -> str:
        conversion.here.tls[name] = value
        return ""

    return convert


def _finish_tls(said: dict[str, Any]) -> dict[str, Any]:
    tls: dict[str, Any] = {"certificate": said.get("certfile", ""), "key": said.get("keyfile", "")}
    if said.get("require_certificate") == "true":
        tls |= {"client_certificates": "required", "ca": said.get("cafile", "")}
        if "crlfile" in said:
            tls["crl"] = said["crlfile"]
        uses = [name for name in ("use_identity_as_username", "use_subject_as_username") if said.get(name) == "true"]
        tls["username"] = "cn" if uses else "none"
    if "ciphers" in said:
        tls["ciphers"] = said["ciphers"]
    if "tls_version" in said:
        tls["minimum_version"] = TLS_VERSIONS[said["tls_version"]]
    return tls


def _expiration(conversion: Conversion, value: str) -> str:
    conversion.settings["max_session_expiry"] = min(int(value[:-1]) * UNITS[value[-1]], 0xFFFFFFFF)
    return "also bounds what 5.0 clients ask for, who are told."


def _message_size(conversion: Conversion, value: str) -> str:
    if int(value) <= 0:
        return ""
    size = conversion.settings.get("max_packet_size", 268_435_460)
    conversion.settings["max_packet_size"] = min(size, int(value) + LARGEST_HEADERS)
    return "bounds whole packets here, headers included; a larger one ends the connection."


def _persistence(name: str) -> Converter:
    return lambda conversion, value: conversion.persistence(name, value)


def _access(name: str) -> Converter:
    def convert(conversion: Conversion, value: str) -> str:
        before = conversion.settings.setdefault(f"access.{name}", value)
        if name == "acl_file":
            conversion.settings["access.acl_subscribe"] = "always"  # Mosquitto looks at deliveries alone
        return "" if before == value else f"NOT SUPPORTED: there is one {name} for all listeners, {before}."

    return convert


def _acl_file(conversion: Conversion, value: str) -> str:
    conversion.settings["access.acl_subscribe"] = "always"  # Mosquitto asks its rules at delivery only
    return _access("acl_file")(conversion, value)


CONVERTERS: Final[dict[str, Converter]] = {
    "port": _port,
    "bind_address": _bind_address,
    "listener": _listener,
    "protocol": _protocol,
    "socket_domain": _socket_domain,
    "max_connections": _connections,
    "global_max_connections": _number("max_connections", 1_000_000),
    "allow_anonymous": _anonymous,
    "per_listener_settings": _per_listener,
    "password_file": _access("password_file"),
    "acl_file": _acl_file,
    "max_inflight_messages": _inflight,
    "max_queued_messages": _number("max_queued_messages", UNLIMITED_MESSAGES),
    "max_queued_bytes": _number("max_queued_bytes", UNLIMITED_BYTES),
    "max_packet_size": _number("max_packet_size", 268_435_460, least=20),
    "message_size_limit": _message_size,
    "max_keepalive": _number("max_keep_alive"),
    "max_qos": _number("max_qos"),
    "max_topic_alias": _number("topic_alias_maximum"),
    "memory_limit": _number("max_queue_memory", UNLIMITED_BYTES, "bounds what waits in queues here, not all memory."),
    "persistent_client_expiration": _expiration,
    "retain_available": _flag("retain_available"),
    "allow_duplicate_messages": _flag("overlapping", "separate", "merge"),
    "sys_interval": _number("sys_interval"),
    "log_type": Conversion.log_type,
    "log_dest": Conversion.log_dest,
    "persistence": _persistence("persistence"),
    "persistence_location": _persistence("persistence_location"),
    **{
        name: _tls(name)
        for name in ("certfile", "keyfile", "cafile", "crlfile", "require_certificate", "use_identity_as_username")
    },
    **{name: _tls(name) for name in ("use_subject_as_username", "ciphers", "tls_version")},
}


# ---- the text ----------------------------------------------------------------------------------------------------


def from_mosquitto(path: Path, model: type[BaseModel] = Config) -> str:
    """A file of our settings; raises ConfigError. Settings that this version does not have are comments."""
    conversion = Conversion()
    conversion.read(path)
    conversion.finish()
    lines = [f"# Made from {path.name}, a configuration file of Mosquitto."]
    tables: list[str] = []
    for name, value in conversion.settings.items():
        comment = "" if _exists(model, name) else "# not supported yet: "
        if name == "listeners":
            tables += _listeners_text(value, comment)
        else:
            lines.append(f"{comment}{name} = {toml_value(value)}")
    if conversion.remarks:
        lines += ["", "# Lines without a setting of their own here:"]
        for remark in conversion.remarks:
            lines += [f"# {line}" for line in remark.splitlines()]
    return "\n".join([*lines, *tables]) + "\n"


def _listeners_text(rows: list[dict[str, Any]], comment: str) -> list[str]:
    lines = []
    for row in rows:
        settings = {name: value for name, value in row.items() if name != "tls"}
        lines += ["", f"{comment}[[listeners]]"]
        lines += [f"{comment}{name} = {toml_value(value)}" for name, value in settings.items()]
        if "tls" in row:
            lines.append(f"{comment}[listeners.tls]")
            lines += [f"{comment}{name} = {toml_value(value)}" for name, value in row["tls"].items()]
    return lines


def _exists(model: type[BaseModel], name: str) -> bool:
    first, _, rest = name.partition(".")
    if first not in model.model_fields:
        return False
    table = table_of(model.model_fields[first].annotation)
    return not rest or (table is not None and _exists(table, rest))
