"""What is gathered while a configuration file of Mosquitto is read, and what follows from all of it.

Theory. Lines from `listener` on, up to the next one, are of that listener; those before the first are of the default
listener, which there is only if the file says where it listens. Settings that the file leaves unsaid have Mosquitto's
defaults: they are written out where ours are others, so that clients find the broker they know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final

from headwater.node.mosquitto.bridges import Bridge

EVERYWHERE: Final = "*"
LARGEST_PACKET: Final = 268_435_460

DEFAULTS: Final[dict[str, Any]] = {
    "max_inflight": 20,
    "receive_maximum": 20,
    "max_queued_messages": 1000,
    "max_packet_size": LARGEST_PACKET,
    "max_topic_levels": 201,
    "topic_alias_maximum": 10,
    "auto_id_prefix": "auto-",
    "terse": True,
    "shared_dispatcher": "round_robin",
}
"""Mosquitto's, where ours are others and clients can tell. Bounds of memory that it does not have stay ours."""

ALSO_GLOBAL: Final = frozenset(
    {"allow_anonymous", "max_connections", "max_qos", "topic_alias_maximum", "auto_id_prefix", "allow_empty_client_id"}
)
"""Settings of a listener that mean the same for the whole broker when it is the only one."""

TLS_VERSIONS: Final = {"tlsv1.3": "1.3", "tlsv1.2": "1.2", "tlsv1.1": "1.2"}
FOR_CERTIFICATES: Final = ("crlfile", "use_identity_as_username", "use_subject_as_username")
NAMES: Final = {"use_identity_as_username": "cn", "use_subject_as_username": "subject"}
IMPORT: Final = "stop it, then `headwater import --mosquitto-db` its mosquitto.db into data_dir (docs/operations.md)."
LEVELS: Final = ["debug", "info", "warning", "error"]


@dataclass
class Listener:
    """One of Mosquitto's; `tls` holds the lines that make TLS of it."""

    settings: dict[str, Any] = field(default_factory=dict)
    tls: dict[str, str] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    """Which of password_file and acl_file are its own."""
    stated: bool = False
    """Whether the file has said where it listens."""

    def row(self) -> dict[str, Any]:
        """Our settings of it."""
        settings = self.settings
        if "unix" not in settings:
            settings = {"host": EVERYWHERE, **settings}
        return {**settings, "tls": tls_settings(self.tls)} if "certfile" in self.tls else settings

    def remarks(self) -> list[str]:
        """What the lines about TLS come to that have no setting."""
        remarks = []
        if self.tls and "certfile" not in self.tls:
            remarks.append(f"{', '.join(self.tls)}\n  not needed: without certfile there is no TLS.")
        elif not asks_for_certificates(self.tls):
            unused = [name for name in FOR_CERTIFICATES if name in self.tls]
            if unused:
                remarks.append(f"{', '.join(unused)}\n  not needed: clients are not asked for certificates.")
        if "capath" in self.tls and "cafile" in self.tls:
            remarks.append("capath\n  NOT SUPPORTED: there is one place for authorities; cafile is used.")
        return remarks


def asks_for_certificates(said: dict[str, str]) -> bool:
    """Where the user name is to come from a certificate Mosquitto refuses who has none, asked for or not."""
    return any(said.get(line) == "true" for line in ("require_certificate", *NAMES))


def tls_settings(said: dict[str, str]) -> dict[str, Any]:
    tls: dict[str, Any] = {"certificate": said["certfile"], "key": said.get("keyfile", "")}
    authorities = said.get("cafile") or said.get("capath")
    if authorities:
        tls["ca"] = authorities
    if asks_for_certificates(said):
        tls["client_certificates"] = "required"
        if "crlfile" in said:
            tls["crl"] = said["crlfile"]
        uses = [ours for line, ours in NAMES.items() if said.get(line) == "true"]
        tls["username"] = uses[0] if uses else "none"
    if "ciphers" in said:
        tls["ciphers"] = said["ciphers"]
    if "tls_version" in said:
        tls["minimum_version"] = TLS_VERSIONS[said["tls_version"]]
    return tls


class Conversion:
    """`settings` are ours, by dotted names; `remarks` say what has become of every other line."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.remarks: list[str] = []
        self.default = Listener()
        self.listeners: list[Listener] = []
        self.bridges: list[Bridge] = []
        self.per_listener = False
        self.line = ""
        """The one that is converted now, as it is told of."""
        self.losses: dict[str, str] = {}
        """Lines that protected something and have no counterpart, and what to do."""
        self.local_users: list[str] = []
        """Lines by which a bridge has a user here."""
        self.levels: list[str] = []
        self.destinations: list[str] = []
        self.persistence: dict[str, str] = {}

    @property
    def here(self) -> Listener:
        """The listener that lines are about now."""
        return self.listeners[-1] if self.listeners else self.default

    @property
    def scope(self) -> dict[str, Any]:
        """Where settings go that `per_listener_settings` makes those of one listener."""
        return self.here.settings if self.per_listener else self.settings

    @property
    def bridge(self) -> Bridge:
        """The bridge that lines are about now; IndexError: there is none yet."""
        return self.bridges[-1]

    def lose(self, why: str) -> str:
        """The line that is converted now protected something, and cannot any more."""
        self.losses[self.line] = why
        return ""

    def finish(self) -> None:
        """Draw the conclusions that need the whole file."""
        if "access.acl_file" in self.settings:
            for line in self.local_users:
                self.losses[line] = (
                    "rules do not hold for a bridge at its own broker, its topics do: see that its `topic` lines allow "
                    "no more than the rules of this user, and take the line out."
                )
        if self.levels:
            self.settings["log_level"] = min(self.levels, key=LEVELS.index)
        if self.destinations:
            self.settings["log_to"] = list(dict.fromkeys(self.destinations))
        if "access.acl_file" in self.settings:
            self.settings.setdefault("access.acl_retained", True)  # Mosquitto's default
        if self.per_listener:
            self._finish_files()
        self._finish_persistence()
        self._finish_listeners(([self.default] if self.default.stated else []) + self.listeners)
        if self.bridges:
            self.settings["bridges"] = [bridge.row() for bridge in self.bridges]
        self.settings = {**DEFAULTS, **self.settings}

    def _finish_listeners(self, listeners: list[Listener]) -> None:
        if not listeners:  # as Mosquitto: port 1883 of loopback, where everybody may connect
            if self.default.settings.keys() <= ALSO_GLOBAL and "certfile" not in self.default.tls:
                self.settings |= self.default.settings
                return
            self.default.settings |= {"host": "localhost", "port": 1883}
            listeners = [self.default]
            self.settings.setdefault("allow_anonymous", True)
        if self.settings.get("allow_anonymous") is None:
            self.settings["allow_anonymous"] = False  # Mosquitto's default as soon as there is a listener
        for listener in listeners:
            self.remarks += listener.remarks()
        rows = [listener.row() for listener in listeners]
        if len(rows) == 1 and rows[0].keys() <= {"host", "port"} | ALSO_GLOBAL:
            self.settings |= rows[0]
        else:
            self.settings["listeners"] = rows

    def _finish_files(self) -> None:
        """A listener that names no file has none, whatever the others have."""
        for name, ours in (("password_file", "use_passwords"), ("acl_file", "use_rules")):
            if f"access.{name}" in self.settings:
                for listener in [self.default, *self.listeners]:
                    if name not in listener.files:
                        listener.settings[ours] = False

    def _finish_persistence(self) -> None:
        said = self.persistence
        if said.get("persistence") == "true":
            name = PurePath(said.get("persistence_file", "headwater")).stem
            self.settings["data_dir"] = str(PurePath(said.get("persistence_location", "."), name))
            self.settings["durability"] = "async"
            self.remarks.append(f"persistence\n  what Mosquitto has kept: {IMPORT}")
        elif said.get("persistence_location"):
            self.remarks.append("persistence_location\n  not needed: persistence is not switched on.")
