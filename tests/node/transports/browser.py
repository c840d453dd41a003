"""A real browser: Chromium without a window, on a page of ours that runs one scenario after another.

The page asks for work and sends back results over HTTP, so nothing but the browser itself is needed to drive it.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

PATIENCE = 60.0
"""A browser on a busy machine takes seconds to start."""
SCRIPT = (Path(__file__).parent / "browser_page.js").read_bytes()
PAGE = b'<!doctype html><meta charset="utf-8"><title>MQTT</title><script src="/page.js"></script>'


def find_chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found is not None:
            return found
    pytest.skip("chromium is not installed")


class Browser:
    """`run` has the page run a scenario of browser_page.js and returns what it says."""

    def __init__(self) -> None:
        self._jobs: queue.Queue[bytes] = queue.Queue()
        self._results: queue.Queue[dict[str, Any]] = queue.Queue()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._ended = threading.Event()
        self._thread.start()
        self.origin = f"http://127.0.0.1:{self._server.server_port}"

    def run(self, name: str, **arguments: Any) -> dict[str, Any]:
        self._jobs.put(json.dumps({"name": name, "arguments": arguments}).encode())
        result = self._results.get(timeout=PATIENCE)
        assert "error" not in result, result["error"]
        return result

    def close(self) -> None:
        self._ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        browser = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                files = {"/": (PAGE, "text/html"), "/page.js": (SCRIPT, "text/javascript")}
                if self.path == "/next":
                    self._next()
                elif self.path in files:
                    self._answer(200, *files[self.path])
                else:
                    self._answer(404, b"", "text/plain")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(204, b"", "text/plain")
                browser._results.put(json.loads(body))

            def _next(self) -> None:
                """The next job, as soon as there is one."""
                while not browser._ended.is_set():
                    with contextlib.suppress(queue.Empty):
                        self._answer(200, browser._jobs.get(timeout=0.1), "application/json")
                        return
                self._answer(503, b"", "text/plain")

            def _answer(self, status: int, body: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Not to standard error."""

        return Handler


def fingerprint(certificate: str) -> str:
    """What Chromium knows a key by: the hash of its public key's info."""
    leaf = x509.load_pem_x509_certificate(Path(certificate).read_bytes())
    info = leaf.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(info).digest()).decode()


@contextlib.contextmanager
def browsing(folder: Path, trusted: Sequence[str]) -> Iterator[Browser]:
    """A browser that takes these certificates (files) for good. Skips the test if there is none."""
    program = find_chromium()
    browser = Browser()
    command = [
        program,
        "--headless",
        "--no-sandbox",  # which root cannot have; nothing but our own page is opened
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--no-first-run",
        f"--user-data-dir={folder}",
        f"--ignore-certificate-errors-spki-list={','.join(map(fingerprint, trusted))}",
        browser.origin + "/",
    ]
    log = folder / "browser.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        yield browser
    except queue.Empty:
        pytest.fail(f"the browser does not answer; it said:\n{log.read_text(errors='replace')[-3000:]}", pytrace=False)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # it has children of its own
        process.wait()
        browser.close()
