"""The files that settings name, read as a broker would that starts with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from headwater.node.access.errors import read_text
from headwater.node.access.passwords import PasswordFile
from headwater.node.access.rules import parse_rules
from headwater.node.access.tokens import Tokens
from headwater.node.admin.secret import read_token, read_token_file
from headwater.node.config import Config
from headwater.node.settings import ConfigError
from headwater.node.transports.contexts import CertificateError, make_context
from headwater.node.transports.settings import TlsSettings


def problems_with_files(config: Config) -> list[str]:
    """What is wrong with each of them."""
    found = []
    for read in _readers(config):
        try:
            read()
        except (ConfigError, CertificateError) as error:
            found.append(str(error))
    return found


def _readers(config: Config) -> Iterator[Callable[[], object]]:
    for listener in config.listeners:
        if listener.tls is not None:
            yield partial(make_context, listener.tls, listener.protocol)
    access = config.access
    if access.password_file:
        yield partial(PasswordFile.load, access.password_file)
    if access.jwt_key_file:
        yield partial(Tokens, access)
    if access.acl_file:
        yield lambda: parse_rules(read_text(access.acl_file, "file of rules"), access.acl_file)
    if config.admin.enabled:
        yield partial(read_token, config.admin)
    if config.rest.token_file:
        yield partial(read_token_file, config.rest.token_file, "rest.token_file")
    if config.rest.certificate:
        tls = TlsSettings(certificate=config.rest.certificate, key=config.rest.key)
        yield partial(make_context, tls, "http")
    if config.bridges:
        from headwater.node.bridge.preparing import prepare_all

        yield partial(prepare_all, config)
