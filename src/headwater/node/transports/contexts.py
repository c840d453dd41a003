"""TLS contexts from settings, with modern defaults, and names from certificates."""

from __future__ import annotations

import logging
import re
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from headwater.node.transports.settings import TlsSettings

log = logging.getLogger("headwater.transports")

VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
REQUESTS: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
PEM_LIST: Final = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)
ALTERNATIVE_NAMES: Final = ("DNS", "email", "URI")
SHORT: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""Names of a subject's parts that RFC 2253 writes shorter."""


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
    load_certificate(context, settings.certificate, settings.key)
    context.verify_mode = REQUESTS[settings.client_certificates]
    if settings.ca:
        load_into(context, settings.ca, "certificate")
    if settings.crl:
        load_lists(context, settings.ca, settings.crl)
    return context


def load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Our own certificate and its key, from files. Raises CertificateError."""
    for path in (certificate, key):
        _readable(path)
    try:
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        if reason == "KEY_VALUES_MISMATCH":
            raise CertificateError(f"{key} is not the key of {certificate}") from None
        for path, what in ((certificate, "certificate"), (key, "private key")):
            if f"{what.upper()}-----".encode() not in Path(path).read_bytes():
                raise CertificateError(f"{path} holds no {what} in PEM form") from None
        raise CertificateError(f"cannot use {certificate} with {key}: {reason}") from None
    _warn_of_time(certificate)


def _warn_of_time(path: str) -> None:
    """Of a certificate that clients will not accept now; it is used all the same, as their clocks may be others."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(Path(path).read_bytes())
        first, last = found.not_valid_before_utc, found.not_valid_after_utc
    except (ValueError, AttributeError):
        return  # OpenSSL has taken it; and cryptography before version 42 does not say
    now = datetime.now(UTC)
    if not first <= now <= last:
        log.warning("the certificate in %s is not valid now, but from %s to %s: clients refuse it", path, first, last)


def _no_passphrase() -> str:
    raise CertificateError("the private key has a passphrase; remove it (openssl pkey) and protect the file instead")


def load_into(context: ssl.SSLContext, path: str, what: str) -> None:
    """Authorities ("certificate", also a folder of them) or a "revocation list" from files. Raises CertificateError."""
    if what == "certificate" and Path(path).is_dir():
        context.load_verify_locations(capath=path)  # which is looked into as clients come
        return
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


def load_lists(context: ssl.SSLContext, ca: str, crl: str) -> None:
    """Refuse what these lists of the authorities in `ca` revoke. Raises CertificateError."""
    load_into(context, crl, "revocation list")
    check_lists(ca, crl)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN  # an authority between may have been revoked, too


def check_lists(ca: str, crl: str) -> None:
    """Whether each authority of the file has a list: without one, OpenSSL refuses all that it has signed. Those of a
    folder, and those that clients send along, are not known here. Raises CertificateError."""
    from cryptography import x509

    text = Path(crl).read_bytes()
    lists = [x509.load_pem_x509_crl(each) for each in PEM_LIST.findall(text)]
    now = datetime.now(UTC)
    for each in lists:
        until = getattr(each, "next_update_utc", None)  # cryptography before version 42 does not say
        if until is not None and until < now:
            issuer = each.issuer.rfc4514_string()
            log.warning("the list of %s in %s is too old (since %s): all its clients are refused", issuer, crl, until)
    issuers = {each.issuer for each in lists}
    if Path(ca).is_dir():
        return
    for authority in x509.load_pem_x509_certificates(Path(ca).read_bytes()):
        if authority.subject not in issuers:
            raise CertificateError(
                f"{crl} has no list of {authority.subject.rfc4514_string()}, which is in {ca}: append it (an authority "
                "makes one, also an empty one, by `openssl ca -gencrl`), or take that authority out of `ca`"
            )


def _readable(path: str) -> None:
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        raise CertificateError(f"cannot read {path}: {error.strerror}") from None


def name_in(certificate: dict[str, object], which: str) -> str | None:
    """The common name, the first alternative name or the whole subject of a certificate as `getpeercert` has it; None:
    it has none."""
    if which != "san":
        subject = certificate.get("subject", ())
        assert isinstance(subject, tuple)
        if which == "subject":
            return subject_text(subject) or None
        names = [value for part in subject for key, value in part if key == "commonName"]
        return names[-1] if names else None
    alternatives = certificate.get("subjectAltName", ())
    assert isinstance(alternatives, tuple)
    for kind in ALTERNATIVE_NAMES:
        for key, value in alternatives:
            if key == kind:
                return str(value)
    return None


def subject_text(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """As RFC 2253 has it: the last part first, `CN=pump,O=Works`."""
    parts = ["+".join(f"{SHORT.get(key, key)}={_escaped(value)}" for key, value in part) for part in reversed(subject)]
    return ",".join(parts)


def _escaped(value: str) -> str:
    text = "".join(f"\\{each}" if each in ',+"\\<>;' else each for each in value)
    if text.endswith(" "):
        text = text[:-1] + "\\ "
    return f"\\{text}" if text.startswith(("#", " ")) else text
