"""One function for each kind of line of a configuration file of Mosquitto, and the table of them.

A value that is none raises ValueError, IndexError or KeyError; what is returned is said beside the line, if anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headwater.node.mosquitto.bridges import PROTOCOLS, Bridge, bridge_addresses, bridge_topic, restart_timeout
from headwater.node.mosquitto.conversion import LARGEST_PACKET, TLS_VERSIONS, Conversion, Listener
from headwater.node.mosquitto.leftovers import LOCAL

UNLIMITED_MESSAGES: Final = 1 << 31
UNLIMITED_BYTES: Final = 1 << 40
UNITS: Final = {"h": 3600, "d": 86_400, "w": 604_800, "m": 2_592_000, "y": 31_536_000}
LEVELS: Final = {
    **dict.fromkeys(("all", "debug", "internal"), "debug"),
    **dict.fromkeys(("information", "notice", "subscribe", "unsubscribe", "websockets"), "info"),
    "warning": "warning",
    "error": "error",
    "none": "error",
}

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


def _scoped(name: str, read_value: Callable[[str], Any]) -> Converter:
    """Of the broker, or of one listener with `per_listener_settings`."""

    def convert(conversion: Conversion, value: str) -> str:
        conversion.scope[name] = read_value(value)
        return ""

    return convert


def _of_listener(name: str, read_value: Callable[[str], Any]) -> Converter:
    def convert(conversion: Conversion, value: str) -> str:
        conversion.here.settings[name] = read_value(value)
        return ""

    return convert


def _inflight(conversion: Conversion, value: str) -> str:
    """Mosquitto bounds both directions by it, and tells clients of 5.0."""
    number = int(value) or 65535
    conversion.settings["max_inflight"] = conversion.settings["receive_maximum"] = number
    return ""


def _per_listener(conversion: Conversion, value: str) -> str:
    conversion.per_listener = _true(value)
    return ""


def _listener(conversion: Conversion, value: str) -> str:
    port, *address = value.split(maxsplit=1)
    listener = Listener(stated=True)
    conversion.listeners.append(listener)
    if int(port) == 0 and address and address[0].startswith("/"):
        listener.settings["unix"] = address[0]
        return ""
    listener.settings["port"] = int(port)
    if address:
        listener.settings["host"] = address[0]
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
    conversion.here.settings.setdefault("host", {"ipv4": "0.0.0.0", "ipv6": "::"}[value])
    return "IPv4 is served, too; give an address in `host` to have IPv6 alone." if value == "ipv6" else ""


def _bind_interface(conversion: Conversion, value: str) -> str:
    if "host" in conversion.here.settings:
        return "not needed: the listener has an address."
    return conversion.lose("it would listen on all interfaces: give this one's address behind the listener's port.")


def _origin(conversion: Conversion, value: str) -> str:
    conversion.here.settings.setdefault("websocket_origins", []).append(value)
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


def _tls_version(conversion: Conversion, value: str) -> str:
    TLS_VERSIONS[value]
    conversion.here.tls["tls_version"] = value
    return "1.2 is the oldest version of TLS here." if value == "tlsv1.1" else ""


def _expiration(conversion: Conversion, value: str) -> str:
    conversion.settings["max_session_expiry"] = min(int(value[:-1]) * UNITS[value[-1]], 0xFFFFFFFF)
    return "also bounds what 5.0 clients ask for, who are told."


def _log_type(conversion: Conversion, value: str) -> str:
    conversion.levels.append(LEVELS[value])
    return ""


def _log_dest(conversion: Conversion, value: str) -> str:
    kind, _, path = value.partition(" ")
    if kind in ("topic", "dlt"):
        where = "published" if kind == "topic" else "sent there"
        return f"NOT SUPPORTED: log lines are not {where}; choose another log_to."
    if kind in ("stderr", "stdout", "none"):
        conversion.destinations.append("stderr")
        return "standard error is used." if kind != "stderr" else ""
    conversion.destinations.append({"file": f"file:{path.strip()}", "syslog": "syslog"}[kind])
    return ""


def _persistence(name: str) -> Converter:
    def convert(conversion: Conversion, value: str) -> str:
        conversion.persistence[name] = value
        return ""

    return convert


def _access(name: str) -> Converter:
    def convert(conversion: Conversion, value: str) -> str:
        before = conversion.settings.setdefault(f"access.{name}", value)
        conversion.here.files.add(name)
        if name == "acl_file":
            conversion.settings["access.acl_subscribe"] = "always"  # Mosquitto asks its rules at delivery only
        if before == value:
            return ""
        return conversion.lose(f"there is one {name} for all listeners, and another one is {before}: merge them.")

    return convert


# ---- bridges -----------------------------------------------------------------------------------------------------


def _connection(conversion: Conversion, value: str) -> str:
    conversion.bridges.append(Bridge({"name": value}))
    return ""


def _of_bridge(name: str, read_value: Callable[[str], Any]) -> Converter:
    def convert(conversion: Conversion, value: str) -> str:
        conversion.bridge.settings[name] = read_value(value)
        return ""

    return convert


def _of_bridge_tls(name: str, read_value: Callable[[str], Any]) -> Converter:
    def convert(conversion: Conversion, value: str) -> str:
        conversion.bridge.secure(name, read_value(value))
        return ""

    return convert


def _bridge_topic(conversion: Conversion, value: str) -> str:
    conversion.bridge.topics.append(bridge_topic(value))
    return ""


def _bridge_protocol(conversion: Conversion, value: str) -> str:
    if value == "mqttv31":
        return "NOT SUPPORTED: 3.1.1 is the oldest version that bridges speak, and is used."
    conversion.bridge.settings["protocol"] = PROTOCOLS[value]
    return ""


def _bridge_password(conversion: Conversion, value: str) -> str:
    conversion.bridge.settings["password"] = value
    return "better in a file that only the broker can read: `password_file`."


def _bridge_start(conversion: Conversion, value: str) -> str:
    if value == "manual":
        conversion.bridge.settings["enabled"] = False
    return "" if value in ("automatic", "manual") else "NOT SUPPORTED: the bridge is up whenever it can be."


def _bridge_restart(conversion: Conversion, value: str) -> str:
    first, longest = restart_timeout(value)
    conversion.bridge.settings |= {"reconnect_first": first, "reconnect_longest": longest}
    return ""


def _bridge_notifications(conversion: Conversion, value: str) -> str:
    conversion.bridge.notifications = _true(value)
    return ""


def _bridge_local_only(conversion: Conversion, value: str) -> str:
    conversion.bridge.local_only = _true(value)
    return ""


def _local_user(conversion: Conversion, value: str) -> str:
    conversion.local_users.append(conversion.line)
    return f"not needed: {LOCAL}"


def _os_certificates(conversion: Conversion, value: str) -> str:
    if _true(value):
        conversion.bridge.tls = conversion.bridge.tls or {}
    return ""


def _not(value: str) -> bool:
    return not _true(value)


FOR_BRIDGES: Final[dict[str, Converter]] = {
    "connection": _connection,
    "topic": _bridge_topic,
    **dict.fromkeys(("address", "addresses"), _of_bridge("addresses", bridge_addresses)),
    **dict.fromkeys(("remote_clientid", "clientid"), _of_bridge("client_id", str)),
    **dict.fromkeys(("remote_username", "username"), _of_bridge("username", str)),
    **dict.fromkeys(("remote_password", "password"), _bridge_password),
    "bridge_protocol_version": _bridge_protocol,
    "bridge_max_packet_size": _of_bridge("max_packet_size", int),
    "bridge_outgoing_retain": _of_bridge("outgoing_retain", _true),
    "cleansession": _of_bridge("clean_start", _true),
    "keepalive_interval": _of_bridge("keep_alive", int),
    "notifications": _bridge_notifications,
    "notifications_local_only": _bridge_local_only,
    "notification_topic": _of_bridge("notification_topic", str),
    "restart_timeout": _bridge_restart,
    "start_type": _bridge_start,
    "try_private": _of_bridge("announce", _true),
    "bridge_cafile": _of_bridge_tls("ca", str),
    "bridge_certfile": _of_bridge_tls("certificate", str),
    "bridge_keyfile": _of_bridge_tls("key", str),
    "bridge_insecure": _of_bridge_tls("check_host_name", _not),
    "bridge_alpn": _of_bridge_tls("alpn", str),
    "bridge_tls_use_os_certs": _os_certificates,
    "local_username": _local_user,
    "bridge_tls_version": _of_bridge_tls("minimum_version", TLS_VERSIONS.__getitem__),
}

CONVERTERS: Final[dict[str, Converter]] = {
    "port": _port,
    "bind_address": _bind_address,
    "listener": _listener,
    "protocol": _protocol,
    "socket_domain": _socket_domain,
    "bind_interface": _bind_interface,
    "websockets_origin": _origin,
    "max_connections": _connections,
    "global_max_connections": _number("max_connections", 1_000_000),
    "per_listener_settings": _per_listener,
    "allow_anonymous": _scoped("allow_anonymous", _true),
    "allow_zero_length_clientid": _scoped("allow_empty_client_id", _true),
    "auto_id_prefix": _scoped("auto_id_prefix", str),
    "password_file": _access("password_file"),
    "acl_file": _access("acl_file"),
    "check_retain_source": _flag("access.acl_retained"),
    "max_inflight_messages": _inflight,
    "max_queued_messages": _number("max_queued_messages", UNLIMITED_MESSAGES),
    "max_queued_bytes": _number("max_queued_bytes", UNLIMITED_BYTES),
    "max_packet_size": _number("max_packet_size", LARGEST_PACKET, least=20),
    "message_size_limit": _number("max_payload_size"),
    "max_keepalive": _number("max_keep_alive"),
    **dict.fromkeys(("max_qos", "maximum_qos"), _of_listener("max_qos", int)),
    "max_topic_alias": _of_listener("topic_alias_maximum", int),
    "use_username_as_clientid": _of_listener("username_as_client_id", _true),
    "memory_limit": _number("max_queue_memory", UNLIMITED_BYTES, "bounds what waits in queues here, not all memory."),
    "persistent_client_expiration": _expiration,
    "retain_available": _flag("retain_available"),
    "allow_duplicate_messages": _flag("overlapping", "separate", "merge"),
    "sys_interval": _number("sys_interval"),
    "log_type": _log_type,
    "log_dest": _log_dest,
    **{name: _persistence(name) for name in ("persistence", "persistence_location", "persistence_file")},
    **{name: _tls(name) for name in ("certfile", "keyfile", "cafile", "capath", "crlfile", "require_certificate")},
    **{name: _tls(name) for name in ("use_identity_as_username", "use_subject_as_username", "ciphers")},
    "tls_version": _tls_version,
    **FOR_BRIDGES,
}
