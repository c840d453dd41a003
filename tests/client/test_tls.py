"""TLS, with a strange broker and certificates made for the occasion; the library and the command line."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from headwater.client import Client, ConnectError, Reconnect, SyncClient
from tests.brokers import PATIENCE, running
from tests.client.scripted import run


class Certificates:
    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.folder = folder
        self.trusted = folder / "trusted.pem"
        self.authority.cert_pem.write_to_path(str(self.trusted))
        self.cert, self.key = self.issue("server", "localhost")

    def issue(self, name: str, *identities: str) -> tuple[Path, Path]:
        issued = self.authority.issue_cert(*identities)
        cert, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(str(cert))
        issued.private_key_pem.write_to_path(str(key))
        return cert, key

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context

    def settings(self, more: str = "") -> str:
        files = f"cafile {self.trusted}\ncertfile {self.cert}\nkeyfile {self.key}"
        return f"allow_anonymous true\n{files}\n{more}"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running("mosquitto", tmp_path_factory.mktemp("broker"), certificates.settings()) as port:
        yield port


@pytest.fixture(scope="module")
def strict_broker(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Wants a certificate of the client."""
    settings = certificates.settings("require_certificate true")
    with running("mosquitto", tmp_path_factory.mktemp("strict"), settings) as port:
        yield port


def test_a_message_goes_round(broker: int, certificates: Certificates) -> None:
    large = bytes(range(256)) * 4096

    async def scenario() -> None:
        async with Client("localhost", broker, tls=certificates.context()) as client:
            await client.subscribe("tls", qos=2)
            await client.publish("tls", large, qos=2)
            assert (await anext(client.messages)).payload == large

    run(scenario())
    with SyncClient("localhost", broker, tls=certificates.context()) as client:
        client.subscribe("tls")
        client.publish("tls", b"x")
        assert client.receive(PATIENCE).payload == b"x"


def test_a_certificate_that_nobody_here_trusts(broker: int) -> None:
    """It is not tried again either: it would not get better."""

    async def scenario() -> None:
        with pytest.raises(ConnectError, match="its certificate is not accepted: "):
            await Client("localhost", broker, tls=True, reconnect=Reconnect(from_start=True)).connect()

    run(scenario())


def test_a_certificate_of_another_host(broker: int, certificates: Certificates) -> None:
    async def scenario() -> None:
        with pytest.raises(ConnectError, match=r"its certificate is not accepted: .*not valid for '127\.0\.0\.1'"):
            await Client("127.0.0.1", broker, tls=certificates.context()).connect()

    run(scenario())


def test_a_client_with_a_certificate(strict_broker: int, certificates: Certificates) -> None:
    cert, key = certificates.issue("client", "somebody")
    context = certificates.context()
    context.load_cert_chain(cert, key)

    async def scenario() -> None:
        async with Client("localhost", strict_broker, tls=context) as client:
            await client.publish("a", b"", qos=1)
        with pytest.raises(ConnectError):
            await Client("localhost", strict_broker, tls=certificates.context()).connect()

    run(scenario())


def test_the_usual_ports() -> None:
    assert Client().port == 1883
    assert Client(tls=True).port == 8883
    assert Client(tls=ssl.create_default_context()).port == 8883
    assert Client(port=1234, tls=True).port == 1234


def headwater(*arguments: object) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "headwater", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_the_command_line(broker: int, strict_broker: int, certificates: Certificates) -> None:
    trusted = ["--cafile", certificates.trusted, "-t", "kept"]
    assert headwater("pub", "-p", broker, *trusted, "-m", "x", "-r", "-q", 1) == (0, "", "")
    assert headwater("sub", "-p", broker, *trusted, "-C", 1) == (0, "x\n", "")
    url = f"mqtts://localhost:{broker}/kept"
    assert headwater("sub", "-L", url, "--cafile", certificates.trusted, "-C", 1) == (0, "x\n", "")

    code, _, text = headwater("pub", "-p", broker, "--tls", "-t", "a", "-m", "x")
    assert code == 1
    assert "its certificate is not accepted" in text

    elsewhere = ["-h", "127.0.0.1", "-p", broker, *trusted, "-m", "x"]
    code, _, text = headwater("pub", *elsewhere)
    assert code == 1
    assert "not valid for '127.0.0.1'" in text
    assert headwater("pub", *elsewhere, "--insecure") == (0, "", "")

    cert, key = certificates.issue("somebody", "somebody")
    assert headwater("pub", "-p", strict_broker, *trusted, "-m", "x", "--cert", cert, "--key", key) == (0, "", "")
