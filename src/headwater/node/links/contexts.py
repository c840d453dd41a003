"""TLS between nodes: contexts for both sides of a link, and what of a certificate is a node's id.

Every node accepts links and dials them with one certificate, and both sides ask for the other's. Who a node is says its
id in the Hello, which the certificate has to bear (`identities`): addresses change, so host names are not checked.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from headwater.node.links.settings import ClusterTls
from headwater.node.transports.contexts import (
    VERSIONS,
    CertificateError,
    load_certificate,
    load_into,
    load_lists,
    name_in,
)


class LinkContexts:
    """Made from its settings, which reads the files (CertificateError)."""

    server: ssl.SSLContext
    client: ssl.SSLContext

    def __init__(self, settings: ClusterTls) -> None:
        self.settings = settings
        self.load()()

    def load(self) -> Callable[[], None]:
        """Read the files anew, for links to come; nothing changes until the result is called. Raises
        CertificateError."""
        settings = self.settings
        server = _context(ssl.PROTOCOL_TLS_SERVER, settings)
        # Nobody comes back by an earlier acquaintance: each link has its certificate checked anew.
        server.options |= ssl.OP_NO_TICKET | ssl.OP_CIPHER_SERVER_PREFERENCE
        server.num_tickets = 0
        client = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
        _check_usage(settings.certificate)

        def use() -> None:
            self.server, self.client = server, client

        return use


def _context(protocol: int, settings: ClusterTls) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = VERSIONS[settings.minimum_version]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    load_certificate(context, settings.certificate, settings.key)
    load_into(context, settings.ca, "certificate")
    if settings.crl:
        load_lists(context, settings.ca, settings.crl)
    return context


def _check_usage(path: str) -> None:
    """Whether our certificate may be used on both sides; otherwise half of all links would fail, in the handshake."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID as Usage

    try:
        certificate = x509.load_pem_x509_certificate(Path(path).read_bytes())
        usages = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except (ValueError, x509.ExtensionNotFound):
        return  # OpenSSL has taken it; and without the extension, it is for everything
    if Usage.ANY_EXTENDED_KEY_USAGE in usages:
        return
    for needed, name in ((Usage.SERVER_AUTH, "serverAuth"), (Usage.CLIENT_AUTH, "clientAuth")):
        if needed not in usages:
            raise CertificateError(f"{path} lacks the extended key usage {name}: a node is server and client of links")


def identities(certificate: dict[str, object], which: Literal["cn", "san", "none"]) -> set[str] | None:
    """Node ids that the owner of a certificate (as `getpeercert` has it) may have; None: any."""
    if which == "none":
        return None
    if which == "cn":
        name = name_in(certificate, "cn")
        return {name} if name else set()
    alternatives = certificate.get("subjectAltName", ())
    assert isinstance(alternatives, tuple)
    return {str(value) for kind, value in alternatives if kind == "DNS"}
