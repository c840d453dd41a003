"""Mosquitto's settings that have no counterpart here, each with a sentence why, and what to do instead."""

from __future__ import annotations

from typing import Final

_PSK: Final = "TLS with pre-shared keys; use certificates."
PLUGIN: Final = "plugins are hooks here, in Python (docs/hooks.md)."
_LAZY: Final = "a bridge is up whenever it can be."
_LOCAL: Final = "a bridge is part of this broker, and nobody asks who it is."

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
    "tls_engine": "keys are read from files.",
    "ciphers_tls1.3": "those of OpenSSL are used.",
    "bridge_attempt_unsubscribe": "a bridge unsubscribes from what is no longer among its topics.",
    "bridge_reload_type": "bridges that a reload has changed are started again.",
    "round_robin": "addresses are tried in turn.",
    "local_clientid": _LOCAL,
    "local_username": _LOCAL,
    "local_password": _LOCAL,
}

NOT_SUPPORTED: Final[dict[str, str]] = {
    "max_inflight_bytes": "messages in flight are bounded by number (max_inflight) and by max_queue_memory.",
    "queue_qos0_messages": "QoS 0 is not kept for clients that are away; subscribe and publish with QoS 1.",
    "upgrade_outgoing_qos": "a subscription's QoS never raises a message's; publish with the QoS that is needed.",
    "retain_expiry_interval": "retained messages expire as their publishers say (message expiry interval).",
    "max_topic_alias_broker": "we use as many topic aliases as the client grants.",
    "clientid_prefixes": "use a guard (docs/hooks.md), or `pattern` rules with `%c` in an ACL.",
    "accept_protocol_versions": "3.1, 3.1.1 and 5.0 are always accepted.",
    "mount_point": "topics are the same for all listeners; an ACL can keep users within a prefix.",
    "bind_interface": "give the interface's address.",
    "http_dir": "no files are served over HTTP; use a web server.",
    "websockets_origin": "set listeners' websocket_origins.",
    "tls_keyform": "keys are PEM files.",
    "tls_engine_kpass_sha1": "keys are PEM files.",
    "auto_start": "bridges are started unless `enabled` is false.",
    **dict.fromkeys(("psk_file", "psk_hint", "use_psk", "bridge_identity", "bridge_psk"), _PSK),
    **dict.fromkeys(("plugin", "auth_plugin", "global_plugin", "plugin_load", "plugin_use"), PLUGIN),
    "auth_plugin_deny_special_chars": PLUGIN,
    **dict.fromkeys(("idle_timeout", "threshold"), _LAZY),
    "local_cleansession": "`clean_start` is of both sides.",
    "bridge_bind_address": "the system chooses the address that a bridge comes from.",
    "bridge_capath": "give one file with all authorities (`ca`).",
    "bridge_require_ocsp": "revocation is not asked for (OCSP).",
    "bridge_max_topic_alias": "a bridge uses no topic aliases.",
    **dict.fromkeys(("bridge_tcp_keepalive", "bridge_tcp_user_timeout"), "`keep_alive` finds dead connections."),
    "bridge_tls_use_os_certs": "give `[bridges.tls]` without `ca`, which uses the system's.",
}
