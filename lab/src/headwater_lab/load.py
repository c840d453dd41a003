"""The load generator: a C program that is built when it is needed and run against one broker at a time."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("loadgen.c")
VIOLATIONS: Final = ("lost", "gaps", "disorder", "misrouted", "corrupt", "repeated")
"""Counters of the load generator that must all be zero."""

_FOUND_VIOLATIONS: Final = 3  # exit status of loadgen

Result = dict[str, float]


class LoadError(Exception):
    """The load generator could not be built, or could not do its work with the broker."""


class LoadGenerator:
    """The built program. Options are those of `loadgen.c`; `--port` is added here, and what `always` says."""

    def __init__(self, program: Path, always: Sequence[str] = ()) -> None:
        self.program = program
        self.always = tuple(always)

    def run(self, mode: str, port: int | Sequence[int], options: Sequence[str], *, limit: float) -> Result:
        """Run to the end and return what it measured. Violations of order are in the result, not an error.

        With several ports, the clients of `traffic` are spread over the brokers in turn.
        """
        ports = [port] if isinstance(port, int) else port
        words = [str(self.program), mode, "--port", ",".join(map(str, ports)), *self.always, *options]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            raise LoadError(f"the load generator did not finish within {limit:.0f} s") from None
        if done.returncode not in (0, _FOUND_VIOLATIONS):
            raise LoadError(done.stderr.strip() or f"the load generator ended with status {done.returncode}")
        return _numbers(done.stdout)

    def cipher(self, port: int) -> str:
        """What TLS agrees on with a broker: version and cipher."""
        words = [str(self.program), "cipher", "--port", str(port), *self.always]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        if done.returncode:
            raise LoadError(done.stderr.strip())
        return done.stdout.strip()

    @contextlib.contextmanager
    def hold(self, port: int, *, clients: int, subscriptions: int, mqtt: int = 4) -> Iterator[Result]:
        """Idle connections that share `subscriptions` filters, connected while the context is open."""
        words = [str(self.program), "hold", "--port", str(port), *self.always, "--mqtt", str(mqtt)]
        words += ["--clients", str(clients), "--subscriptions", str(subscriptions)]
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin and process.stdout and process.stderr
            ready = process.stdout.readline()
            if not ready:
                raise LoadError(process.stderr.read().strip() or "the load generator could not hold its connections")
            try:
                yield _numbers(ready)
            finally:
                process.stdin.close()


def build(folder: Path, *, tls: Path | None = None) -> LoadGenerator:
    """Compile the load generator into `folder`; with `tls`, for servers that the authority in that file has signed."""
    if shutil.which("gcc") is None:
        raise LoadError("gcc is needed to build the load generator (Debian: apt install gcc libc6-dev)")
    program = folder / "loadgen"
    words = ["gcc", "-O2", "-Wall", "-Wextra", "-o", str(program), str(SOURCE)]
    if tls is not None:
        words += ["-DLOADGEN_TLS", "-lssl", "-lcrypto"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        needs = "" if tls is None else ", which needs OpenSSL's headers (Debian: apt install libssl-dev)"
        raise LoadError(f"gcc cannot build the load generator{needs}:\n{done.stderr}")
    return LoadGenerator(program, () if tls is None else ("--tls", str(tls)))


def _numbers(line: str) -> Result:
    return {name: float(value) for name, value in json.loads(line).items()}
