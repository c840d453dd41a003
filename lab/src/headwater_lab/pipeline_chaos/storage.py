"""Where the lake of an episode is: a folder, or an object store in a process that is killed as well."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headwater.fleet.process import free_port

FOLDER: Final = "folder"
S3: Final = "s3"
LAKES: Final = (FOLDER, S3)
PATIENCE: Final = 60.0


class ObjectStore:
    """`headwater_lab.kept_s3`, which keeps what it has acknowledged. It starts again at the same port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "headwater_lab.kept_s3", str(self._folder), str(self._port)]
        with (self._folder.parent / "s3.log").open("ab") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log)
        until = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1.0).close()
            except OSError:
                time.sleep(0.02)
            else:
                return process
        process.kill()
        raise RuntimeError("the object store did not start")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def start_again(self) -> None:
        self.process = self._start()

    @property
    def options(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "chaos",
            "AWS_SECRET_ACCESS_KEY": "chaos",
            "AWS_REGION": "us-east-1",
            "timeout": "5s",
        }


class Storage:
    """`url` and `options` of the lake. The environment of drivers has their scratch folder in the episode's."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.store = ObjectStore(folder / "s3") if kind == S3 else None
        self.url = str(folder / "lake") if self.store is None else "s3://bucket/lake"
        self.options: Mapping[str, str] = {} if self.store is None else self.store.options
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}

    def close(self) -> None:
        if self.store is not None:
            self.store.kill()
