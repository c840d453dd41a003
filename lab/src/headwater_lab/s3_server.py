"""An S3 server as a process of its own: moto's. It knows `If-None-Match` and `If-Match`, and forgets all at its end."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import IO

_buckets = count(1)
PATIENCE = 60.0


class S3Server:
    """Use it as a context. `bucket()` makes a new one and gives its URL, to be opened with `options`."""

    def __init__(self, port: int) -> None:
        self.port = port

    def options(self, port: int | None = None) -> dict[str, str]:
        """Through another port, if something stands between."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "hush-hush",
            "AWS_REGION": "us-east-1",
        }

    def bucket(self) -> str:
        name = f"bucket-{next(_buckets)}-{time.time_ns():x}"
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{name}", method="PUT")
        with urllib.request.urlopen(request):
            return f"s3://{name}"


@contextmanager
def s3_server() -> Iterator[S3Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with tempfile.TemporaryFile() as said:  # a line for each request: a pipe would be full some time
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=said)
        try:
            _await(process, port, said)
            yield S3Server(port)
        finally:
            process.kill()
            process.wait()


def _await(process: subprocess.Popen[bytes], port: int, said: IO[bytes]) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                said.seek(0)
                raise RuntimeError(f"the S3 server did not start: {said.read().decode()}") from None
            time.sleep(0.05)
