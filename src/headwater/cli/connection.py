"""The options that pub and sub share: whom to connect to, as whom, and with which will."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import SplitResult, unquote, urlsplit

import typer

from headwater.cli.failure import GENERAL, fail
from headwater.cli.options import with_options

if TYPE_CHECKING:
    import ssl

    from headwater.client import Client, MqttError, Properties, Reconnect, Will

PropertyOptions = Annotated[
    list[str] | None,
    typer.Option("-D", "--property", metavar="COMMAND NAME VALUE", help="MQTT 5 property; may be repeated."),
]
Qos = Annotated[int, typer.Option("-q", "--qos", min=0, max=2, help="Quality of service.")]


@dataclass
class ConnectionOptions:
    """The options themselves, each declared once."""

    host: Annotated[str | None, typer.Option("-h", "--host", help="Broker to connect to.  [default: localhost]")] = None
    port: Annotated[
        int | None,
        typer.Option(
            "-p",
            "--port",
            min=1,
            max=65535,
            help="Its port.  [default: 1883, with TLS 8883; WebSocket: 80, with TLS 443]",
        ),
    ] = None
    unix: Annotated[str | None, typer.Option("--unix", help="Path of its Unix socket, in place of -h and -p.")] = None
    ws: Annotated[bool, typer.Option("--ws", help="Over WebSocket.")] = False
    ws_path: Annotated[str | None, typer.Option("--ws-path", help="Path of the WebSocket.  [default: /mqtt]")] = None
    url: Annotated[
        str | None,
        typer.Option(
            "-L",
            "--url",
            help="mqtt(s)://[user[:password]@]host[:port]/topic, ws(s)://…/path of the WebSocket, unix:/path",
        ),
    ] = None
    version: Annotated[str, typer.Option("-V", "--protocol-version", help="5 (or mqttv5), 311 (or mqttv311).")] = "5"
    username: Annotated[str | None, typer.Option("-u", "--username", help="User name.")] = None
    password: Annotated[str | None, typer.Option("-P", "--pw", help="Password.")] = None
    client_id: Annotated[str | None, typer.Option("-i", "--id", help="Without it the broker chooses one.")] = None
    id_prefix: Annotated[str | None, typer.Option("-I", "--id-prefix", help="Id: this and the process id.")] = None
    keep_alive: Annotated[int, typer.Option("-k", "--keepalive", min=0, max=65535, help="In seconds.")] = 60
    keep_session: Annotated[bool, typer.Option("-c", "--disable-clean-session", help="Keep the session; needs -i.")] = (
        False
    )
    session_expiry: Annotated[
        str | None,
        typer.Option("-x", "--session-expiry-interval", help="Seconds the session outlives us; -1: for ever (MQTT 5)."),
    ] = None
    will_topic: Annotated[str | None, typer.Option("--will-topic", help="Topic of the will.")] = None
    will_payload: Annotated[str | None, typer.Option("--will-payload", help="Payload of the will.")] = None
    will_qos: Annotated[int, typer.Option("--will-qos", min=0, max=2, help="QoS of the will.")] = 0
    will_retain: Annotated[bool, typer.Option("--will-retain", help="Retain the will.")] = False
    tls: Annotated[bool, typer.Option("--tls", help="TLS, with the certificates that the system trusts.")] = False
    cafile: Annotated[str | None, typer.Option("--cafile", help="TLS; trust the certificates in this file.")] = None
    cert: Annotated[str | None, typer.Option("--cert", help="TLS; our certificate.")] = None
    key: Annotated[str | None, typer.Option("--key", help="The key of our certificate.")] = None
    insecure: Annotated[bool, typer.Option("--insecure", help="TLS; the certificate may name another host.")] = False
    property_options: PropertyOptions = None
    debug: Annotated[bool, typer.Option("-d", "--debug", help="Show the packets.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no error messages.")] = False

    def make_client(
        self, properties: dict[str, Properties], *, max_inflight: int | None = None, reconnect: Reconnect | None = None
    ) -> Client:
        from headwater.client import Client

        version = protocol_version(self.version)
        target = self.target()
        client_id = self.client_id if self.id_prefix is None else f"{self.id_prefix}{os.getpid()}"
        if self.keep_session and not client_id:
            raise typer.BadParameter("-c needs a client id (-i), under which the session is kept.")
        if version != 5 and properties:
            raise typer.BadParameter("-D needs MQTT 5; leave out -V or give -V 5.")
        return Client(
            target.host,
            target.port,
            tls=self._tls_context(target) or False,
            transport=target.transport,
            websocket_path=target.web_path,
            client_id=client_id or "",
            version=version,
            username=target.user,
            password=target.password,
            clean_start=not self.keep_session,
            session_expiry=session_expiry(self.session_expiry, self.keep_session, version),
            keep_alive=self.keep_alive,
            will=self._will(properties.get("will")),
            properties=properties.get("connect"),
            max_inflight=max_inflight,
            reconnect=reconnect,
        )

    def target(self) -> Target:
        target = Target(self.url, self.host, self.port, self.username, self.password)
        if self.unix is not None:
            target.by_unix(self.unix)
        if self.ws or self.ws_path is not None:
            target.by_websocket(self.ws_path)
        if target.transport == "unix" and (self.host is not None or self.port is not None):
            raise typer.BadParameter("a Unix socket has no host (-h) and no port (-p).")
        return target

    @property
    def has_layers(self) -> bool:
        """Whether there is anything between MQTT and TCP."""
        target = self.target()
        return target.transport != "tcp" or self._asks_for_tls(target)

    def _asks_for_tls(self, target: Target) -> bool:
        return bool(self.tls or target.tls or self.cafile or self.cert or self.insecure)

    def _will(self, properties: Properties | None) -> Will | None:
        from headwater.client import Will

        if self.will_topic is not None:
            payload = (self.will_payload or "").encode()
            return Will(self.will_topic, payload, self.will_qos, self.will_retain, properties)
        if self.will_payload is not None or self.will_qos or self.will_retain or properties is not None:
            raise typer.BadParameter("a will needs a topic; give --will-topic.")
        return None

    def _tls_context(self, target: Target) -> ssl.SSLContext | None:
        if not self._asks_for_tls(target):
            if self.key:
                raise typer.BadParameter("--key needs --cert, the certificate that it belongs to.")
            return None
        if target.transport == "unix":
            raise typer.BadParameter("TLS on a Unix socket is not supported.")
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.cafile)
            if self.cert:
                context.load_cert_chain(self.cert, self.key)
        except OSError as error:  # ssl.SSLError is one
            raise typer.BadParameter(f"--cafile, --cert, --key: {self._wrong_file() or error}.") from None
        context.check_hostname = not self.insecure
        return context

    def _wrong_file(self) -> str:
        """Which file cannot be used, and why; OpenSSL itself does not say."""
        import ssl

        from headwater.node.transports.contexts import CertificateError, load_certificate, load_into

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if self.cafile:
                load_into(context, self.cafile, "certificate")
            if self.cert:
                load_certificate(context, self.cert, self.key or self.cert)
        except CertificateError as error:
            return str(error)
        return ""


with_connection_options = with_options(ConnectionOptions, "connection")


FOR_EVER: Final = 0xFFFFFFFF
SCHEMES: Final = ("mqtt", "mqtts", "ws", "wss")
WEB_PATH: Final = "/mqtt"
VERSIONS: Final = {"5": 5, "mqttv5": 5, "311": 4, "mqttv311": 4}


class Target:
    """Where the broker is, how to get there, and credentials, from the URL if there is one; single options win over it.

    The path of an mqtt URL is a topic, that of a ws URL the WebSocket's, that of a unix URL the socket's."""

    def __init__(self, url: str | None, host: str | None, port: int | None, user: str | None, pw: str | None) -> None:
        self.topic = ""
        self.transport: Literal["tcp", "websocket", "unix"] = "tcp"
        self.web_path = WEB_PATH
        parts = urlsplit(url or "")
        self.host = host or parts.hostname or "localhost"
        if url is not None and not self._follow(parts):
            raise typer.BadParameter(
                "-L needs a URL such as mqtt://localhost:1883/topic or ws://localhost/mqtt (with TLS mqtts, wss), "
                "or unix:/run/mqtt.sock."
            )
        try:
            self.port = port or parts.port
        except ValueError as error:
            raise typer.BadParameter(f"-L: {error}.") from None
        self.tls = parts.scheme in ("mqtts", "wss")
        self.user = user if user is not None else (unquote(parts.username) if parts.username else None)
        self.password = pw if pw is not None else (unquote(parts.password) if parts.password else None)

    def _follow(self, parts: SplitResult) -> bool:
        """What the scheme says; False: it is none that we know, or something is missing."""
        if parts.scheme == "unix":
            self.by_unix(unquote(parts.path))
            return bool(parts.path) and not parts.netloc
        if parts.scheme in ("ws", "wss"):
            self.by_websocket(f"{parts.path}?{parts.query}" if parts.query else parts.path or None)
        else:
            self.topic = unquote(parts.path.removeprefix("/"))
        return parts.scheme in SCHEMES and bool(parts.hostname)

    def by_unix(self, path: str) -> None:
        self.transport = "unix"
        self.host = path

    def by_websocket(self, path: str | None) -> None:
        if self.transport == "unix":
            raise typer.BadParameter("WebSocket on a Unix socket is not supported.")
        self.transport = "websocket"
        self.web_path = path or self.web_path


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


def run(command: str, work: Coroutine[Any, Any, int], connection: ConnectionOptions) -> int:
    """Do the work of a command; what it raises becomes one sentence and mosquitto's exit status."""
    from headwater.client import ConnectError, MqttError
    from headwater.wire.errors import LocalProtocolError

    quiet, version = connection.quiet, protocol_version(connection.version)
    if connection.debug:
        logging.basicConfig(level=logging.DEBUG, format="%(message)s", stream=sys.stderr)
        logging.getLogger("asyncio").setLevel(logging.WARNING)
    else:  # a lost connection, which is tried again
        level = logging.CRITICAL if quiet else logging.WARNING
        logging.basicConfig(level=level, format=f"headwater {command}: %(message)s.", stream=sys.stderr)
    try:
        return asyncio.run(work)
    except ConnectError as error:
        hint = advice(error, connection)
        fail(command, f"{error}{hint}.", exit_status(error, version), quiet=quiet)
    except MqttError as error:
        fail(command, f"{error}.", quiet=quiet)
    except LocalProtocolError as error:
        fail(command, f"MQTT does not allow this: {error}.", quiet=quiet)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def advice(error: MqttError, connection: ConnectionOptions) -> str:
    """What to try after a refused connection."""
    from headwater.client import Disconnected
    from headwater.wire import reasons

    if error.reason is None and isinstance(error.__cause__, Disconnected) and not connection.has_layers:
        return " before it was answered; perhaps TLS (--cafile, --tls) or WebSocket (--ws) is spoken there"
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
