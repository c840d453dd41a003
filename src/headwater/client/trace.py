"""A packet in one line, for the log: what it says, without what is absent, secret or long."""

from __future__ import annotations

import dataclasses
from typing import Final

from headwater.wire.packets import Packet, Properties, SubscribeRequest, Will

SECRET: Final = ("password", "authentication_data")
MANDATORY: Final = ("reason", "packet_id", "client_id")


def in_one_line(packet: Packet) -> str:
    fields = _shown_fields(packet)
    return f"{type(packet).__name__.upper()} {fields}".rstrip()


def _shown_fields(value: object) -> str:
    shown = []
    for field in dataclasses.fields(value):  # type: ignore[arg-type]  # all packets are dataclasses
        content = getattr(value, field.name)
        if content is None or (content == field.default and field.name not in MANDATORY):
            continue
        if field.name in SECRET:
            text = "…"
        elif isinstance(content, bytes):
            text = f"{len(content)} bytes"
        elif isinstance(content, Properties | Will | SubscribeRequest):
            text = f"({_shown_fields(content)})"
        elif content and isinstance(content, list) and isinstance(content[0], SubscribeRequest):
            text = ", ".join(f"({_shown_fields(each)})" for each in content)
        else:
            text = repr(content)
        shown.append(f"{field.name}={text}")
    return " ".join(shown)
