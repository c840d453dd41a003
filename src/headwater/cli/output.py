"""How `headwater sub` prints a message: the payload, topic and payload (-v), or a format (-F) as mosquitto_sub's.

A format is compiled once into pieces, bytes or functions of the message; so a mistake in it shows before connecting.

    %t topic        %p payload          %x %X payload in hex    %l its length
    %q QoS          %r retain flag      %m packet id            %j %J all as JSON (J: the payload is JSON too)
    %I time         %U seconds since 1970                       @c what strftime makes of %c; @@ is @
    %A topic alias  %C content type     %D correlation data     %E expiry interval      %F payload format
    %P user properties                  %R response topic       %S subscription identifiers
    %% a percent sign                   \\n \\r \\t \\a \\e \\0 \\\\ as usual
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any, Final

import typer

from headwater.client import Message, Properties

Piece = Callable[[Message], bytes]

ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "a": b"\a", "e": b"\x1b", "0": b"\0", "\\": b"\\"}

JSON_NAMES: Final = {
    "content_type": "content-type",
    "correlation_data": "correlation-data",
    "response_topic": "response-topic",
    "payload_format_indicator": "payload-format-indicator",
    "message_expiry_interval": "message-expiry-interval",
    "topic_alias": "topic-alias",
}


def compile_format(format: str, *, pretty: bool = False) -> Piece:
    """A function from a message to what is printed for it; raises BadParameter if the format is wrong."""
    pieces: list[bytes | Piece] = []
    rest = iter(format)
    for character in rest:
        if character == "%":
            pieces.append(_specifier(next(rest, ""), pretty))
        elif character == "@":
            pieces.append(_time_piece(next(rest, "")))
        elif character == "\\":
            follower = next(rest, "")
            pieces.append(ESCAPES.get(follower, b"\\" + follower.encode()))
        else:
            pieces.append(character.encode())
    return lambda message: b"".join(piece if isinstance(piece, bytes) else piece(message) for piece in pieces)


def _specifier(name: str, pretty: bool) -> bytes | Piece:
    if name == "%":
        return b"%"
    if name in ("j", "J"):
        return lambda message: _json(message, payload_is_json=name == "J", pretty=pretty)
    if name not in SPECIFIERS:
        raise typer.BadParameter(f"-F: there is no %{name}; there are {', '.join('%' + each for each in SPECIFIERS)}.")
    return SPECIFIERS[name]


def _time_piece(name: str) -> bytes | Piece:
    if name == "@":
        return b"@"
    if not name:
        raise typer.BadParameter("-F: a letter is missing after the last @; @@ prints @.")
    return lambda message: time.strftime(f"%{name}").encode()


def _shown(value: object) -> bytes:
    return b"" if value is None else str(value).encode()


SPECIFIERS: Final[dict[str, Piece]] = {
    "t": lambda message: message.topic.encode(),
    "p": lambda message: message.payload,
    "x": lambda message: message.payload.hex().encode(),
    "X": lambda message: message.payload.hex().upper().encode(),
    "l": lambda message: _shown(len(message.payload)),
    "q": lambda message: _shown(message.qos),
    "r": lambda message: _shown(int(message.retain)),
    "m": lambda message: _shown(message.packet_id),
    "I": lambda message: time.strftime("%Y-%m-%dT%H:%M:%S%z").encode(),
    "U": lambda message: f"{time.time():.9f}".encode(),
    "A": lambda message: _shown(message.properties.topic_alias),
    "C": lambda message: _shown(message.properties.content_type),
    "D": lambda message: message.properties.correlation_data or b"",
    "E": lambda message: _shown(message.properties.message_expiry_interval),
    "F": lambda message: _shown(message.properties.payload_format_indicator),
    "P": lambda message: " ".join(f"{k}:{v}" for k, v in message.properties.user_properties or []).encode(),
    "R": lambda message: _shown(message.properties.response_topic),
    "S": lambda message: " ".join(map(str, message.properties.subscription_identifiers or [])).encode(),
}


def _json(message: Message, *, payload_is_json: bool, pretty: bool) -> bytes:
    now = time.time()
    shown: dict[str, Any] = {
        "tst": time.strftime(f"%Y-%m-%dT%H:%M:%S.{int(now % 1 * 1e6):06d}Z%z", time.localtime(now)),
        "topic": message.topic,
        "qos": message.qos,
        "retain": int(message.retain),
        "payloadlen": len(message.payload),
    }
    if message.qos > 0:
        shown["mid"] = message.packet_id
    if properties := _json_properties(message.properties):
        shown["properties"] = properties
    text = message.payload.decode(errors="replace")
    shown["payload"] = text
    if payload_is_json:
        with contextlib.suppress(ValueError):  # what is no JSON is shown as text
            shown["payload"] = json.loads(text)
    separators = None if pretty else (",", ":")
    return json.dumps(shown, ensure_ascii=False, indent=2 if pretty else None, separators=separators).encode()


def _json_properties(properties: Properties) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if identifiers := properties.subscription_identifiers:
        shown["subscription-identifier"] = identifiers[0] if len(identifiers) == 1 else identifiers
    if properties.user_properties:
        by_name: dict[str, Any] = {}
        for name, value in properties.user_properties:  # a name that comes again has a list
            by_name.setdefault(name, []).append(value)
        shown["user-properties"] = {name: each[0] if len(each) == 1 else each for name, each in by_name.items()}
    for field, name in JSON_NAMES.items():
        value = getattr(properties, field)
        if value is not None:
            shown[name] = value.decode(errors="replace") if isinstance(value, bytes) else value
    return shown
