"""Certificates of nodes: what is read, what is refused at the start, and who a node may be."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Literal

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headwater.node.links.contexts import LinkContexts, identities
from headwater.node.links.settings import ClusterTls
from headwater.node.transports.contexts import CertificateError
from tests.node.transports.serving import Authority
from tests.node.transports.test_tls import revocations

from .nodes import tls, written


def test_both_sides_ask_for_a_certificate(authority: Authority) -> None:
    contexts = tls(authority, "a")
    for context in (contexts.server, contexts.client):
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert not context.check_hostname
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert not context.verify_flags & ssl.VERIFY_CRL_CHECK_CHAIN
    assert contexts.server.num_tickets == 0


def test_lists_are_checked_for_the_whole_chain(authority: Authority, tmp_path: Path) -> None:
    contexts = tls(authority, "a", crl=written(tmp_path, "crl.pem", revocations(authority)), minimum_version="1.2")
    for context in (contexts.server, contexts.client):
        assert context.verify_flags & ssl.VERIFY_CRL_CHECK_CHAIN
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_files_are_read_again_and_used_when_told(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    contexts = tls(authority, "a")
    before = contexts.server, contexts.client
    use = contexts.load()
    assert (contexts.server, contexts.client) == before
    use()
    assert contexts.server is not before[0] and contexts.client is not before[1]
    now = contexts.server, contexts.client
    Path(contexts.settings.key).write_text("nothing")
    with pytest.raises(CertificateError, match="holds no private key"):
        contexts.load()
    assert (contexts.server, contexts.client) == now


def test_what_cannot_be_used_is_named(authority: Authority, tmp_path: Path) -> None:
    files = {**authority.client("a"), "ca": authority.file}
    empty = written(tmp_path, "empty.pem", b"")
    for change, said in (
        ({"certificate": "nowhere.pem"}, "cannot read nowhere.pem"),
        ({"key": authority.client("b")["key"]}, "is not the key of"),
        ({"ca": empty}, "empty.pem holds no certificate"),
        ({"crl": authority.file}, "holds no revocation list"),
    ):
        with pytest.raises(CertificateError, match=said):
            LinkContexts(ClusterTls(**(files | change)))


@pytest.mark.parametrize(
    ("usage", "lacks"),
    [
        ("SERVER_AUTH", "clientAuth"),
        ("CLIENT_AUTH", "serverAuth"),
        ("ANY_EXTENDED_KEY_USAGE", ""),
        ("", ""),
    ],
)
def test_a_certificate_that_is_only_for_one_side_is_refused(
    authority: Authority, tmp_path: Path, usage: str, lacks: str
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
    model = x509.load_pem_x509_certificate(authority.ca.cert_pem.bytes())
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1)
    builder = builder.not_valid_before(model.not_valid_before_utc).not_valid_after(model.not_valid_after_utc)
    if usage:
        builder = builder.add_extension(x509.ExtendedKeyUsage([getattr(ExtendedKeyUsageOID, usage)]), False)
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    settings = ClusterTls(
        certificate=written(tmp_path, "a.crt", certificate),
        key=written(tmp_path, "a.key", key.private_bytes(serialization.Encoding.PEM, *form)),
        ca=authority.file,
    )
    if lacks:
        with pytest.raises(CertificateError, match=f"lacks the extended key usage {lacks}"):
            LinkContexts(settings)
    else:
        LinkContexts(settings)


@pytest.mark.parametrize(
    ("which", "certificate", "found"),
    [
        ("cn", {"subject": ((("commonName", "a"),),)}, {"a"}),
        ("cn", {"subject": ((("organizationName", "a"),),), "subjectAltName": (("DNS", "a"),)}, set()),
        ("san", {"subject": ((("commonName", "a"),),)}, set()),
        ("san", {"subjectAltName": (("DNS", "a"), ("email", "c@d"), ("DNS", "b"), ("IP Address", "::1"))}, {"a", "b"}),
        ("none", {}, None),
    ],
)
def test_identities(which: Literal["cn", "san", "none"], certificate: dict[str, Any], found: set[str] | None) -> None:
    assert identities(certificate, which) == found
