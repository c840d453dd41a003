"""TLS on real sockets: what is accepted, who it is, and what hostile or slow peers can do."""

from __future__ import annotations

import datetime
import logging
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from headwater.node.hooks import Hooks
from headwater.node.plane.channel import Channel
from headwater.node.transports.contexts import CertificateError, make_context, subject_text
from headwater.node.transports.settings import TlsSettings
from headwater.node.transports.tls import Tls
from headwater.wire.packets import Connect
from tests.broker import build
from tests.broker.peer import Peer

from .serving import Authority, Served, over, raw, secured, serving


def tls_listener(authority: Authority, **tls: Any) -> dict[str, Any]:
    return {"tls": {**authority.server(), **tls}}


def accepted(connection: Any, client_id: str = "c", **arguments: Any) -> Peer:
    peer = over(connection)
    peer.send(build.connect(client_id, **arguments))
    first, body = peer.packet()
    assert (first, body[1]) == (build.CONNACK, 0)
    return peer


def connect(served: Served, context: ssl.SSLContext, client_id: str = "c", **arguments: Any) -> Peer:
    return accepted(secured(raw(served.port()), context), client_id, **arguments)


def is_ended(connection: socket.socket) -> bool:
    """Whether the broker ends this connection; what it still says (an alert) does not matter."""
    try:
        while connection.recv(65536):
            pass
    except (ConnectionResetError, ssl.SSLError):
        return True
    except TimeoutError:
        return False
    return True


# ---- what is spoken ----


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_messages_pass(authority: Authority, version: ssl.TLSVersion) -> None:
    context = authority.trusting()
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "mqtt"])
    with serving(tls_listener(authority)) as served:
        connection = secured(raw(served.port()), context)
        assert connection.selected_alpn_protocol() == "mqtt"
        peer = accepted(connection)
        peer.subscribe("t", qos=1)
        payload = bytes(range(256)) * 4000
        for number, part in enumerate((b"", b"x", payload[:16384], payload)):
            peer.send(build.publish("t", part, 1, number + 1))
            peer.expect_unordered(build.publish("t", part, 1, number + 1), build.puback(number + 1))
            peer.send(build.puback(number + 1))


def test_old_versions_are_refused(authority: Authority) -> None:
    context = authority.trusting()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(tls_listener(authority, minimum_version="1.3")) as served, pytest.raises(ssl.SSLError):
        secured(raw(served.port()), context)


def test_the_defaults_are_modern(authority: Authority) -> None:
    with serving(tls_listener(authority)) as served:
        context = served.broker.listeners[0].context
        assert context is not None
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        for option in (ssl.OP_NO_RENEGOTIATION, ssl.OP_NO_COMPRESSION, ssl.OP_CIPHER_SERVER_PREFERENCE):
            assert context.options & option
        assert all(each["aead"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.3")


def test_many_records_in_one_read_are_all_dealt_with(authority: Authority) -> None:
    """What TLS has decrypted is not on the socket any more: no event would come for it."""
    with serving(tls_listener(authority)) as served:
        tls = Memory(authority)
        connection = raw(served.port())
        tls.handshake(connection)
        packets = [build.connect("c"), build.subscribe("t"), *(build.publish("t", b"%d" % n) for n in range(500))]
        connection.sendall(b"".join(tls.encrypted(packet) for packet in packets))
        peer = over(tls.on(connection))
        assert peer.packet()[0] == build.CONNACK
        peer.expect(build.suback(0))
        assert [peer.publication().payload for _ in range(500)] == [b"%d" % n for n in range(500)]


def test_one_byte_at_a_time(authority: Authority) -> None:
    with serving(tls_listener(authority)) as served:
        tls = Memory(authority)
        connection = raw(served.port())
        tls.handshake(connection, step=1)
        for byte in tls.encrypted(build.connect("c")):
            connection.sendall(bytes([byte]))
        assert over(tls.on(connection)).packet()[0] == build.CONNACK


class Memory:
    """The client's side of TLS in memory, so that a test decides how its bytes travel."""

    def __init__(self, authority: Authority) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = authority.trusting().wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")

    def handshake(self, connection: socket.socket, step: int = 65536) -> None:
        while True:
            try:
                self.tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            data = self.outgoing.read()
            for at in range(0, len(data), step):
                connection.sendall(data[at : at + step])
            if done:
                return
            self.incoming.write(connection.recv(65536))

    def encrypted(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self.outgoing.read()

    def on(self, connection: socket.socket) -> Any:
        memory = self

        class Wrapped:
            settimeout = connection.settimeout
            close = connection.close

            def recv(self, size: int) -> bytes:
                while True:
                    try:
                        return memory.tls.read(size)
                    except ssl.SSLWantReadError:
                        memory.incoming.write(connection.recv(size))

        return Wrapped()


# ---- ends ----


def test_our_end_is_said(authority: Authority) -> None:
    """close_notify: the client can tell an end from a cut."""
    with serving(tls_listener(authority)) as served:
        connection = secured(raw(served.port()), authority.trusting(), suppress_ragged_eofs=False)
        peer = accepted(connection)
        peer.send(build.connect("c"))  # a second one breaks the protocol
        peer.expect_closed(0x82)


def test_their_end_is_understood(authority: Authority) -> None:
    """A client that says close_notify behind its last packet, and leaves the socket open, is gone."""
    with serving(tls_listener(authority)) as served:
        tls = Memory(authority)
        connection = raw(served.port())
        tls.handshake(connection)
        connection.sendall(tls.encrypted(build.connect("c")))
        assert over(tls.on(connection)).packet()[0] == build.CONNACK
        last = tls.encrypted(build.PINGREQ)
        with pytest.raises(ssl.SSLError):
            tls.tls.unwrap()
        connection.sendall(last + tls.outgoing.read())
        served.wait_until(lambda: not served.broker.server.channels)


# ---- slow and hostile ----


def test_a_slow_reader_gets_everything_in_order(authority: Authority) -> None:
    with serving(tls_listener(authority)) as served:
        reader = connect(served, authority.trusting(), "r")
        reader.subscribe("t", qos=1)
        writer = connect(served, authority.trusting(), "w")
        for number in range(200):
            writer.send(build.publish("t", b"%d " % number + b"x" * 50_000, 1, number + 1))
        for number in range(200):
            writer.expect_ack(build.PUBACK, number + 1)
        channel = next(each for each in served.broker.server.channels if each.client_id == "r")
        assert channel.backlog_size > 0, "the socket took everything; the test shows nothing"
        for number in range(200):
            found = reader.publication()
            assert found.payload == b"%d " % number + b"x" * 50_000


def test_what_waits_for_one_who_does_not_read_is_bounded(authority: Authority) -> None:
    """TLS keeps little of its own beside what the channel keeps; QoS 0 beyond that is dropped, in whole messages."""
    message, bound = 50_000, 200_000
    with serving(tls_listener(authority), outbound_buffer=bound) as served:
        reader = connect(served, authority.trusting(), "r")
        reader.subscribe("t")
        writer = connect(served, authority.trusting(), "w")
        channel = next(each for each in served.broker.server.channels if each.client_id == "r")
        tls = cast(Tls, channel.transport)
        stats = served.broker.server.stats
        number, most = 0, 0
        while stats.publish_dropped < 20:
            assert number < 2_000, "nothing was dropped"
            writer.send(build.publish("t", b"%d " % number + b"x" * message, 1, 1))
            writer.expect_ack(build.PUBACK, 1)
            number += 1
            most = max(most, served.call(lambda: channel.backlog_size + len(tls._rest)))
        assert bound < most < bound + 4 * message
        found = [int(reader.publication().payload.split()[0]) for _ in range(number - 20)]
        assert found == list(range(number - 20)), "not the first ones, in order"


@pytest.mark.parametrize(
    "said",
    [
        build.connect("c"),
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(50),
        b"\x16\x03\x01\xff\xff" + b"\x01" * 1000,
        b"\x80\x2e\x01",
    ],
    ids=["MQTT", "HTTP", "zeros", "broken hello", "SSL 2"],
)
def test_who_does_not_speak_tls_is_cut_off(authority: Authority, said: bytes) -> None:
    with serving(tls_listener(authority), connect_timeout=1.0) as served:
        other = connect(served, authority.trusting())
        connection = raw(served.port())
        connection.sendall(said)
        assert is_ended(connection)
        connection.close()
        other.expect_nothing()
        served.wait_until(lambda: len(served.broker.server.channels) == 1)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_half_a_handshake_has_its_time(authority: Authority, share: float) -> None:
    with serving(tls_listener(authority), connect_timeout=0.3) as served:
        tls = Memory(authority)
        with pytest.raises(ssl.SSLWantReadError):
            tls.tls.do_handshake()
        hello = tls.outgoing.read()
        connection = raw(served.port())
        connection.sendall(hello[: int(share * len(hello))])
        served.wait_until(lambda: len(served.broker.server.channels) == 1)
        assert is_ended(connection)
        connection.close()
        served.wait_until(lambda: not served.broker.server.channels)


# ---- who it is ----


def remembering(seen: list[tuple[str | None, bool]]) -> Hooks:
    hooks = Hooks()

    @hooks.on("connect_authenticate")
    def remember(client: Channel, connect: Connect) -> bool:
        seen.append((client.username, client.certificate is not None))
        return True

    return hooks


@pytest.mark.parametrize(
    ("which", "expected"), [("cn", "machine 7"), ("san", "seven.example.org"), ("none", "said")], ids=str
)
def test_the_certificate_says_who_it_is(authority: Authority, which: str, expected: str) -> None:
    seen: list[tuple[str | None, bool]] = []
    client = authority.client("machine 7", "seven.example.org", "other.example.org")
    listener = tls_listener(authority, client_certificates="required", ca=authority.file, username=which)
    with serving(listener, hooks=remembering(seen)) as served:
        connect(served, authority.trusting(client), username="said", password=b"p")
        assert seen == [(expected, True)]
        assert served.call(lambda: served.broker.server.sessions["c"].username) == expected


def test_a_certificate_is_enough_where_nobody_is_anonymous(authority: Authority) -> None:
    listener = tls_listener(authority, client_certificates="optional", ca=authority.file) | {"allow_anonymous": False}
    with serving(listener) as served:
        connect(served, authority.trusting(authority.client("m")))
        peer = over(secured(raw(served.port()), authority.trusting()))
        peer.send(build.connect("c"))
        peer.expect_refused(0x87)


def test_the_whole_subject_says_who_it_is(authority: Authority) -> None:
    seen: list[tuple[str | None, bool]] = []
    client = authority.client("pump, 7", "seven.example.org")
    listener = tls_listener(authority, client_certificates="required", ca=authority.file, username="subject")
    with serving(listener, hooks=remembering(seen)) as served:
        connect(served, authority.trusting(client))
    ((name, _),) = seen
    assert name is not None and name.startswith("CN=pump\\, 7,OU=") and ",O=trustme v" in name


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        ((("countryName", "GB"),), "C=GB"),
        ((("organizationName", 'a"b;c'), ("commonName", "x+y")), 'CN=x\\+y,O=a\\"b\\;c'),
        ((("commonName", "#x "),), "CN=\\#x\\ "),
        ((("commonName", " "),), "CN=\\ "),
        ((("title", "Dr"),), "title=Dr"),
    ],
)
def test_subjects_as_text(subject: tuple[tuple[str, str], ...], text: str) -> None:
    assert subject_text(tuple((part,) for part in subject)) == text


def test_authorities_complete_our_own_certificate(tmp_path: Path) -> None:
    """Clients that know the root only are sent what lies between, although nobody is asked for a certificate."""
    root = trustme.CA()
    between = root.create_child_ca()
    leaf = between.issue_cert("127.0.0.1")
    files = {"certificate": str(tmp_path / "c"), "key": str(tmp_path / "k")}
    leaf.cert_chain_pems[0].write_to_path(files["certificate"])
    leaf.private_key_pem.write_to_path(files["key"])
    authorities = tmp_path / "ca"
    authorities.write_bytes(between.cert_pem.bytes() + root.cert_pem.bytes())
    context = ssl.create_default_context(cadata=root.cert_pem.bytes().decode())
    with serving({"tls": files}, {"tls": {**files, "ca": str(authorities)}}) as served:
        with pytest.raises(ssl.SSLError):
            secured(raw(served.port(0)), context)
        accepted(secured(raw(served.port(1)), context))


def test_a_folder_of_authorities(authority: Authority, another_authority: Authority, tmp_path: Path) -> None:
    """As `openssl rehash` makes it: files by the hash of their subject."""
    folder = tmp_path / "authorities"
    folder.mkdir()
    said = subprocess.run(
        ["openssl", "x509", "-in", authority.file, "-noout", "-hash"], check=True, capture_output=True, text=True
    )
    (folder / f"{said.stdout.strip()}.0").write_text(Path(authority.file).read_text())
    with serving(tls_listener(authority, client_certificates="required", ca=str(folder))) as served:
        connect(served, authority.trusting(authority.client("m")))
        strange = authority.trusting(another_authority.client("m"))
        assert refused(served, strange)


def test_optional_certificates(authority: Authority) -> None:
    seen: list[tuple[str | None, bool]] = []
    listener = tls_listener(authority, client_certificates="optional", ca=authority.file)
    with serving(listener, hooks=remembering(seen)) as served:
        connect(served, authority.trusting(), username="said")
        connect(served, authority.trusting(authority.client("m")), username="said")
        assert seen == [("said", False), ("m", True)]


def refused(served: Served, context: ssl.SSLContext, **arguments: Any) -> bool:
    """In TLS 1.3 a client learns of it only when it reads."""
    try:
        connection = secured(raw(served.port()), context, **arguments)
        connection.sendall(build.connect("c"))
        return connection.recv(1) == b""
    except (ssl.SSLError, ConnectionResetError, BrokenPipeError):
        return True


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_who_has_no_good_certificate_is_refused(
    authority: Authority, another_authority: Authority, version: ssl.TLSVersion
) -> None:
    listener = tls_listener(authority, client_certificates="required", ca=authority.file)
    with serving(listener) as served:
        nobody = authority.trusting()
        stranger = authority.trusting(another_authority.client("m"))
        nameless = authority.trusting(authority.client(None))
        for context in (nobody, stranger, nameless):
            context.maximum_version = version
            assert refused(served, context)
        served.wait_until(lambda: not served.broker.server.channels)
        assert not refused(served, authority.trusting(authority.client("m")))


def revocations(authority: Authority, *certificates: str, days: int = 1) -> bytes:
    """A list of revoked certificates, as the authority signs it."""
    key = serialization.load_pem_private_key(authority.ca.private_key_pem.bytes(), None)
    issuer = x509.load_pem_x509_certificate(authority.ca.cert_pem.bytes())
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
    day = datetime.timedelta(days=1)
    builder = builder.last_update(now - 2 * day).next_update(now + days * day)
    for file in certificates:
        serial = x509.load_pem_x509_certificate(Path(file).read_bytes()).serial_number
        builder = builder.add_revoked_certificate(
            x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        )
    signed = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]
    return signed.public_bytes(serialization.Encoding.PEM)


def test_revoked_certificates_are_refused(authority: Authority, tmp_path: Path) -> None:
    good, bad = authority.client("good"), authority.client("bad")
    crl = tmp_path / "crl.pem"
    crl.write_bytes(revocations(authority))
    listener = tls_listener(authority, client_certificates="required", ca=authority.file, crl=str(crl))
    with serving(listener) as served:
        context = authority.trusting(bad)
        peer = connect(served, context, "before")
        session = cast(ssl.SSLSocket, peer._sock).session
        assert not refused(served, authority.trusting(bad))
        crl.write_bytes(revocations(authority, bad["certificate"]))
        served.call(served.broker.reload_certificates)
        assert refused(served, authority.trusting(bad))
        assert refused(served, context, session=session)  # nor by an earlier acquaintance
        assert not refused(served, authority.trusting(good))
        peer.expect_nothing()  # it was there before, and stays


class Branch(Authority):
    """An authority between another one and its clients."""

    def __init__(self, root: Authority, folder: Path, name: str) -> None:
        self.folder = folder
        self.ca = root.ca.create_child_ca()
        self.file = str(folder / f"{name}.pem")
        self.ca.cert_pem.write_to_path(self.file)


def test_certificates_of_a_revoked_authority_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The list of the root says so; that of the authority between, by whoever has its key, would not."""
    caplog.set_level(logging.INFO, "headwater.transports")
    root = Authority(tmp_path, "root")
    good, bad = Branch(root, tmp_path, "good"), Branch(root, tmp_path, "bad")
    clients = [branch.client(name) for branch, name in ((good, "in-good"), (bad, "in-bad"))]
    crl = tmp_path / "crl.pem"
    branches = revocations(good) + revocations(bad)
    crl.write_bytes(branches + revocations(root))
    listener = tls_listener(root, client_certificates="required", ca=root.file, crl=str(crl))
    with serving(listener) as served:
        assert not any(refused(served, root.trusting(client)) for client in clients)
        crl.write_bytes(branches + revocations(root, bad.file))
        served.call(served.broker.reload_certificates)
        assert [refused(served, root.trusting(client)) for client in clients] == [False, True]
        crl.write_bytes(revocations(bad) + revocations(root))
        served.call(served.broker.reload_certificates)
        assert [refused(served, root.trusting(client)) for client in clients] == [True, False], "no list, no entry"
    assert "`crl` needs the list of every authority" in caplog.text


def test_a_list_that_is_missing_is_said_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = Authority(tmp_path, "root")
    branch = Branch(root, tmp_path, "branch")
    both, crl = tmp_path / "both.pem", tmp_path / "crl.pem"
    both.write_bytes(Path(root.file).read_bytes() + Path(branch.file).read_bytes())
    settings = TlsSettings(**root.server(), client_certificates="required", ca=str(both), crl=str(crl))
    for has, lacks in ((root, branch), (branch, root)):
        crl.write_bytes(revocations(has))
        subject = x509.load_pem_x509_certificate(Path(lacks.file).read_bytes()).subject.rfc4514_string()
        with pytest.raises(CertificateError, match="has no list of") as error:
            make_context(settings, "mqtt")
        assert subject in str(error.value) and "append it" in str(error.value)
    crl.write_bytes(revocations(root) + revocations(branch))
    make_context(settings, "mqtt")
    assert not caplog.records
    crl.write_bytes(revocations(root) + revocations(branch, days=-1))
    make_context(settings, "mqtt")
    assert "is too old" in caplog.text


# ---- certificates come and go ----


def test_certificates_are_reloaded_without_dropping_anybody(authority: Authority, tmp_path: Path) -> None:
    one, two = Authority(tmp_path, "one"), Authority(tmp_path, "two")
    files = one.server("current")
    with serving({"tls": files}) as served:
        peer = connect(served, one.trusting(), "old")
        two.server("current")
        with pytest.raises(ssl.SSLError):
            connect(served, two.trusting(), "new")
        served.call(served.broker.reload_certificates)
        connect(served, two.trusting(), "new").expect_nothing()
        peer.expect_nothing()


def test_what_cannot_be_used_changes_nothing(authority: Authority, tmp_path: Path) -> None:
    one, two = Authority(tmp_path, "one"), Authority(tmp_path, "two")
    first, second = one.server("first"), one.server("second")
    with serving({"tls": first}, {"tls": second}) as served:
        two.server("first")
        Path(second["key"]).write_text("no key")
        with pytest.raises(CertificateError, match=r"second\.key"):
            served.call(served.broker.reload_certificates)
        connect(served, one.trusting())


def test_a_certificate_that_is_over_is_warned_of(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    for name, first, last in (("fine", -2, 2), ("over", -2, -1), ("early", 1, 2)):
        leaf = authority.ca.issue_cert(
            "localhost", not_before=now + datetime.timedelta(days=first), not_after=now + datetime.timedelta(days=last)
        )
        leaf.cert_chain_pems[0].write_to_path(tmp_path / name)
        leaf.private_key_pem.write_to_path(tmp_path / "key")
        caplog.clear()
        make_context(TlsSettings(certificate=str(tmp_path / name), key=str(tmp_path / "key")), "mqtt")
        assert [record.getMessage().count(f"/{name} is not valid now") for record in caplog.records] == (
            [] if name == "fine" else [1]
        )


def test_what_cannot_be_used_is_said_at_start(authority: Authority, tmp_path: Path) -> None:
    files, other = authority.server("first"), authority.server("second")
    locked = tmp_path / "locked.key"
    key = serialization.load_pem_private_key(Path(files["key"]).read_bytes(), None)
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    asking = {"client_certificates": "required", "ca": authority.file}
    for change, said in (
        ({"key": other["key"]}, "is not the key of"),
        ({"key": str(tmp_path / "missing")}, "cannot read .*missing"),
        ({"key": str(locked)}, "passphrase"),
        ({"certificate": files["key"]}, r"first\.key holds no certificate"),
        ({"key": files["certificate"]}, "holds no private key"),
        ({"ciphers": "NONSENSE"}, "NONSENSE"),
        (asking | {"ca": str(empty)}, "empty.pem holds no certificate"),
        (asking | {"crl": authority.file}, "holds no revocation list"),
    ):
        with pytest.raises(CertificateError, match=said), serving({"tls": files | change}):
            pass
