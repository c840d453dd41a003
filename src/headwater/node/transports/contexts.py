"""TLS contexts from settings, with modern defaults, and names from certificates."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from headwater.node.transports.settings import TlsSettings

VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
REQUESTS: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
ALTERNATIVE_NAMES: Final = ("DNS", "email", "URI")


class CertificateError(Exception):
    """A certificate, key or list cannot be used; the text says which and why."""


def make_context(settings: TlsSettings, protocol: str) -> ssl.SSLContext:
    """What new connections of a listener use; reads all files. Raises CertificateError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[settings.minimum_version]
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["mqtt"] if protocol == "mqtt" else ["http/1.1"])
    if settings.ciphers:
        try:
            context.set_ciphers(settings.ciphers)
        except ssl.SSLError:
            raise CertificateError(f"OpenSSL knows no ciphers like {settings.ciphers!r}") from None
    _load_certificate(context, settings)
    context.verify_mode = REQUESTS[settings.client_certificates]
    if settings.ca:
        _load(context, settings.ca, "certificate")
    if settings.crl:
        _load(context, settings.crl, "revocation list")
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def _load_certificate(context: ssl.SSLContext, settings: TlsSettings) -> None:
    for path in (settings.certificate, settings.key):
        _readable(path)
    try:
        context.load_cert_chain(settings.certificate, settings.key, password=_no_passphrase)
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        if reason == "KEY_VALUES_MISMATCH":
            raise CertificateError(f"{settings.key} is not the key of {settings.certificate}") from None
        raise CertificateError(f"cannot use {settings.certificate} with {settings.key}: {reason}") from None


def _no_passphrase() -> str:
    raise CertificateError("the private key has a passphrase; remove it (openssl pkey) and protect the file instead")


def _load(context: ssl.SSLContext, path: str, what: str) -> None:
    _readable(path)
    before = context.cert_store_stats()
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise CertificateError(f"{path} holds no {what}: {error.reason or error}") from None
    after = context.cert_store_stats()
    key = "crl" if what == "revocation list" else "x509"
    if after[key] == before[key]:
        raise CertificateError(f"{path} holds no {what}")


def _readable(path: str) -> None:
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        raise CertificateError(f"cannot read {path}: {error.strerror}") from None


def name_in(certificate: dict[str, object], which: str) -> str | None:
    """The common name or the first alternative name of a certificate as `getpeercert` has it; None: it has none."""
    if which == "cn":
        subject = certificate.get("subject", ())
        assert isinstance(subject, tuple)
        names = [value for part in subject for key, value in part if key == "commonName"]
        return names[-1] if names else None
    alternatives = certificate.get("subjectAltName", ())
    assert isinstance(alternatives, tuple)
    for kind in ALTERNATIVE_NAMES:
        for key, value in alternatives:
            if key == kind:
                return str(value)
    return None
