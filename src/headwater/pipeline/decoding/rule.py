"""One rule: for which topics it is, and how their messages are decoded. Made from a table of settings, with errors
that say what to do:

    filter = "plant/+/press/#"     # or a list; wildcards as in a subscription
    decoder = "json"               # auto, json, cbor, number, text, raw, an installed one, or module:function
    device = "{2}"                 # of the topic, or "$.meta.id" of the document
    metric = "{-1}"
    mode = "declared"              # variant, declared, inferred
    fields = { temp = "double not null", "meta.site" = "string" }
    misfits = "rescue"             # into a column of their own; or "quarantine"
    time = "at"
    unit = "ms"                    # s, ms, us, ns, auto
    value = "temp"
    each = "readings"              # a list in the document: each part is a reading
    options = { factor = 0.1 }     # of a user's decoder
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from headwater.pipeline.decoding import plugins
from headwater.pipeline.decoding.bulk import Auto, Json, Number, Raw, Text
from headwater.pipeline.decoding.cbor import parser
from headwater.pipeline.decoding.fields import RESCUED, Field
from headwater.pipeline.decoding.json_text import parse
from headwater.pipeline.decoding.naming import Naming
from headwater.pipeline.decoding.outcome import Decoder
from headwater.pipeline.decoding.paths import UNITS, path
from headwater.pipeline.decoding.rowwise import Columns, Custom, Documents, Places
from headwater.routing.topics import LEVELS_ASKED, InvalidTopicFilter, check_filter, matches
from headwater.suggestion import unknown

MODES: Final = ("variant", "declared", "inferred")
OF_ALL: Final = ("filter", "decoder", "device", "metric")
MISFITS: Final = ("quarantine", "rescue")
OF_DOCUMENTS: Final = ("mode", "fields", "misfits", "time", "unit", "value", "each")
KEYS: Final = {
    "auto": OF_ALL,
    "raw": OF_ALL,
    "text": OF_ALL,
    "number": OF_ALL,
    "json": (*OF_ALL, *OF_DOCUMENTS),
    "cbor": (*OF_ALL, *OF_DOCUMENTS),
}
KEYS_OF_OTHERS: Final = (*OF_ALL, "mode", "fields", "misfits", "options")
"""Of users' decoders."""
NOWHERE: Final = Places()
NONE: Final = Columns()
Made = TypeVar("Made")


class SettingsError(ValueError):
    """A rule that cannot be; says which, and what to do."""


@dataclass(frozen=True)
class Rule:
    filters: tuple[str, ...] = ("#",)
    decoder: str = "auto"
    device: Naming | None = None
    metric: Naming | None = None
    places: Places = NOWHERE
    columns: Columns = NONE
    options: Mapping[str, Any] = field(default_factory=dict)

    def matches(self, topic: str) -> bool:
        return any(matches(filter, topic) for filter in self.filters)

    def made(self, longest: int) -> Decoder:
        """The decoder, or SettingsError if this machine has none of the name."""
        if self.decoder in ("raw", "number"):
            return Raw() if self.decoder == "raw" else Number()
        if self.decoder in ("auto", "text"):
            return Auto(longest) if self.decoder == "auto" else Text(longest)
        if self.decoder == "json":
            if not self.places and not self.columns:
                return Json(longest)
            return Documents(parse, True, self.places, self.columns, longest)
        if self.decoder == "cbor":
            return Documents(_cbor(), False, self.places, self.columns, longest)
        try:
            function = plugins.load(self.decoder)
        except plugins.NoDecoder as error:
            raise SettingsError(str(error)) from error
        return Custom(partial(function, **self.options), self.columns, longest)


def _cbor() -> Callable[[bytes], Any]:
    try:
        return parser()
    except ImportError as error:
        raise SettingsError(
            "decoder 'cbor' needs the package cbor2 (6 or newer) where Spark's executors run"
        ) from error


def rule_of(settings: Mapping[str, Any]) -> Rule:
    """Raises SettingsError."""
    if not isinstance(settings, Mapping):
        raise SettingsError(f"a rule is a table of settings, not {settings!r}")
    decoder = _decoder(settings)
    known = KEYS.get(decoder, KEYS_OF_OTHERS)
    for key in settings:
        if key not in known:
            raise SettingsError(unknown("setting", key, known, f" of a rule with decoder {decoder!r}"))
    device, metric = _naming(settings, "device"), _naming(settings, "metric")
    for naming in (device, metric):
        if naming is not None and naming.path and decoder not in ("json", "cbor"):
            raise SettingsError(f"$.{'.'.join(naming.path)} is for the decoders json and cbor, and here is {decoder!r}")
    columns = _columns(settings)
    options = _kind(settings, "options", Mapping, "a table") or {}
    return Rule(_filters(settings), decoder, device, metric, _places(settings, device, metric), columns, dict(options))


def _decoder(settings: Mapping[str, Any]) -> str:
    name = settings.get("decoder", "auto")
    if not isinstance(name, str) or not name:
        raise SettingsError(f"decoder is the name of one, not {name!r}")
    if name not in KEYS and ":" not in name:
        installed = plugins.names()
        if name not in installed:
            raise SettingsError(unknown("decoder", name, (*KEYS, *installed)) + ", or module:function")
    return name


def _filters(settings: Mapping[str, Any]) -> tuple[str, ...]:
    found = settings.get("filter", "#")
    filters = (found,) if isinstance(found, str) else found
    if not isinstance(filters, list | tuple) or not filters or not all(isinstance(each, str) for each in filters):
        raise SettingsError(f"filter is a topic filter or a list of some, not {found!r}")
    for each in filters:
        if each.startswith("$share/"):
            raise SettingsError(f"filter {each!r}: a rule is for topics; leave $share and the group's name away")
        _told(f"filter {each!r}", partial(check_filter, each, LEVELS_ASKED))
    return tuple(filters)


def _naming(settings: Mapping[str, Any], key: str) -> Naming | None:
    text = _kind(settings, key, str, "a text")
    return None if text is None else _told(key, partial(Naming.of, text))


def _places(settings: Mapping[str, Any], device: Naming | None, metric: Naming | None) -> Places:
    paths = {}
    for key in ("time", "value", "each"):
        text = _kind(settings, key, str, "a path such as data.temp")
        if text is not None:
            paths[key] = _told(key, partial(path, text))
    unit = settings.get("unit", "auto")
    if unit not in UNITS:
        raise SettingsError(unknown("unit", str(unit), UNITS))
    if "unit" in settings and "time" not in paths:
        raise SettingsError("unit is that of a time; say by `time` where it is")
    return Places(unit=UNITS[unit], device=device, metric=metric, **paths)


def _columns(settings: Mapping[str, Any]) -> Columns:
    declared = _kind(settings, "fields", Mapping, "a table of paths and types") or {}
    mode = settings.get("mode", "declared" if declared else "variant")
    if mode not in MODES:
        raise SettingsError(unknown("mode", str(mode), MODES))
    if (mode == "declared") != bool(declared):
        raise SettingsError(
            "mode 'declared' needs `fields`, such as { temp = \"double\" }"
            if not declared
            else f"fields are for mode 'declared', and here is {mode!r}"
        )
    fields: dict[str, Field] = {}
    for where, type in declared.items():
        made = _told(f"field {where!r}", partial(Field.of, str(where), str(type)))
        if made.column in fields:
            other = ".".join(fields[made.column].path)
            raise SettingsError(f"fields {other!r} and {where!r} are both column {made.column!r}: leave one away")
        fields[made.column] = made
    misfits = settings.get("misfits", MISFITS[0])
    if misfits not in MISFITS:
        raise SettingsError(unknown("misfits", str(misfits), MISFITS))
    if misfits == "rescue" and not declared:
        raise SettingsError("misfits are those of declared fields, and here are none")
    if misfits == "rescue" and RESCUED in fields:
        raise SettingsError(f"the column {RESCUED!r} is for what does not fit: leave the field away, or misfits")
    return Columns(tuple(fields.values()), mode == "inferred", misfits == "rescue")


def _kind(settings: Mapping[str, Any], key: str, kind: type, called: str) -> Any:
    found = settings.get(key)
    if found is not None and not isinstance(found, kind):
        raise SettingsError(f"{key} is {called}, not {found!r}")
    return found


def _told(what: str, make: Callable[[], Made]) -> Made:
    try:
        return make()
    except (InvalidTopicFilter, ValueError) as error:
        raise SettingsError(f"{what}: {error}") from error
