"""The command as people use it: in a process of its own, against our broker and a strange one."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from typer.testing import CliRunner

from headwater.cli.app import app
from headwater.cli.properties import SEPARATOR, gather_properties
from tests.brokers import PATIENCE, both_brokers, find_mosquitto, free_port, running, wait_until_listening

COMMAND = [sys.executable, "-m", "headwater"]


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running(request.param, tmp_path_factory.mktemp("broker")) as port:
        yield port


@pytest.fixture
def topic() -> str:
    return f"test/{secrets.token_hex(6)}"


def headwater(*arguments: object, input: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, input=input, capture_output=True, timeout=PATIENCE, check=False)


def pub(*arguments: object, input: bytes = b"") -> None:
    done = headwater("pub", *arguments, input=input)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def sub(*arguments: object) -> bytes:
    done = headwater("sub", *arguments)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


class Subscribed:
    """`with Subscribed(…)`: `headwater sub` that the broker has already subscribed; -d says when."""

    def __init__(self, *arguments: object) -> None:
        command = [*COMMAND, "sub", "-d", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.log = b""
        self._has_grown = threading.Condition()
        self._reader = threading.Thread(target=self._read_log)

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._has_grown:
                self.log += line
                self._has_grown.notify()

    def wait_for(self, word: bytes, times: int = 1) -> None:
        with self._has_grown:
            assert self._has_grown.wait_for(lambda: self.log.count(word) >= times, PATIENCE), self.log

    def __enter__(self) -> Self:
        self._reader.start()
        self.wait_for(b"received SUBACK")
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self._reader.join()
        self.process.communicate()

    def output(self) -> bytes:
        """What it printed until it left, which it must do by itself and without an error."""
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            printed = stream.read()
        assert self.process.wait(PATIENCE) == 0
        return printed


def failure(*arguments: object) -> tuple[int, str]:
    """Status and message of a command that fails; a traceback is never what users get."""
    done = headwater(*arguments)
    assert done.returncode != 0
    assert b"Traceback" not in done.stderr
    return done.returncode, done.stderr.decode().strip()


@both_brokers
@pytest.mark.parametrize("version", ["5", "mqttv311"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_goes_round(broker: int, topic: str, version: str, qos: int) -> None:
    with Subscribed("-p", broker, "-t", topic, "-q", 2, "-C", 1, "-F", "%t %q %r %p", "-V", version) as subscriber:
        pub("-p", broker, "-t", topic, "-m", "grüße", "-q", qos, "-V", version)
        assert subscriber.output().decode() == f"{topic} {qos} 0 grüße\n"


@both_brokers
def test_payloads_from_everywhere(broker: int, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"\x00\xfffile\n")
    with Subscribed("-p", broker, "-t", f"{topic}/#", "-q", 1, "-C", 7, "-F", "%l:%p|", "-N") as subscriber:
        to_topic = ["-p", broker, "-t", f"{topic}/x", "-q", 1]
        pub(*to_topic, "-f", file)
        pub(*to_topic, "-s", input=b"two\nlines\n")
        pub(*to_topic, "-l", input=b"one\n\nlast")
        pub(*to_topic, "-n")
        pub("-L", f"mqtt://127.0.0.1:{broker}/{topic}/x", "-q", 1, "-m", "url")
        assert subscriber.output() == b"7:\x00\xfffile\n|10:two\nlines\n|3:one|0:|4:last|0:|3:url|"


@both_brokers
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_many_lines_keep_their_order(broker: int, topic: str, qos: int) -> None:
    """Fewer than the thousand that Mosquitto keeps for a slow reader."""
    lines = b"".join(b"%d\n" % number for number in range(900))
    with Subscribed("-p", broker, "-t", topic, "-q", qos, "-C", 900) as subscriber:
        pub("-p", broker, "-t", topic, "-l", "-q", qos, input=lines)
        assert subscriber.output() == lines


@both_brokers
def test_retained_messages(broker: int, topic: str) -> None:
    pub("-p", broker, "-t", topic, "-m", "kept", "-r", "-q", 1)
    here = ["-p", broker, "-t", topic]
    assert sub(*here, "-C", 1, "-v") == f"{topic} kept\n".encode()
    assert sub(*here, "-C", 1, "--remove-retained") == b"kept\n"
    assert headwater("sub", *here, "-W", 0.3).stdout == b""
    pub("-p", broker, "-t", topic, "-m", "again", "-r", "-q", 1)
    with Subscribed(*here, "-R", "-C", 1) as subscriber:
        pub("-p", broker, "-t", topic, "-m", "fresh", "-q", 1)
        assert subscriber.output() == b"fresh\n"
    with Subscribed(*here, "--retained-only") as subscriber:
        pub("-p", broker, "-t", topic, "-m", "ends it", "-q", 1)
        assert subscriber.output() == b"again\n"


@both_brokers
def test_properties_and_json(broker: int, topic: str) -> None:
    properties = ["-D", "publish", "content-type", "text/x", "-D", "PUBLISH", "user-property", "k", "v 1"]
    properties += ["-D", "publish", "user-property", "k", "v 2", "-D", "publish", "correlation-data", "cd"]
    pub("-p", broker, "-t", topic, "-m", '{"a": 1}', "-r", "-q", 1, *properties)
    printed = sub("-p", broker, "-t", topic, "-C", 1, "-F", "%J", "-D", "subscribe", "subscription-identifier", "7")
    message = json.loads(printed)
    assert message.pop("tst")
    assert message == {
        "topic": topic,
        "qos": 0,
        "retain": 1,
        "payloadlen": 8,
        "properties": {
            "subscription-identifier": 7,
            "user-properties": {"k": ["v 1", "v 2"]},
            "content-type": "text/x",
            "correlation-data": "cd",
        },
        "payload": {"a": 1},
    }
    pieces = ["%x", "%X", "%C", "%D", "%P", "%S", "%j", "%%", "@@", r"\t"]
    printed = sub("-p", broker, "-t", topic, "-C", 1, "-F", " | ".join(pieces))
    hexed, upper, content_type, data, users, identifiers, as_json, *rest = printed.decode().split(" | ")
    assert (hexed, upper) == (b'{"a": 1}'.hex(), b'{"a": 1}'.hex().upper())
    assert (content_type, data, users, identifiers) == ("text/x", "cd", "k:v 1 k:v 2", "")
    assert json.loads(as_json)["payload"] == '{"a": 1}'
    assert rest == ["%", "@", "\t\n"]


@both_brokers
def test_filter_out_and_several_topics(broker: int, topic: str) -> None:
    filters = ["-t", f"{topic}/a/#", "-t", f"{topic}/b/#", "-T", f"{topic}/+/not"]
    with Subscribed("-p", broker, *filters, "-q", 1, "-C", 2) as subscriber:
        for name in ("a/not", "a/yes", "c/yes", "b/not", "b/yes"):
            pub("-p", broker, "-t", f"{topic}/{name}", "-m", name, "-q", 1)
        assert subscriber.output() == b"a/yes\nb/yes\n"


@both_brokers
@pytest.mark.parametrize("version", ["5", "311"])
def test_a_kept_session(broker: int, topic: str, version: str) -> None:
    session = ["-p", broker, "-V", version, "-i", topic.replace("/", ""), "-c", "-q", 1]
    assert sub(*session, "-t", topic, "-E") == b""
    pub("-p", broker, "-t", topic, "-m", "kept for you", "-q", 1)
    assert sub(*session, "-t", topic, "-C", 1) == b"kept for you\n"
    assert headwater("sub", *session, "-U", topic, "-W", 0.3).returncode == 27
    pub("-p", broker, "-t", topic, "-m", "not for you", "-q", 1)
    assert headwater("sub", *session, "-t", f"{topic}/other", "-W", 0.3).stdout == b""


@both_brokers
def test_repeat_and_will(broker: int, topic: str) -> None:
    with Subscribed("-p", broker, "-t", topic, "-C", 4) as subscriber:
        pub("-p", broker, "-t", topic, "-m", "again", "--repeat", 3, "--repeat-delay", 0.01)
        will = ["--will-topic", topic, "--will-payload", "gone", "--will-qos", 1]
        with Subscribed("-p", broker, "-t", f"{topic}/nothing", *will) as dying:
            dying.process.kill()
        assert subscriber.output() == b"again\nagain\nagain\ngone\n"


@both_brokers
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_sub_leaves_in_good_order_when_told_to(broker: int, topic: str, number: signal.Signals) -> None:
    with Subscribed("-p", broker, "-t", topic) as subscriber:
        subscriber.process.send_signal(number)
        assert subscriber.output() == b""
    assert b"sending DISCONNECT" in subscriber.log


@both_brokers
def test_sub_into_a_pipe_that_is_closed(broker: int, topic: str) -> None:
    with Subscribed("-p", broker, "-t", topic, "-q", 1) as subscriber:
        assert subscriber.process.stdout is not None
        subscriber.process.stdout.close()
        pub("-p", broker, "-t", topic, "-m", "nobody reads this", "-q", 1)
        assert subscriber.process.wait(PATIENCE) == 0
    assert b"Error" not in subscriber.log


@both_brokers
def test_time_out(broker: int, topic: str) -> None:
    assert failure("sub", "-p", broker, "-t", topic, "-W", 0.2) == (27, "headwater sub: timed out after 0.2 seconds.")
    assert failure("sub", "-p", broker, "-t", topic, "-W", 0.2, "--quiet") == (27, "")


@both_brokers
def test_strange_tools_understand_ours(broker: int, topic: str) -> None:
    pub("-p", broker, "-t", topic, "-m", "to a stranger", "-r", "-q", 1)
    theirs = [find_mosquitto("mosquitto_sub"), "-p", str(broker), "-t", topic, "-C", "1", "-W", "10"]
    assert subprocess.run(theirs, capture_output=True, check=True).stdout == b"to a stranger\n"
    theirs = [find_mosquitto("mosquitto_pub"), "-p", str(broker), "-t", topic, "-m", "from a stranger", "-r", "-q", "1"]
    subprocess.run(theirs, check=True)
    assert sub("-p", broker, "-t", topic, "-C", 1) == b"from a stranger\n"


def test_a_broker_that_refuses(tmp_path: Path) -> None:
    passwords, rights = tmp_path / "passwords", tmp_path / "rights"
    passwords.touch()
    rights.write_text("user me\ntopic readwrite mine/#\n")
    subprocess.run([find_mosquitto("mosquitto_passwd"), "-b", passwords, "me", "secret"], check=True)
    settings = f"allow_anonymous false\npassword_file {passwords}\nacl_file {rights}"
    with running("mosquitto", tmp_path, settings) as port:
        advice = "not authorized; check the user name (-u) and the password (-P)."
        for version, status in ((5, 135), (311, 5)):
            for command in (["pub", "-m", "x"], ["sub"]):
                code, text = failure(*command, "-p", port, "-t", "mine/a", "-V", version)
                assert (code, text) == (
                    status,
                    f"headwater {command[0]}: localhost:{port} refused the connection: {advice}",
                )
        me = ["-p", port, "-u", "me", "-P", "secret", "-m", "x", "-q", 1]
        pub("-t", "mine/a", *me)
        code, text = failure("pub", "-t", "not/mine", *me)
        assert (code, text) == (135, "headwater pub: the server did not take the message: not authorized.")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ("pub -t a", 2, "exactly one of -m, -f, -l, -n and -s"),
        ("pub -t a -m x -n", 2, "exactly one of"),
        ("pub -m x", 2, "a topic is missing; give -t"),
        ("pub -t a -f /does/not/exist", 1, "cannot read /does/not/exist: No such file or directory."),
        ("pub -t a -m x -V 31", 2, "-V is one of 5, mqttv5, 311, mqttv311, not '31'"),
        ("pub -t a -m x -q 3", 2, "'-q'"),
        ("pub -t a -m x -p 99999", 2, "'-p' / '--port'"),
        ("sub -t a -p 0", 2, "'-p' / '--port'"),
        ("pub -t a -m x -h no..name", 1, "cannot connect to no..name:1883: the host name is not known."),
        ("pub -t a -m x -x 5 -V 311", 2, "-x needs MQTT 5"),
        ("pub -t a -m x -x soon", 2, "-x is a number of seconds"),
        ("pub -t a -m x -c", 2, "-c needs a client id (-i)"),
        ("pub -t a -m x --will-payload y", 2, "give --will-topic"),
        ("pub -t a -m x -L http://localhost/a", 2, "-L needs a URL such as mqtt://"),
        ("pub -t a -m x -L ws:///mqtt", 2, "-L needs a URL such as mqtt://"),
        ("pub -t a -m x -L unix:", 2, "-L needs a URL such as mqtt://"),
        ("pub -t a -m x -L unix://run/mqtt.sock", 2, "-L needs a URL such as mqtt://"),
        ("pub -t a -m x -L unix:/run/mqtt.sock -p 1883", 2, "a Unix socket has no host (-h) and no port (-p)"),
        ("pub -t a -m x --unix /run/mqtt.sock -h localhost", 2, "a Unix socket has no host (-h) and no port (-p)"),
        ("pub -t a -m x --unix /run/mqtt.sock --ws", 2, "WebSocket on a Unix socket is not supported"),
        ("pub -t a -m x --unix /run/mqtt.sock --tls", 2, "TLS on a Unix socket is not supported"),
        ("sub -L ws://localhost/a", 2, "a topic filter is missing; give -t"),
        ("pub -t a -m x --key /does/not/exist", 2, "--key needs --cert"),
        (
            "pub -t a -m x --cafile /does/not/exist",
            2,
            "--key: cannot read /does/not/exist: No such file",
        ),
        ("sub -t a --cert /does/not/exist", 2, "--key: cannot read /does/not/exist: No such file"),
        ("pub -t a -m x -D publish", 2, "-D needs a command, the name of a property and its value"),
        ("pub -t a -m x -D post content-type y", 2, "-D needs one of connect, publish"),
        ("pub -t a -m x -D publish colour red", 2, "unknown property 'colour'; there are "),
        ("pub -t a -m x -D publish topic-alias one", 2, "property topic-alias is a whole number, not 'one'"),
        ("pub -t a -m x -D publish user-property k", 2, "needs a name and a value"),
        ("pub -t a -m x -D publish content-type y -V 311", 2, "-D needs MQTT 5"),
        ("sub", 2, "a topic filter is missing; give -t"),
        ("sub -t a/b#", 2, "'a/b#' is not a topic filter"),
        ("sub -t a -R --retained-only", 2, "leave nothing to print"),
        ("sub -t a -F %y", 2, "there is no %y"),
        ("sub -t a -F @", 2, "a letter is missing after the last @"),
        ("pub -t a -m x --cafile /dev/null", 2, "/dev/null holds no certificate"),
        ("broker --set admin.enabled=true", 1, "setting 'admin': the admin API needs either"),
        ("broker --port 123456", 1, "port"),
        ("broker --config /does/not/exist", 1, "cannot read /does/not/exist"),
        ("broker --log-level loud", 2, "--log-level"),
        ("nonsense", 2, "nonsense"),
    ],
)
def test_mistakes_are_explained(arguments: str, status: int, words: str) -> None:
    result = CliRunner().invoke(app, gather_properties(arguments.split()))
    assert result.exit_code == status
    assert words in " ".join(result.stderr.split())


def test_a_wrong_topic_is_explained_when_connected(tmp_path: Path) -> None:
    with running("headwater", tmp_path) as port:
        code, text = failure("pub", "-p", port, "-t", "a/#", "-m", "x")
        assert (code, text) == (1, "headwater pub: MQTT does not allow this: 'a/#' is not a topic name.")
        code, text = failure("pub", "-p", port, "-t", "a", "-m", "x", "-D", "publish", "receive-maximum", 5)
        assert code == 1
        assert "MQTT does not allow this" in text


@pytest.mark.parametrize("qos", [0, 1])
def test_a_connection_that_is_lost(tmp_path: Path, qos: int) -> None:
    """In the middle of many messages: one sentence all the same."""
    with running("headwater", tmp_path) as port:
        command = [*COMMAND, "pub", "-p", str(port), "-t", "a", "-l", "-q", str(qos)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        with Subscribed("-p", port, "-t", "a", "-C", 1) as subscriber:
            assert process.stdin is not None
            process.stdin.write(b"line\n" * 5000)
            process.stdin.flush()
            subscriber.output()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(b"line\n" * 5000)
        process.stdin.flush()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdin = None
    _, text = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert text.decode() == "headwater pub: the server ended the connection: server shutting down.\n"


def test_sub_connects_again(tmp_path: Path) -> None:
    """A broker that has forgotten everything is told the subscription again."""
    port = free_port()
    command = [*COMMAND, "broker", "--port", str(port)]
    arguments = ["-p", port, "-h", "127.0.0.1", "-t", "a", "-q", 1, "-C", 2]

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until_listening(process, port)
        return process

    broker = start()
    try:
        with Subscribed(*arguments) as subscriber:
            pub("-p", port, "-t", "a", "-m", "before", "-q", 1)
            broker.kill()
            broker.wait(PATIENCE)
            broker = start()
            subscriber.wait_for(b"received SUBACK", 2)
            pub("-p", port, "-t", "a", "-m", "after", "-q", 1)
            assert subscriber.output() == b"before\nafter\n"
        assert b"the connection was lost; connecting again in" in subscriber.log
    finally:
        broker.kill()
        broker.wait(PATIENCE)


def test_nobody_listens() -> None:
    port = free_port()
    code, text = failure("sub", "-h", "127.0.0.1", "-p", port, "-t", "a")
    assert (code, text) == (
        1,
        f"headwater sub: cannot connect to 127.0.0.1:{port}: nobody listens there (is a broker running?).",
    )


def test_version() -> None:
    done = headwater("version")
    assert done.returncode == 0
    assert done.stdout.decode().startswith("headwater 0.")
    assert headwater("--version").stdout == done.stdout


def test_properties_are_gathered_before_options_are_parsed() -> None:
    joined = SEPARATOR.join
    assert gather_properties(["pub", "-D", "publish", "topic-alias", "1", "-t", "a"]) == [
        *("pub", "-D", joined(["publish", "topic-alias", "1"]), "-t", "a")
    ]
    assert gather_properties(["--property", "connect", "user-property", "-D", "-D", "-r"]) == [
        *("--property", joined(["connect", "user-property", "-D", "-D"]), "-r")
    ]
    assert gather_properties(["-D", "publish"]) == ["-D", "publish"]
    assert gather_properties(["--", "-D", "a", "b", "c"]) == ["--", "-D", "a", "b", "c"]


def test_a_plain_broker_loads_neither_client_nor_heavy_parts() -> None:
    port = free_port()
    program = (
        "import atexit, sys; from headwater.cli import main; "
        "atexit.register(lambda: print(*sys.modules, sep='\\n')); "
        f"sys.argv = ['headwater', 'broker', '--port', '{port}']; main()"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with process:
        assert process.stderr is not None
        while b"listening" not in (line := process.stderr.readline()):
            assert line
        process.terminate()
        output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    modules = set(output.decode().split())
    assert "headwater.node.broker" in modules
    heavy = {"headwater.client", "rich", "fastapi", "rocksdict", "pyspark", "numpy"}
    assert modules & heavy == set()


def test_the_live_view_is_shown_on_a_terminal() -> None:
    leader, follower = os.openpty()
    command = [*COMMAND, "broker", "--port", str(free_port()), "--live"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    with process:
        try:
            seen = b""
            until = time.monotonic() + PATIENCE
            while seen.count(b"connections") < 3 and time.monotonic() < until:
                seen += os.read(leader, 65536)
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            os.close(leader)
    for word in (b"connections", b"subscriptions", b"messages/s"):
        assert word in seen
