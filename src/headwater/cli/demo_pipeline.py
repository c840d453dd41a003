"""The pipeline of the demo: `headwater pipeline run` in a process of its own, and what it does from outside.

A process of its own because it ends as a whole, with its Java, whatever it is doing; and because the view needs only
what everybody has who looks at the lake: the logs of the tables.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater.cli.lakes import NOT_INSTALLED

if TYPE_CHECKING:
    from headwater.cli.pipeline_view import PipelineView
    from headwater.fleet.node import RunningNode

SETTINGS: Final = """\
# The pipeline of the demo: small windows, so that there is something to see soon. docs/pipeline.md has all settings.
urls = ["{url}"]
live_broker = "mqtt://127.0.0.1:{port}"
trigger = 1.0

[deriving]
window = 10
lateness = 5
gap = 3
"""
NEEDED: Final = ("pyspark", "deltalake", "pandas")
PATIENCE: Final = 30.0
"""Seconds for the step that is under way."""


def why_not() -> str | None:
    """What is missing for Spark here, and what to do; None: nothing is."""
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed ({NOT_INSTALLED})"
    from headwater.pipeline.java import NoJava, use_java

    try:
        use_java()
    except NoJava as missing:
        return str(missing).rstrip(".")
    return None


class DemoPipeline:
    """As a context: it runs in between, from the node's store into `folder`/lake; what it says is in
    `folder`/pipeline.log."""

    def __init__(self, node: RunningNode, folder: Path) -> None:
        from headwater.pipeline.java import QUICK_JAVA

        self.lake = folder / "lake"
        self.settings = folder / "pipeline.toml"
        self._log = folder / "pipeline.log"
        self.settings.write_text(SETTINGS.format(url=node.url, port=node.port), encoding="utf-8")
        words = ["pipeline", "run", "--lake", str(self.lake), "--config", str(self.settings)]
        given = os.environ.get("JDK_JAVA_OPTIONS", "")
        with self._log.open("wb") as log:
            # Not in our process group: Ctrl-C on the terminal is for us, and we end it when our part is done.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headwater", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "JDK_JAVA_OPTIONS": f"{given} {QUICK_JAVA}".strip()},
            )

    def view(self) -> PipelineView:
        from headwater.cli.pipeline_view import PipelineView
        from headwater.pipeline.jobs.settings import read_file
        from headwater.pipeline.lake.folder import Lake

        return PipelineView(Lake(self.lake), read_file(self.settings).source())

    def failure(self) -> str | None:
        """Its last words, if it has ended by itself."""
        if self._process.poll() is None:
            return None
        said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return said[-1] if said else f"it ended with {self._process.returncode}"

    def __enter__(self) -> DemoPipeline:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing of it is left, also if somebody has no patience."""
        try:
            self._process.terminate()
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # its Java, if it was still about to start
            self._process.wait()
