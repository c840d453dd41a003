"""Where a node may send those who ask it, and who is told there who they are."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headwater.store.reader import Refused, StoreReader, Unreachable


class Sender(ThreadingHTTPServer):
    """Sends everybody to `location`, and remembers what it was shown."""

    daemon_threads = True

    def __init__(self) -> None:
        self.location = ""
        self.shown: list[tuple[str, str | None]] = []
        super().__init__(("127.0.0.1", 0), Answer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Sender)
        self.server.shown.append((self.path, self.headers["Authorization"]))
        self.send_response(307)
        self.send_header("Location", self.server.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def sender() -> Iterator[Sender]:
    server = Sender()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_same_caller_at_another_node() -> None:
    reader = StoreReader("https://a:1", token="secret", retries=2, timeout=7.0)
    other = reader.at("https://b:2/sub/")
    assert (other.url, other.retries, other.timeout) == ("https://b:2/sub/", 2, 7.0)
    assert other._headers == reader._headers
    assert (reader.url, reader._host, reader._port) == ("https://a:1", "a", 1)


def test_nobody_is_told_without_tls_who_we_are_if_it_was_asked_for() -> None:
    reader = StoreReader("https://a:1", token="secret")
    with pytest.raises(Refused, match="which has no TLS"):
        reader.at("http://b:2")
    StoreReader("http://a:1", token="secret").at("https://b:2")


def test_who_is_sent_around_ends_it() -> None:
    with sender() as one, sender() as two:
        one.location, two.location = f"{two.url}/v1/messages?x=1", f"{one.url}/v1/messages"
        with pytest.raises(Refused) as caught:
            list(StoreReader(one.url, token="t", retries=0).messages(scope="edge"))
        assert caught.value.status == 307
        assert len(one.shown) == len(two.shown) == 1
        assert two.shown[0][1] == "Bearer t"
        assert "scope=store" in two.shown[0][0]


@pytest.mark.parametrize("location", ["", "/v1/messages", "file:///etc/passwd", "ftp://x/y"])
def test_an_address_that_is_none_is_not_gone_to(location: str) -> None:
    with sender() as one:
        one.location = location
        with pytest.raises(Unreachable, match="which is no address"):
            StoreReader(one.url, retries=0).status()
