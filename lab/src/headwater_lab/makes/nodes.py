"""Each make as one broker on a free port of loopback, with its data in a folder, so that it can be killed and started
again where it was.

Debian has Mosquitto, NATS and RabbitMQ. `scripts/makes` installs aedes and amqtt, with the versions that it names, into
`.makes` of the folder in which tests run; HEADWATER_MAKES says another one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headwater.fleet.process import BrokerError, free_port
from headwater_lab.check_broker.contestants import (
    PERSISTENT,
    Node,
    make_folder,
    one_headwater,
    one_mosquitto,
    one_rabbitmq,
    program,
)

INSTALLED: Final = Path(os.environ.get("HEADWATER_MAKES", ".makes"))


@dataclass(frozen=True)
class Make:
    """`version` is a command that tells it. `features` are those by which tests of fabrics choose; docs/brokers.md has
    what was seen."""

    name: str
    about: str
    make: Callable[[Path], list[Node]]
    version: str
    needs: Callable[[], str]
    """Raises BrokerError if the machine lacks it."""
    features: frozenset[str] = frozenset()


_NATS: Final = """\
server_name: one
listen: "127.0.0.1:{client}"
jetstream {{ store_dir: "{folder}/js" }}
mqtt {{ host: "127.0.0.1", port: {mqtt} }}
"""

_AEDES: Final = """\
const net = require('net')
const broker = require(process.argv[1])()
for (const event of ['clientError', 'connectionError']) {
  broker.on(event, (client, error) => console.log(event, client && client.id, error.message))
}
net.createServer({ noDelay: true }, broker.handle).listen(Number(process.argv[2]), '127.0.0.1')
"""

_AMQTT: Final = """\
listeners:
  default:
    type: tcp
    bind: 127.0.0.1:{port}
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin:
    allow_anonymous: true
"""


def one_nats(folder: Path) -> list[Node]:
    own, mqtt = make_folder(folder, "a"), free_port()
    file = own / "nats.conf"
    file.write_text(_NATS.format(client=free_port(), folder=own, mqtt=mqtt))
    return [Node(own, mqtt, [program("nats-server", "nats-server"), "-c", str(file)])]


def one_aedes(folder: Path) -> list[Node]:
    own, port = make_folder(folder, "a"), free_port()
    return [Node(own, port, [program("node", "nodejs"), "-e", _AEDES, _aedes(), str(port)])]


def one_amqtt(folder: Path) -> list[Node]:
    own, port = make_folder(folder, "a"), free_port()
    file = own / "amqtt.yaml"
    file.write_text(_AMQTT.format(port=port))
    return [Node(own, port, [_amqtt(), "-c", str(file)])]


def _aedes() -> str:
    folder = (INSTALLED / "aedes/node_modules/aedes").resolve()
    if not folder.exists():
        raise BrokerError("aedes is not installed (scripts/makes installs it)")
    return str(folder)


def _amqtt() -> str:
    found = (INSTALLED / "amqtt/bin/amqtt").absolute()
    if not found.exists():
        raise BrokerError("amqtt is not installed (scripts/makes installs it)")
    return str(found)


MAKES: Final = (
    Make(
        "mosquitto",
        "persistence true, as in Debian's configuration",
        one_mosquitto(PERSISTENT),
        "mosquitto -h",
        lambda: program("mosquitto", "mosquitto"),
        frozenset({"mqtt5", "qos2", "retained", "persistence"}),
    ),
    Make(
        "nats",
        "JetStream with file storage, which its MQTT needs",
        one_nats,
        "nats-server --version",
        lambda: program("nats-server", "nats-server"),
        frozenset({"retained", "persistence"}),
    ),
    Make(
        "rabbitmq",
        "plugin rabbitmq_mqtt",
        one_rabbitmq,
        "dpkg-query -W -f ${Version} rabbitmq-server",
        lambda: program("rabbitmq-server", "rabbitmq-server"),
        frozenset({"retained", "persistence"}),
    ),
    Make("aedes", "in memory, its default", one_aedes, "", _aedes, frozenset({"qos2", "retained"})),
    Make("amqtt", "in memory, its default", one_amqtt, "", _amqtt, frozenset({"qos2", "retained"})),
    Make(
        "headwater",
        "data_dir",
        one_headwater,
        "",
        lambda: shutil.which("python3") or "",
        frozenset({"mqtt5", "qos2", "retained", "persistence"}),
    ),
)
