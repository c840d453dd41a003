"""Mosquitto's configuration file as one of ours.

Theory. A mosquitto.conf is a list of `name value` lines. Each is dealt with by one entry of a table: it becomes one or
several of our settings (mosquitto_lines.py), or it is said in a sentence why it is not needed or not supported and
what to do instead (mosquitto_leftovers.py); no line is passed over in silence, but those that state Mosquitto's own
default. mosquitto_conversion.py draws the conclusions that need the whole file.

A line that protected something and has no counterpart ends the conversion, and so does one that nobody knows: a broker
that asks for less than the old one must not come of it unseen. Each such line can be accepted by its place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from headwater.node.config import Config
from headwater.node.mosquitto.conversion import Conversion
from headwater.node.mosquitto.leftovers import (
    DEFAULTS,
    NOT_NEEDED,
    NOT_SUPPORTED,
    PLUGIN_OPTION,
    PLUGIN_OPTIONS,
    PROTECTED,
    UNKNOWN,
)
from headwater.node.mosquitto.lines import CONVERTERS
from headwater.node.settings import ConfigError, table_of
from headwater.node.toml_text import toml_value

SECRETS: Final = ("password", "remote_password", "local_password", "bridge_psk", "tls_engine_kpass_sha1")


class ProtectionLost(ConfigError):
    """Lines that protected something cannot be converted; the text names them and says what to do."""


@dataclass(frozen=True)
class Line:
    file: str
    number: int
    name: str
    value: str

    def __str__(self) -> str:
        secret = self.name in SECRETS or self.name.startswith(PLUGIN_OPTIONS)
        return f"{self.file}:{self.number}: {self.name} {'…' if secret else self.value}".rstrip()


def read(conversion: Conversion, path: Path) -> None:
    """Take all lines of a file, and of those that it includes. Raises ConfigError."""
    for line in _lines(path):
        if line.name == "include_dir":
            # A, a, B, b: capitals stand before the small letter of the same name.
            for each in sorted((path.parent / line.value).glob("*.conf"), key=lambda file: _alphabetic(file.name)):
                read(conversion, each)
        else:
            _take(conversion, line)


def _alphabetic(name: str) -> tuple[str, str]:
    return name.lower(), name


def _lines(path: Path) -> Iterator[Line]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text: {error}") from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            name, *value = line.strip().split(maxsplit=1)
            yield Line(path.name, number, name, value[0] if value else "")


def _take(conversion: Conversion, line: Line) -> None:
    conversion.line = str(line)
    convert = CONVERTERS.get(line.name)
    if convert is not None:
        try:
            remark = convert(conversion, line.value)
        except (ValueError, IndexError, KeyError) as error:
            raise ConfigError(f"{line}: the value is not understood") from error
        if remark:
            conversion.remarks.append(f"{line}\n  {remark}")
    elif line.value in DEFAULTS.get(line.name, ()):
        return
    elif line.name in NOT_NEEDED:
        conversion.remarks.append(f"{line}\n  not needed: {NOT_NEEDED[line.name]}")
    elif line.name in NOT_SUPPORTED or line.name.startswith(PLUGIN_OPTIONS):
        conversion.remarks.append(f"{line}\n  NOT SUPPORTED: {NOT_SUPPORTED.get(line.name, PLUGIN_OPTION)}")
    else:
        conversion.lose(PROTECTED.get(line.name, UNKNOWN))


def _judge(conversion: Conversion, accepted: Collection[str]) -> None:
    """Losses that were accepted are remarks; others end the conversion."""
    left = dict(conversion.losses)
    for line, why in conversion.losses.items():
        if _place(line) in accepted:
            conversion.remarks.append(f"{line}\n  NOT SUPPORTED, and accepted: {why}")
            del left[line]
    if left:
        said = "\n".join(f"{line}\n  {why}" for line, why in left.items())
        places = " ".join(f"--accept-loss {_place(line)}" for line in left)
        raise ProtectionLost(
            f"nothing is written: these lines protect something, and would not any more\n{said}\n"
            f"Change them as is said; or accept what is lost, line by line: {places}"
        )
    unused = set(accepted) - {_place(line) for line in conversion.losses}
    if unused:
        raise ConfigError(f"{', '.join(sorted(unused))}: nothing is lost there that could be accepted")


def _place(line: str) -> str:
    """`file:number` of a line as it is told of."""
    return ":".join(line.split(":")[:2])


# ---- the text ----------------------------------------------------------------------------------------------------


def from_mosquitto(path: Path, model: type[BaseModel] = Config, accepted: Collection[str] = ()) -> str:
    """A file of our settings; raises ConfigError, and ProtectionLost unless the lines' places (`file:number`) are
    `accepted`. Settings that this version does not have are comments."""
    conversion = Conversion()
    read(conversion, path)
    conversion.finish()
    _judge(conversion, accepted)
    lines = [f"# Made from {path.name}, a configuration file of Mosquitto."]
    tables: list[str] = []
    for name, value in conversion.settings.items():
        comment = "" if _exists(model, name) else "# not supported yet: "
        if name in ("listeners", "bridges"):
            for row in value:
                tables += _row_text(name, row, comment, rows=True)
        else:
            lines.append(f"{comment}{name} = {toml_value(value)}")
    if conversion.remarks:
        lines += ["", "# Lines without a setting of their own here:"]
        for remark in conversion.remarks:
            lines += [f"# {line}" for line in remark.splitlines()]
    return "\n".join([*lines, *tables]) + "\n"


def _row_text(name: str, row: dict[str, Any], comment: str, rows: bool) -> list[str]:
    """A table; tables within it stand behind its settings."""
    lines = ["", f"{comment}[[{name}]]" if rows else f"{comment}[{name}]"]
    inner: list[str] = []
    for key, value in row.items():
        if isinstance(value, dict):
            inner += _row_text(f"{name}.{key}", value, comment, rows=False)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for each in value:
                inner += _row_text(f"{name}.{key}", each, comment, rows=True)
        else:
            lines.append(f"{comment}{key} = {toml_value(value)}")
    return lines + inner


def _exists(model: type[BaseModel], name: str) -> bool:
    first, _, rest = name.partition(".")
    if first not in model.model_fields:
        return False
    table = table_of(model.model_fields[first].annotation)
    return not rest or (table is not None and _exists(table, rest))
