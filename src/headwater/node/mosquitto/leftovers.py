"""Mosquitto's settings that have no counterpart here, each with a sentence why, and what to do instead.

There are three kinds. What is not needed changes nothing. What is not supported is a function that is missed. What
protected something ends the conversion: without it, the broker would let in, or tell, more than the old one did.
"""

from __future__ import annotations

from typing import Final

_PSK: Final = (
    "TLS with pre-shared keys is not supported, and without it the connection would be plain: use certificates "
    "(certfile, keyfile, require_certificate; of a bridge bridge_cafile)."
)
_PLUGIN: Final = (
    "plugins of Mosquitto cannot be loaded, and what this one refused would be accepted: use password_file and "
    "acl_file, tokens (docs/access.md) or a hook in Python (docs/hooks.md)."
)
PLUGIN_OPTION: Final = "it is of a plugin, and those cannot be loaded."
UNKNOWN: Final = "it is not known here, so it may have protected something: take the line out if it did not."
_LAZY: Final = "a bridge is up whenever it can be."
LOCAL: Final = "a bridge is part of this broker, and nobody asks who it is."

PLUGIN_OPTIONS: Final = ("auth_opt_", "plugin_opt_")
"""What the names of options begin with that a plugin has chosen."""

NOT_NEEDED: Final[dict[str, str]] = {
    "user": "start the broker as the user it is to run as.",
    "pid_file": "the service manager knows the process; with a shell, `$!`.",
    "daemon": "the service manager sees to that.",
    "set_tcp_nodelay": "it is always on.",
    "autosave_interval": "what is kept is written as it comes.",
    "autosave_on_changes": "what is kept is written as it comes.",
    "retry_interval": "messages go again when their client connects again, as the standard has it.",
    "log_timestamp": "log lines have the time.",
    "log_timestamp_format": "log lines have the time as ISO 8601.",
    "log_facility": "syslog's facility is `daemon`.",
    "connection_messages": "connections are logged at the level `debug`.",
    "retained_persistence": "retained messages are kept with all else.",
    "websockets_headers_size": "requests are bounded by a limit of ours (docs/limits.md).",
    "websockets_log_level": "there is one log level for all.",
    "dhparamfile": "TLS uses elliptic curves.",
    "auth_plugin_deny_special_chars": "it is of plugins.",
    "ciphers_tls1.3": "those of OpenSSL are used.",
    "bridge_attempt_unsubscribe": "a bridge unsubscribes from what is no longer among its topics.",
    "bridge_reload_type": "bridges that a reload has changed are started again.",
    "round_robin": "addresses are tried in turn.",
    "local_clientid": LOCAL,
    "local_password": LOCAL,
}

NOT_SUPPORTED: Final[dict[str, str]] = {
    "max_inflight_bytes": "messages in flight are bounded by number (max_inflight) and by max_queue_memory.",
    "queue_qos0_messages": "QoS 0 is not kept for clients that are away; subscribe and publish with QoS 1.",
    "upgrade_outgoing_qos": "a subscription's QoS never raises a message's; publish with the QoS that is needed.",
    "retain_expiry_interval": "retained messages expire as their publishers say (message expiry interval).",
    "max_topic_alias_broker": "we use as many topic aliases as the client grants.",
    "accept_protocol_versions": "3.1, 3.1.1 and 5.0 are always accepted.",
    "http_dir": "no files are served over HTTP; use a web server.",
    "tls_engine": "keys are read from files.",
    "tls_keyform": "keys are PEM files.",
    "tls_engine_kpass_sha1": "keys are PEM files.",
    "auto_start": "bridges are started unless `enabled` is false.",
    **dict.fromkeys(("idle_timeout", "threshold"), _LAZY),
    "local_cleansession": "`clean_start` is of both sides.",
    "bridge_bind_address": "the system chooses the address that a bridge comes from.",
    "bridge_max_topic_alias": "a bridge uses no topic aliases.",
    **dict.fromkeys(("bridge_tcp_keepalive", "bridge_tcp_user_timeout"), "`keep_alive` finds dead connections."),
}

PROTECTED: Final[dict[str, str]] = {
    **dict.fromkeys(("psk_file", "psk_hint", "bridge_identity", "bridge_psk"), _PSK),
    **dict.fromkeys(("plugin", "auth_plugin", "global_plugin", "plugin_load", "plugin_use"), _PLUGIN),
    "mount_point": "topics are the same for all listeners, so its clients would leave their prefix: give them rules "
    "(acl_file), such as `pattern readwrite prefix/%u/#`.",
    "clientid_prefixes": "client ids would be free for all: take the line out and set access.client_id_pattern, or "
    "write rules for `%c`.",
    "bridge_capath": "the remote would not be verified against these authorities: put them into one file "
    "(bridge_cafile).",
    "bridge_require_ocsp": "revocation is not asked for (OCSP).",
}

DEFAULTS: Final[dict[str, tuple[str, ...]]] = {
    "max_inflight_bytes": ("0",),
    "queue_qos0_messages": ("false", "0"),
    "upgrade_outgoing_qos": ("false", "0"),
    "retain_expiry_interval": ("0",),
    "auth_plugin_deny_special_chars": ("true", "1"),
    "tls_keyform": ("pem",),
    "mount_point": ("",),
    "clientid_prefixes": ("",),
    "accept_protocol_versions": ("3, 4, 5", "3,4,5"),
    "bridge_require_ocsp": ("false", "0"),
    "bridge_attempt_unsubscribe": ("true", "1"),
    "round_robin": ("false", "0"),
    "idle_timeout": ("60",),
    "threshold": ("10",),
    "autosave_interval": ("1800",),
    "autosave_on_changes": ("false", "0"),
    "connection_messages": ("true", "1"),
    "log_timestamp": ("true", "1"),
    "log_facility": ("3",),
    "set_tcp_nodelay": ("false", "0"),
    "retry_interval": ("20",),
}
"""Values that say what Mosquitto does anyway: there is nothing to say about such a line."""
