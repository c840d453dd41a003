"""The options that pub and sub share: whom to connect to, as whom, and with which will."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import unquote, urlsplit

import typer

from headwater.cli.failure import GENERAL, fail

if TYPE_CHECKING:
    from headwater.client import Client, MqttError, Properties

Host = Annotated[str | None, typer.Option("-h", "--host", help="Broker to connect to.  [default: localhost]")]
Port = Annotated[int | None, typer.Option("-p", "--port", help="Its TCP port.  [default: 1883]")]
Url = Annotated[str | None, typer.Option("-L", "--url", help="All in one: mqtt://[user[:password]@]host[:port]/topic")]
Qos = Annotated[int, typer.Option("-q", "--qos", min=0, max=2, help="Quality of service.")]
Version = Annotated[str, typer.Option("-V", "--protocol-version", help="5 (or mqttv5), 311 (or mqttv311).")]
Username = Annotated[str | None, typer.Option("-u", "--username", help="User name.")]
Password = Annotated[str | None, typer.Option("-P", "--pw", help="Password.")]
ClientId = Annotated[str | None, typer.Option("-i", "--id", help="Client id; without it the broker chooses one.")]
IdPrefix = Annotated[str | None, typer.Option("-I", "--id-prefix", help="Client id: this and the process id.")]
KeepAlive = Annotated[int, typer.Option("-k", "--keepalive", min=0, max=65535, help="Keep alive in seconds.")]
KeepSession = Annotated[bool, typer.Option("-c", "--disable-clean-session", help="Keep the session; needs -i.")]
SessionExpiry = Annotated[
    str | None,
    typer.Option("-x", "--session-expiry-interval", help="Seconds the session outlives us; -1: for ever (MQTT 5)."),
]
WillTopic = Annotated[str | None, typer.Option("--will-topic", help="Topic of the will.")]
WillPayload = Annotated[str | None, typer.Option("--will-payload", help="Payload of the will.")]
WillQos = Annotated[int, typer.Option("--will-qos", min=0, max=2, help="QoS of the will.")]
WillRetain = Annotated[bool, typer.Option("--will-retain", help="Retain the will.")]
PropertyOptions = Annotated[
    list[str] | None,
    typer.Option("-D", "--property", metavar="COMMAND NAME VALUE", help="MQTT 5 property; may be repeated."),
]
Debug = Annotated[bool, typer.Option("-d", "--debug", help="Show the packets.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no error messages.")]

FOR_EVER: Final = 0xFFFFFFFF
VERSIONS: Final = {"5": 5, "mqttv5": 5, "311": 4, "mqttv311": 4}


class Target:
    """Host, port and credentials, from the URL if there is one; single options win over it."""

    def __init__(self, url: str | None, host: str | None, port: int | None, user: str | None, pw: str | None) -> None:
        self.topic = ""
        parts = urlsplit(url or "")
        if url is not None:
            if parts.scheme != "mqtt" or not parts.hostname:
                raise typer.BadParameter("-L needs a URL such as mqtt://localhost:1883/topic (mqtts is not supported).")
            self.topic = unquote(parts.path.removeprefix("/"))
        try:
            self.port = port or parts.port or 1883
        except ValueError as error:
            raise typer.BadParameter(f"-L: {error}.") from None
        self.host = host or parts.hostname or "localhost"
        self.user = user if user is not None else (unquote(parts.username) if parts.username else None)
        self.password = pw if pw is not None else (unquote(parts.password) if parts.password else None)


def protocol_version(text: str) -> int:
    if text.lower() not in VERSIONS:
        raise typer.BadParameter(f"-V is one of {', '.join(VERSIONS)}, not {text!r}.")
    return VERSIONS[text.lower()]


def session_expiry(text: str | None, keep_session: bool, version: int) -> int | None:
    """With -c alone the session never expires, as it does not in MQTT 3.1.1."""
    if version != 5:
        if text is not None:
            raise typer.BadParameter("-x needs MQTT 5; leave out -V or give -V 5.")
        return None
    if text is None:
        return FOR_EVER if keep_session else None
    try:
        seconds = FOR_EVER if text in ("-1", "∞") else int(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= FOR_EVER:
        raise typer.BadParameter(f"-x is a number of seconds up to {FOR_EVER}, or -1 for ever, not {text!r}.")
    return seconds


def make_client(
    target: Target,
    version: int,
    properties: dict[str, Properties],
    *,
    client_id: str | None,
    id_prefix: str | None,
    keep_alive: int,
    keep_session: bool,
    expiry: str | None,
    will_topic: str | None,
    will_payload: str | None,
    will_qos: int,
    will_retain: bool,
    max_inflight: int | None = None,
) -> Client:
    import os

    from headwater.client import Client, Will

    if id_prefix is not None:
        client_id = f"{id_prefix}{os.getpid()}"
    if keep_session and not client_id:
        raise typer.BadParameter("-c needs a client id (-i), under which the session is kept.")
    if will_topic is None and (will_payload is not None or will_qos or will_retain or "will" in properties):
        raise typer.BadParameter("a will needs a topic; give --will-topic.")
    if version != 5 and properties:
        raise typer.BadParameter("-D needs MQTT 5; leave out -V or give -V 5.")
    will = None
    if will_topic is not None:
        will = Will(will_topic, (will_payload or "").encode(), will_qos, will_retain, properties.get("will"))
    return Client(
        target.host,
        target.port,
        client_id=client_id or "",
        version=version,
        username=target.user,
        password=target.password,
        clean_start=not keep_session,
        session_expiry=session_expiry(expiry, keep_session, version),
        keep_alive=keep_alive,
        will=will,
        properties=properties.get("connect"),
        max_inflight=max_inflight,
    )


def run(command: str, work: Coroutine[Any, Any, int], *, debug: bool, quiet: bool, version: int) -> int:
    """Do the work of a command; what it raises becomes one sentence and mosquitto's exit status."""
    from headwater.client import ConnectError, MqttError
    from headwater.wire.errors import LocalProtocolError

    if debug:
        logging.basicConfig(level=logging.DEBUG, format="%(message)s", stream=sys.stderr)
        logging.getLogger("asyncio").setLevel(logging.WARNING)
    try:
        return asyncio.run(work)
    except ConnectError as error:
        fail(command, f"{error}{advice(error)}.", exit_status(error, version), quiet=quiet)
    except MqttError as error:
        fail(command, f"{error}.", quiet=quiet)
    except LocalProtocolError as error:
        fail(command, f"MQTT does not allow this: {error}.", quiet=quiet)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def advice(error: MqttError) -> str:
    """What to try after a refused connection."""
    from headwater.wire import reasons

    if error.reason in (reasons.BAD_USER_NAME_OR_PASSWORD, reasons.NOT_AUTHORIZED):
        return "; check the user name (-u) and the password (-P)"
    if error.reason == reasons.UNSUPPORTED_PROTOCOL_VERSION:
        return "; try another version (-V 311 or -V 5)"
    if error.reason == reasons.CLIENT_IDENTIFIER_NOT_VALID:
        return "; try another client id (-i)"
    return ""


def exit_status(error: MqttError, version: int) -> int:
    """Of a refused connection: the code that the broker sent."""
    from headwater.wire.reasons import CONNACK_311

    if error.reason is None:
        return GENERAL
    return error.reason if version == 5 else CONNACK_311[error.reason]


def on_signals(act: Callable[[], object]) -> None:
    """Leave in good order when asked to."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, act)
