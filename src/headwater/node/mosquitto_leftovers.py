"""Mosquitto's settings that have no counterpart here, each with a sentence why."""

from __future__ import annotations

from typing import Final

_BRIDGE: Final = "a bridge to another broker is not part of this version."
_PSK: Final = "TLS with pre-shared keys; use certificates."
_PLUGIN: Final = "plugins are hooks here, in Python (docs/hooks.md)."

NOT_NEEDED: Final[dict[str, str]] = {
    "user": "start the broker as the user it is to run as.",
    "pid_file": "the service manager knows the process; with a shell, `$!`.",
    "daemon": "the service manager sees to that.",
    "set_tcp_nodelay": "it is always on.",
    "autosave_interval": "what is kept is written as it comes.",
    "autosave_on_changes": "what is kept is written as it comes.",
    "persistence_file": "the files' names are not chosen.",
    "log_timestamp": "log lines have the time.",
    "log_timestamp_format": "log lines have the time as ISO 8601.",
    "log_facility": "syslog's facility is `daemon`.",
    "connection_messages": "connections are logged at the level `debug`.",
    "allow_zero_length_clientid": "such clients are accepted and given an id, as the standard has it.",
    "retained_persistence": "retained messages are kept with all else.",
    "websockets_headers_size": "requests are bounded by a limit of ours (docs/limits.md).",
    "websockets_log_level": "there is one log level for all.",
    "dhparamfile": "TLS uses elliptic curves.",
    "tls_engine": "keys are read from files.",
    "ciphers_tls1.3": "those of OpenSSL are used.",
}

NOT_SUPPORTED: Final[dict[str, str]] = {
    "max_inflight_bytes": "messages in flight are bounded by number (max_inflight) and by max_queue_memory.",
    "queue_qos0_messages": "QoS 0 is not kept for clients that are away.",
    "upgrade_outgoing_qos": "a subscription's QoS never raises a message's.",
    "retain_expiry_interval": "retained messages expire as their publishers say.",
    "check_retain_source": "who published a retained message is not asked again.",
    "max_topic_alias_broker": "we use as many topic aliases as the client grants.",
    "auto_id_prefix": "ids that we give begin with `hw-`.",
    "clientid_prefixes": "use a guard (docs/hooks.md) or an ACL.",
    "use_username_as_clientid": "use a guard (docs/hooks.md).",
    "accept_protocol_versions": "3.1.1 and 5.0 are always accepted.",
    "mount_point": "topics are the same for all listeners.",
    "bind_interface": "give the interface's address.",
    "capath": "give one file with all authorities (cafile).",
    "http_dir": "no files are served over HTTP.",
    "websockets_origin": "set listeners' websocket_origins.",
    "tls_keyform": "keys are PEM files.",
    "tls_engine_kpass_sha1": "keys are PEM files.",
    "auto_start": "there is no such thing to start.",
    **dict.fromkeys(("psk_file", "psk_hint", "use_psk"), _PSK),
    **dict.fromkeys(("plugin", "auth_plugin", "global_plugin", "plugin_load", "plugin_use"), _PLUGIN),
    "auth_plugin_deny_special_chars": _PLUGIN,
    **dict.fromkeys(
        (
            *("connection", "address", "addresses", "topic", "bridge_attempt_unsubscribe", "bridge_bind_address"),
            *("bridge_max_packet_size", "bridge_max_topic_alias", "bridge_outgoing_retain", "bridge_protocol_version"),
            *("bridge_reload_type", "bridge_cafile", "bridge_capath", "bridge_certfile", "bridge_keyfile"),
            *("bridge_insecure", "bridge_tls_version", "bridge_alpn", "bridge_identity", "bridge_psk"),
            *("bridge_require_ocsp", "bridge_tcp_keepalive", "bridge_tcp_user_timeout", "bridge_tls_use_os_certs"),
            *("cleansession", "local_cleansession", "clientid", "remote_clientid", "local_clientid", "username"),
            *("remote_username", "local_username", "password", "remote_password", "local_password"),
            *("keepalive_interval", "idle_timeout", "notifications", "notifications_local_only"),
            *("notification_topic", "restart_timeout", "round_robin", "start_type", "threshold", "try_private"),
        ),
        _BRIDGE,
    ),
}
