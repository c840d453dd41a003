"""What Python's TLS cannot ask for, asked by OpenSSL's own client: renegotiation and new keys."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator

from tests.broker import build

from .serving import HOST, PATIENCE, Authority, Served, over, raw, secured, serving

ACCEPTED = bytes([build.CONNACK, 2, 0, 0])  # in MQTT 3.1.1


@contextlib.contextmanager
def openssl(served: Served, *options: str) -> Iterator[tuple[Callable[[bytes], None], Callable[[bytes], None]]]:
    """OpenSSL's own client, which can do what Python's cannot: gives `say`, and `hear`, which waits for bytes."""
    words = ["openssl", "s_client", "-connect", f"{HOST}:{served.port()}", *options]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as client:
        assert client.stdin is not None and client.stdout is not None
        stdin, stdout = client.stdin, client.stdout
        heard = bytearray()

        def say(data: bytes) -> None:
            stdin.write(data)
            stdin.flush()

        def hear(expected: bytes) -> None:
            until = time.monotonic() + PATIENCE
            while expected not in heard:
                assert select.select([stdout], [], [], until - time.monotonic())[0], bytes(heard)
                data = os.read(stdout.fileno(), 65536)
                assert data, bytes(heard)
                heard.extend(data)
            del heard[: heard.index(expected) + len(expected)]

        try:
            yield say, hear
        finally:
            client.kill()


def test_renegotiation_is_refused(authority: Authority) -> None:
    """It costs the server much and the client little, and nobody needs it."""
    with serving({"tls": authority.server()}) as served:
        other = over(secured(raw(served.port()), authority.trusting()))
        other.send(build.connect("other"))
        assert other.packet()[0] == build.CONNACK
        with openssl(served, "-tls1_2") as (say, hear):
            say(build.connect("renegotiating", version=4))
            hear(ACCEPTED)
            served.wait_until(lambda: len(served.broker.server.channels) == 2)
            say(b"R\n")
            hear(b"no renegotiation")
            served.wait_until(lambda: len(served.broker.server.channels) == 1)
        other.expect_nothing()


def test_new_keys_are_answered(authority: Authority) -> None:
    """TLS 1.3 asks for new keys in place of renegotiation; what follows can be read only if both have changed."""
    with serving({"tls": authority.server()}) as served, openssl(served, "-tls1_3") as (say, hear):
        say(build.connect("c", version=4))
        hear(ACCEPTED)
        for number in range(3):
            say(b"K\n")
            hear(b"KEYUPDATE\n")
            say(build.subscribe("t", pid=number + 1, version=4))
            hear(build.suback(0, pid=number + 1, version=4))
            say(build.publish("t", b"after %d" % number, version=4))
            hear(b"after %d" % number)
