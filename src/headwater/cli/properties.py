"""Properties of MQTT 5.0 as options: `-D publish content-type text/plain`, `-D connect user-property name value`.

The option takes two values or three (a user property has a name of its own), which no parser of options knows;
so each is gathered into one value before the parser sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from headwater.suggestion import unknown

if TYPE_CHECKING:
    from headwater.wire.packets import Properties

FLAGS: Final = ("-D", "--property")
COMMANDS: Final = ("connect", "publish", "subscribe", "unsubscribe", "disconnect", "will")
SEPARATOR: Final = "\x1f"
USER_PROPERTY: Final = "user-property"

FIELDS: Final[dict[str, tuple[str, type]]] = {
    "payload-format-indicator": ("payload_format_indicator", int),
    "message-expiry-interval": ("message_expiry_interval", int),
    "content-type": ("content_type", str),
    "response-topic": ("response_topic", str),
    "correlation-data": ("correlation_data", bytes),
    "subscription-identifier": ("subscription_identifiers", list),
    "session-expiry-interval": ("session_expiry_interval", int),
    "authentication-method": ("authentication_method", str),
    "authentication-data": ("authentication_data", bytes),
    "request-problem-information": ("request_problem_information", int),
    "will-delay-interval": ("will_delay_interval", int),
    "request-response-information": ("request_response_information", int),
    "reason-string": ("reason_string", str),
    "receive-maximum": ("receive_maximum", int),
    "topic-alias-maximum": ("topic_alias_maximum", int),
    "topic-alias": ("topic_alias", int),
    "maximum-packet-size": ("maximum_packet_size", int),
}
"""Name on the command line -> field of Properties and its type; a list is one of numbers."""


def gather_properties(arguments: list[str]) -> list[str]:
    """The arguments with each property's words joined to one."""
    gathered: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        gathered.append(argument)
        if argument == "--":
            break
        if argument in FLAGS:
            words = [word for _, word in zip(range(3), rest, strict=False)]
            if len(words) == 3 and words[1] == USER_PROPERTY:
                words += [word for _, word in zip(range(1), rest, strict=False)]
            gathered.append(SEPARATOR.join(words))
    return [*gathered, *rest]


def parse_properties(options: list[str]) -> dict[str, Properties]:
    """The gathered options as properties by command; raises BadParameter for what does not exist."""
    from headwater.wire.packets import Properties

    found: dict[str, Properties] = {}
    for option in options:
        words = option.split(SEPARATOR)
        if len(words) < 2:
            raise typer.BadParameter("-D needs a command, the name of a property and its value.")
        command, name, *values = words
        if command.lower() not in COMMANDS:
            raise typer.BadParameter(f"-D needs one of {', '.join(COMMANDS)} first, not {command!r}.")
        _add(found.setdefault(command.lower(), Properties()), name.lower(), values)
    return found


def _add(properties: Properties, name: str, values: list[str]) -> None:
    if name == USER_PROPERTY:
        if len(values) != 2:
            raise typer.BadParameter(f"-D … {USER_PROPERTY} needs a name and a value.")
        properties.user_properties = [*(properties.user_properties or []), (values[0], values[1])]
        return
    if name not in FIELDS:
        raise typer.BadParameter(unknown("property", name, [*FIELDS, USER_PROPERTY]))
    if len(values) != 1:
        raise typer.BadParameter(f"-D … {name} needs a value.")
    field, kind = FIELDS[name]
    setattr(properties, field, _value(name, kind, values[0]))


def _value(name: str, kind: type, text: str) -> object:
    if kind is str:
        return text
    if kind is bytes:
        return text.encode()
    try:
        number = int(text)
    except ValueError:
        raise typer.BadParameter(f"property {name} is a whole number, not {text!r}.") from None
    return [number] if kind is list else number
