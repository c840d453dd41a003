"""mosquitto_pub, mosquitto_sub and Mosquitto's bridge against our broker."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from tests.brokers import PATIENCE, find_mosquitto, running

both_versions = pytest.mark.parametrize("version", ["311", "5"])
every_qos = pytest.mark.parametrize("qos", ["0", "1", "2"])


@pytest.fixture
def topic() -> str:
    return f"mosquitto/{secrets.token_hex(4)}"


def publish(
    port: int, *arguments: str, check: bool = True, stdin: TextIO | None = None
) -> subprocess.CompletedProcess[str]:
    words = [find_mosquitto("mosquitto_pub"), "-h", "127.0.0.1", "-p", str(port), *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=check, stdin=stdin)


class Sub:
    """A mosquitto_sub that has subscribed; it ends by itself after the messages it was told to expect."""

    def __init__(self, port: int, count: int, *arguments: str) -> None:
        unbuffered = [shutil.which("stdbuf") or "stdbuf", "-oL"]
        words = [find_mosquitto("mosquitto_sub"), "-h", "127.0.0.1", "-p", str(port), "-d", "-C", str(count)]
        words += ["-W", f"{PATIENCE:.0f}"]  # then it ends by itself, with fewer messages
        self.process = subprocess.Popen([*unbuffered, *words, *arguments], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.log: list[str] = []
        for line in self.process.stdout:
            self.log.append(line)
            if "Subscribed (mid" in line:
                return
        pytest.fail(f"mosquitto_sub did not subscribe: {''.join(self.log)}")

    def lines(self) -> list[str]:
        """What it printed of messages until it ended; debug lines left out."""
        assert self.process.stdout is not None
        return [line.rstrip() for line in [*self.log, *self.process.stdout] if line.startswith("> ")]


@contextlib.contextmanager
def subscribed(port: int, count: int, *arguments: str) -> Iterator[Sub]:
    sub = Sub(port, count, *arguments)
    try:
        yield sub
    finally:
        sub.process.kill()
        with sub.process:
            pass


@both_versions
@every_qos
def test_publish_and_receive(port: int, topic: str, version: str, qos: str) -> None:
    with subscribed(port, 1, "-V", version, "-q", qos, "-t", topic + "/#", "-F", "> %t %q %r %p") as sub:
        publish(port, "-V", version, "-q", qos, "-t", topic + "/x", "-m", "hello")
        assert sub.lines() == [f"> {topic}/x {qos} 0 hello"]


@both_versions
def test_many_lines(port: int, topic: str, version: str) -> None:
    lines = [f"line {number}" for number in range(500)]
    with subscribed(port, 500, "-V", version, "-q", "2", "-t", topic, "-F", "> %p") as sub:
        words = [find_mosquitto("mosquitto_pub"), "-h", "127.0.0.1", "-p", str(port), "-V", version]
        subprocess.run(
            [*words, "-q", "2", "-t", topic, "-l"], input="\n".join(lines), text=True, timeout=PATIENCE, check=True
        )
        assert sub.lines() == [f"> {line}" for line in lines]


@both_versions
def test_retained(port: int, topic: str, version: str) -> None:
    publish(port, "-V", version, "-q", "1", "-r", "-t", topic, "-m", "kept")
    with subscribed(port, 1, "-V", version, "-t", topic, "-F", "> %r %p") as sub:
        assert sub.lines() == ["> 1 kept"]
    publish(port, "-V", version, "-q", "1", "-r", "-n", "-t", topic)
    with subscribed(port, 1, "-V", version, "-t", topic, "-F", "> %r %p") as sub:
        publish(port, "-V", version, "-t", topic, "-m", "live")
        assert sub.lines() == ["> 0 live"]


@both_versions
def test_will(port: int, topic: str, version: str) -> None:
    with subscribed(port, 1, "-V", version, "-q", "1", "-t", topic, "-F", "> %p") as sub:
        will = ("--will-topic", topic, "--will-payload", "gone", "--will-qos", "1")
        with subscribed(port, 1, "-V", version, "-t", "unused", *will) as dying:
            dying.process.kill()
            assert sub.lines() == ["> gone"]


def test_properties(port: int, topic: str) -> None:
    form = "> %C %E %F %R %D %P %S %p"
    identified = ("-D", "subscribe", "subscription-identifier", "9")
    with subscribed(port, 1, "-V", "5", "-t", topic, "-F", form, *identified) as sub:
        sent = [
            *("-D", "publish", "content-type", "text"),
            *("-D", "publish", "message-expiry-interval", "1000"),
            *("-D", "publish", "payload-format-indicator", "1"),
            *("-D", "publish", "response-topic", "answer"),
            *("-D", "publish", "correlation-data", "data"),
            *("-D", "publish", "user-property", "k", "v"),
        ]
        publish(port, "-V", "5", "-t", topic, "-m", "hello", *sent)
        line = sub.lines()[0]
    assert line in (f"> text {left} 1 answer data k:v 9 hello" for left in (999, 1000))


def test_a_kept_session(port: int, topic: str) -> None:
    kept = ("-V", "5", "-i", f"kept-{topic}", "-c", "-x", "100", "-q", "1", "-t", topic)
    words = [find_mosquitto("mosquitto_sub"), "-h", "127.0.0.1", "-p", str(port), "-E", *kept]
    subprocess.run(words, timeout=PATIENCE, check=True)
    publish(port, "-q", "1", "-t", topic, "-m", "waited")
    del words[words.index("-E")]
    again = subprocess.run([*words, "-C", "1"], capture_output=True, timeout=PATIENCE, check=True)
    assert again.stdout == b"waited\n"


def test_shared_subscription(port: int, topic: str) -> None:
    shared = ("-V", "5", "-q", "1", "-t", f"$share/group/{topic}/#", "-F", "> %p")
    with subscribed(port, 5, *shared) as first, subscribed(port, 5, *shared) as second:
        for number in range(10):
            publish(port, "-q", "1", "-t", f"{topic}/{number}", "-m", f"{number}")
        assert sorted(first.lines() + second.lines()) == [f"> {number}" for number in range(10)]


def test_sys_tree(port: int) -> None:
    with subscribed(port, 1, "-t", "$SYS/broker/version", "-F", "> %p") as sub:
        assert sub.lines()[0].startswith("> headwater")


@pytest.mark.parametrize("protocol", ["mqttv311", "mqttv50"])
def test_bridge(port: int, topic: str, tmp_path: Path, protocol: str) -> None:
    """With Mosquitto's default settings for bridges: it announces itself as one, and wants to publish its state."""
    settings = f"""allow_anonymous true
connection {secrets.token_hex(4)}
address 127.0.0.1:{port}
bridge_protocol_version {protocol}
restart_timeout 1
topic {topic}/out/# out 2
topic {topic}/in/# in 2
"""
    with running("mosquitto", tmp_path, settings) as theirs:
        with subscribed(port, 1, "-q", "2", "-t", topic + "/out/#", "-F", "> %t %q %p") as here:
            # Mosquitto keeps what its bridge has to send until the bridge is up.
            publish(theirs, "-q", "2", "-t", topic + "/out/x", "-m", "to us")
            assert here.lines() == [f"> {topic}/out/x 2 to us"]
        with subscribed(theirs, 1, "-q", "2", "-t", topic + "/in/#", "-F", "> %t %q %p") as there:
            publish(port, "-q", "2", "-t", topic + "/in/x", "-m", "to them")
            assert there.lines() == [f"> {topic}/in/x 2 to them"]
