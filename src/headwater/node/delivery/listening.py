"""Where REST listens, with which token and which certificate."""

from __future__ import annotations

import socket
import ssl

from headwater.node.admin.secret import read_token_file
from headwater.node.delivery.rest_settings import RestSettings
from headwater.node.transports.contexts import make_context
from headwater.node.transports.settings import TlsSettings
from headwater.node.transports.sockets import address_text, listen_tcp


def listen_for_rest(settings: RestSettings) -> list[socket.socket]:
    """Raises OSError, whose `filename` says where it could not."""
    try:
        return listen_tcp(settings.host, settings.port)
    except OSError as error:
        error.filename = f"http://{address_text(settings.host, settings.port)} for REST (rest.host, rest.port)"
        raise


def rest_url(settings: RestSettings, port: int) -> str:
    return f"{'https' if settings.certificate else 'http'}://{address_text(settings.host, port)}"


def read_rest_token(settings: RestSettings) -> str:
    """Empty: there is none. Raises ConfigError."""
    token = settings.token.get_secret_value()
    return read_token_file(settings.token_file, "rest.token_file") if settings.token_file else token


def read_peer_token(settings: RestSettings) -> str:
    """Empty: there is none. Raises ConfigError."""
    token = settings.peer_token.get_secret_value()
    return read_token_file(settings.peer_token_file, "rest.peer_token_file") if settings.peer_token_file else token


def context_of(settings: RestSettings) -> ssl.SSLContext | None:
    """Raises CertificateError."""
    if not settings.certificate:
        return None
    return make_context(TlsSettings(certificate=settings.certificate, key=settings.key), "http")
