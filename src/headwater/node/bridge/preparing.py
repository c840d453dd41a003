"""A bridge's settings made ready: files are read, so that what is wrong with them is said before anything starts."""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headwater.node.bridge.settings import BridgeSettings, BridgeTls, RemoteSettings
from headwater.node.config import Config
from headwater.node.settings import ConfigError
from headwater.node.transports.contexts import VERSIONS, load_certificate, load_into
from headwater.routing.topics import has_wildcard


@dataclass(frozen=True)
class Prepared:
    """Two that are equal make the same bridge."""

    settings: BridgeSettings
    client_id: str
    password: str | None = field(repr=False)
    files: str
    """A digest of what the files of TLS hold."""
    context: ssl.SSLContext | None = field(compare=False)

    @property
    def remote_filters(self) -> list[str]:
        return [each.remote_filter for each in self.settings.topics if each.comes_in]

    @property
    def notification_topic(self) -> str:
        return self.settings.notification_topic or f"$SYS/broker/connection/{self.client_id}/state"


def prepare_all(config: Config) -> list[Prepared]:
    """Those that are to run. Raises ConfigError and CertificateError."""
    prepared = [prepare(each) for each in config.bridges if each.enabled]
    for each in prepared:
        if not config.wildcard_subscription_available:
            _check_without_wildcards(each.settings)
    _check_ids(prepared)
    return prepared


def prepare(settings: BridgeSettings) -> Prepared:
    tls = settings.tls
    return Prepared(
        settings,
        settings.client_id or f"{socket.gethostname()}.{settings.name}",
        read_password(f"bridge '{settings.name}'", settings),
        digest_of(tls),
        None if tls is None else client_context(tls),
    )


def _check_without_wildcards(settings: BridgeSettings) -> None:
    for topic in settings.topics:
        if topic.goes_out and has_wildcard(topic.filter):
            raise ConfigError(
                f"bridge '{settings.name}': {topic.local_filter!r} has a wildcard, which "
                "wildcard_subscription_available = false forbids"
            )


def _check_ids(prepared: Sequence[Prepared]) -> None:
    """Two bridges to one broker would throw each other out."""
    seen: dict[tuple[str, tuple[str, ...]], str] = {}
    for each in prepared:
        key = each.client_id, tuple(sorted(each.settings.addresses))
        if key in seen:
            raise ConfigError(
                f"bridges '{seen[key]}' and '{each.settings.name}' have the same client_id at the same addresses"
            )
        seen[key] = each.settings.name


def read_password(what: str, settings: RemoteSettings) -> str | None:
    """Raises ConfigError."""
    if not settings.password_file:
        return settings.password.get_secret_value() or None
    where = f"{what}: password_file {settings.password_file}"
    try:
        password = Path(settings.password_file).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ConfigError(f"{where}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where} does not hold text") from error
    if not password:
        raise ConfigError(f"{where} is empty")
    return password


def client_context(tls: BridgeTls) -> ssl.SSLContext:
    """What connections to the remote use; raises CertificateError."""
    if tls.ca:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        load_into(context, tls.ca, "certificate")
    else:
        context = ssl.create_default_context()
    context.minimum_version = VERSIONS[tls.minimum_version]
    context.check_hostname = tls.check_host_name
    if tls.certificate:
        load_certificate(context, tls.certificate, tls.key)
    if tls.alpn:
        context.set_alpn_protocols([tls.alpn])
    return context


def digest_of(tls: BridgeTls | None) -> str:
    """Of what its files hold. Raises ConfigError."""
    if tls is None:
        return ""
    digest = hashlib.sha256()
    for path in (tls.ca, tls.certificate, tls.key):
        if path:
            try:
                digest.update(Path(path).read_bytes())
            except OSError as error:
                raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        digest.update(b"\0")
    return digest.hexdigest()
