"""As much of Kubernetes' API server as Spark's driver asks for; its pods are processes of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]


class FakeKubernetes:
    """`pods` and `maps` are what was created and is there, by name; `created` are all pods, which run in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pods: dict[str, Object] = {}
        self.maps: dict[str, Object] = {}
        self.created: list[Object] = []
        self.requests: list[tuple[str, str]] = []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True

    @property
    def master(self) -> str:
        return f"k8s://http://127.0.0.1:{self.server.server_port}"

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Object | None) -> tuple[int, Object]:
        parts = path.strip("/").split("/")
        self.requests.append((method, path))
        if path.startswith("/version"):
            return 200, {"major": "1", "minor": "30"}
        kind = next((each for each in ("pods", "configmaps", "persistentvolumeclaims") if each in parts), None)
        if kind is None:
            return 404, _status(404)
        held = self.pods if kind == "pods" else self.maps
        name = parts[parts.index(kind) + 1] if parts[-1] != kind else None
        with self._lock:
            if method == "POST" and body is not None:
                return 201, self._create(held, kind, body)
            if method == "DELETE":
                for each in [name] if name else list(held):
                    held.pop(each, None)
                    self._end(each)
                return 200, _status(200)
            if name is not None:
                return (200, held[name]) if name in held else (404, _status(404))
            return 200, {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": list(held.values())}

    def _create(self, held: dict[str, Object], kind: str, body: Object) -> Object:
        meta = body["metadata"]
        name = meta["name"]
        meta |= {"uid": str(uuid.uuid4()), "resourceVersion": "1", "creationTimestamp": "2026-01-31T12:00:00Z"}
        if kind == "pods":
            self.created.append(body)
            body["status"] = {"phase": "Running", "podIP": "127.0.0.1"}
            self._processes[name] = _started(body, self.folder)
        held[name] = body
        return body

    def _end(self, name: str | None) -> None:
        process = self._processes.pop(name or "", None)
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        for name in list(self._processes):
            self._end(name)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                super().handle_one_request()

            def _serve(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                text = self.rfile.read(length)
                body = json.loads(text) if text else None
                url = urlsplit(self.path)
                status, found = outer.answer(self.command, url.path, parse_qs(url.query), body)
                data = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = _serve

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _status(code: int) -> Object:
    return {"apiVersion": "v1", "kind": "Status", "code": code, "status": "Success" if code < 300 else "Failure"}


def _started(pod: Object, folder: Path) -> subprocess.Popen[bytes]:
    """The executor's container, with the environment that Spark has described."""
    container = next(each for each in pod["spec"]["containers"] if each["name"] == "executor")
    given = {}
    for each in container["env"]:
        field = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        known = {"status.podIP": "127.0.0.1", "metadata.name": pod["metadata"]["name"]}
        given[each["name"]] = each["value"] if field is None else known[field]
    given.pop("SPARK_CONF_DIR", None)  # a mount that is not here
    words = [sys.executable if each == "python3" else each for each in container["command"]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **given}
    return subprocess.Popen([*words, *container["args"]], env=environment, cwd=folder, stdout=subprocess.DEVNULL)


@contextmanager
def fake_kubernetes(folder: Path) -> Iterator[FakeKubernetes]:
    found = FakeKubernetes(folder)
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        found.close()
        thread.join()
