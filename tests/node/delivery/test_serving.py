"""REST beside a broker: where it listens, with which files, and its end."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path

import httpx
import pytest
import trustme

from headwater.node.delivery.rest_settings import RestSettings
from headwater.node.delivery.serving import read_rest_token
from headwater.node.settings import ConfigError
from headwater.node.transports.contexts import CertificateError
from headwater.store.reader import StoreReader
from tests.node.delivery.node import PATIENCE, running


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError) as raised, running(rest={"port": port}):
            pass
        assert raised.value.filename == f"http://127.0.0.1:{port} for REST (rest.host, rest.port)"


def test_over_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    certificate, key, ca = (tmp_path / name for name in ("certificate.pem", "key.pem", "ca.pem"))
    certificate.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(key))
    authority.cert_pem.write_to_path(str(ca))
    with running(rest={"certificate": str(certificate), "key": str(key)}) as node:
        assert node.rest.url.startswith("https://")
        reader = StoreReader(f"https://localhost:{node.rest.port}", ca=str(ca))
        assert reader.publish("a", b"1") == 1
        assert sum(batch.num_rows for batch in reader.read()) == 1
        old = ssl.create_default_context(cafile=str(ca))
        old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with httpx.Client(verify=old, timeout=PATIENCE) as client:
            assert client.get(f"https://localhost:{node.rest.port}/health").status_code == 200
    with pytest.raises(CertificateError), running(rest={"certificate": str(key), "key": str(key)}):
        pass


def test_files_of_tokens(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(ConfigError, match=r"cannot read rest\.token_file"):
        read_rest_token(RestSettings(token_file=str(file)))
    file.write_text("short")
    with pytest.raises(ConfigError, match=r"rest\.token_file .* at least 16"):
        read_rest_token(RestSettings(token_file=str(file)))
    file.write_text("0123456789abcdef\n")
    assert read_rest_token(RestSettings(token_file=str(file))) == "0123456789abcdef"
    assert read_rest_token(RestSettings()) == ""


def test_it_ends_while_somebody_watches() -> None:
    with httpx.Client(timeout=PATIENCE) as client, contextlib.ExitStack() as stack:
        with running() as node:
            lines = stack.enter_context(client.stream("GET", f"{node.url}/v1/tail")).iter_lines()
            assert next(lines)
        assert not any(lines)
