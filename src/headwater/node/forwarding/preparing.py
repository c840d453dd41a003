"""A forward's settings made ready: files are read, so that what is wrong with them is said before anything starts."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from headwater.node.bridge.preparing import client_context, digest_of, read_password
from headwater.node.config import Config
from headwater.node.forwarding.settings import ForwardSettings


@dataclass(frozen=True)
class Prepared:
    """Two that are equal make the same forward."""

    settings: ForwardSettings
    password: str | None = field(repr=False)
    files: str
    """A digest of what the files of TLS hold."""
    context: ssl.SSLContext | None = field(compare=False)


def prepare_all(config: Config) -> list[Prepared]:
    """Those that are to run. Raises ConfigError and CertificateError."""
    return [_prepare(each) for each in config.forward if each.enabled]


def _prepare(settings: ForwardSettings) -> Prepared:
    tls = settings.tls
    password = read_password(f"forward '{settings.name}'", settings)
    return Prepared(settings, password, digest_of(tls), None if tls is None else client_context(tls))
