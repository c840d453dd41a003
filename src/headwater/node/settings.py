"""Where settings come from, and what is said when they do not fit.

Theory. A setting has a dotted name (`port`, `admin.port`). Three sources are laid over each other and over the
defaults, the later ones winning: a TOML file, the environment (`HEADWATER_PORT`, `HEADWATER_ADMIN__PORT`) and flags.
Tables are merged key by key; a list is replaced as a whole. What comes out is checked once, so that all mistakes are
said together, and `origins` remembers which source each value came from.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from headwater.suggestion import closest

PREFIX = "HEADWATER_"
SURELY = 0.75
"""How close a variable of the environment is to a setting if it is meant to be one, from 0 to 1."""


class ConfigError(Exception):
    """The configuration cannot be used; the text says what to change."""


class Settings(BaseModel):
    """A table of settings. Its fields carry their documentation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """pydantic would take `port = true` for 1."""
        if isinstance(value, bool) and _is_number(cls.model_fields[info.field_name or ""].annotation):
            raise ValueError("a number is needed, and neither true nor false")
        return value


def _is_number(annotation: Any) -> bool:
    """`int`, `float | None`, `Literal[0, 1]` and the like."""
    if get_origin(annotation) in (list, dict):
        return False
    inner = get_args(annotation)
    return annotation in (int, float) or type(annotation) is int or any(_is_number(each) for each in inner)


Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Loaded(Generic[Model]):
    """The settings, and for each dotted name that a source gave, which one it was."""

    settings: Model
    origins: dict[str, str]


# ---- the model ---------------------------------------------------------------------------------------------------


def table_of(annotation: Any) -> type[BaseModel] | None:
    """The table that a setting is (`Admin`, `Admin | None`), if it is one."""
    for each in (annotation, *get_args(annotation)):
        if isinstance(each, type) and issubclass(each, BaseModel) and get_origin(annotation) not in (list, dict):
            return each
    return None


def rows_of(annotation: Any) -> type[BaseModel] | None:
    """The kind of table that a setting has a list (`[[…]]`) or named collection of, if it is such."""
    if get_origin(annotation) in (list, dict):
        return table_of(get_args(annotation)[-1])
    for each in get_args(annotation):
        if get_origin(each) in (list, dict):
            return rows_of(each)
    return None


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """All settings by dotted names, those of tables included."""
    for name, field in model.model_fields.items():
        table = table_of(field.annotation)
        if table is None:
            yield prefix + name, field
        else:
            yield from leaves(table, f"{prefix}{name}.")


def is_secret(field: FieldInfo) -> bool:
    return SecretStr in (field.annotation, *get_args(field.annotation))


def value_of(settings: BaseModel, name: str) -> Any:
    """The value of a dotted name; None below a table that is not there."""
    value: Any = settings
    for part in name.split("."):
        value = None if value is None else getattr(value, part)
    return value


# ---- sources -----------------------------------------------------------------------------------------------------


def load(
    model: type[Model],
    path: str | None,
    environment: Mapping[str, str],
    flags: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> Loaded[Model]:
    """The settings from a TOML file (None: no file), the environment and flags (None: not given). `defaults`, by dotted
    names, count instead of the model's own.

    Raises ConfigError."""
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, value in (defaults or {}).items():
        _lay(merged, _nested(name, value), {}, "")
    if path is not None:
        _lay(merged, _read(path), origins, path)
    for name, variable, value in _from_environment(model, environment):
        _lay(merged, _nested(name, value), origins, f"environment {variable}")
    for name, value in flags.items():
        if value is not None:
            _lay(merged, _nested(name, value), origins, "command line")
    try:
        return Loaded(model(**merged), origins)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(model, problem, origins) for problem in error.errors())) from error


def parse_assignment(model: type[BaseModel], text: str) -> tuple[str, Any]:
    """`admin.port=1884`, as flags give settings; raises ConfigError."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise ConfigError(f"'{text}' is not of the form NAME=VALUE")
    return name, _parsed(dict(leaves(model)).get(name), value.strip())


def _read(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: it is not in UTF-8 (byte {error.start + 1})") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _from_environment(model: type[BaseModel], environment: Mapping[str, str]) -> Iterator[tuple[str, str, Any]]:
    """Name, variable and value. Strangers' variables may begin as ours do (Kubernetes makes some for a service of our
    name), so one that looks like no setting at all is passed over; one that is nearly a setting is a mistake."""
    known = dict(leaves(model))
    for variable, text in sorted(environment.items()):
        if not variable.startswith(PREFIX):
            continue
        name = variable.removeprefix(PREFIX).lower().replace("__", ".")
        if name in known:
            yield name, variable, _parsed(known[name], text)
            continue
        hint = closest(name, known, SURELY)
        if hint is not None or name.partition(".")[0] in model.model_fields:
            hint = hint or closest(name, known)
            meant = "" if hint is None else f"; did you mean {PREFIX}{hint.upper().replace('.', '__')}?"
            raise ConfigError(f"environment {variable}: no such setting{meant}")


def _parsed(field: FieldInfo | None, text: str) -> Any:
    """Text as TOML would have it; where a text is wanted, or it is no TOML, the text itself."""
    if field is not None and _takes_text(field.annotation):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _takes_text(annotation: Any) -> bool:
    if get_origin(annotation) is Literal:
        return all(isinstance(value, str) for value in get_args(annotation))
    if annotation in (str, SecretStr, Path):
        return True
    return get_origin(annotation) not in (list, dict) and any(each in (str, SecretStr) for each in get_args(annotation))


def _nested(name: str, value: Any) -> dict[str, Any]:
    for part in reversed(name.split(".")):
        value = {part: value}
    return dict(value)


def _lay(
    below: dict[str, Any], above: Mapping[str, Any], origins: dict[str, str], origin: str, prefix: str = ""
) -> None:
    for key, value in above.items():
        name = prefix + key
        if isinstance(value, dict) and isinstance(below.get(key, {}), dict):
            origins[name] = origin
            _lay(below.setdefault(key, {}), value, origins, origin, f"{name}.")
        else:
            below[key] = value
            origins[name] = origin


# ---- mistakes ----------------------------------------------------------------------------------------------------


def _explain(model: type[BaseModel], problem: Any, origins: Mapping[str, str]) -> str:
    place = [str(part) for part in problem["loc"]]
    if not place:  # several settings that do not go together
        return str(problem["msg"]).removeprefix("Value error, ")
    table, field = _find(model, place)
    key = ".".join(place)
    origin = origins.get(key, "")
    where = f" (from the {origin})" if origin.startswith("environment") else ""
    if problem["type"] == "extra_forbidden":
        close = closest(place[-1], [] if table is None else table.model_fields)
        return f"unknown setting '{key}'{where}" + ("" if close is None else f"; did you mean '{close}'?")
    # A secret is not repeated, nor a table or a list of tables, which may hold one.
    hidden = field is None or is_secret(field) or isinstance(problem["input"], dict)
    if field is not None and rows_of(field.annotation) is not None:
        hidden = True
    text = problem["msg"].removeprefix("Value error, ")
    return f"setting '{key}'{where}: {text}" + ("" if hidden else f" (got {problem['input']!r})")


def _find(model: type[BaseModel], place: list[str]) -> tuple[type[BaseModel] | None, FieldInfo | None]:
    """The table that the last part of a place would be a key of, and the innermost setting that the place is of."""
    table: type[BaseModel] | None = model
    field: FieldInfo | None = None
    for depth, part in enumerate(place):
        if table is not None and part in table.model_fields:
            field = table.model_fields[part]
            if depth < len(place) - 1:
                table = table_of(field.annotation) or rows_of(field.annotation)
    return table, field
