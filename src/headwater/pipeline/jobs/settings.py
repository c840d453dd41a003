"""The settings of a pipeline: what it reads, how it decodes and derives, how it runs."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from headwater.pipeline.catalogs.settings import Catalog, Iceberg, catalogs_from
from headwater.pipeline.decoding import Rules
from headwater.pipeline.decoding.json_schema import with_schema
from headwater.pipeline.derive.settings import MOST_DEFINITIONS, definition_of
from headwater.pipeline.derive.settings import Settings as Deriving
from headwater.pipeline.expectations.checking import Checks
from headwater.pipeline.expectations.rule import expectations_of
from headwater.pipeline.lake.upkeep_settings import UpkeepSettings
from headwater.pipeline.monitoring.settings import Settings as Monitoring
from headwater.pipeline.operations.settings import Settings as Advising
from headwater.pipeline.source.settings import Settings as Source
from headwater.pipeline.source.settings import read_settings
from headwater.pipeline.spark_settings import read_spark
from headwater.pipeline.tables import GOLD, SILVER
from headwater.suggestion import unknown

URL: Final = "http://localhost:8080"
LISTS: Final = ("decoding", "expectations", "windows")
"""Settings that are tables of TOML, any number of each."""
ON_CHANGE: Final = ("refuse", "remake")
ON_OTHERS: Final = ("refuse", "allow")


HERE: Final = Path()


class SettingsError(ValueError):
    """A setting is not known or cannot be; the text says which."""


@dataclass(frozen=True)
class Settings:
    """`urls` or `urls_file` name the stores. `starting` is where a new lake begins: earliest, latest, a time.
    `most_rows` is how much a batch, or a step behind it, takes at most; `trigger` the seconds between two batches.
    Stores in `without` are not waited for when windows become final. Tables are looked after every `tidy_every`
    seconds, by `upkeep`.
    `lake_options` are those of the object store, if the lake is no folder (`headwater.objects`). There, a start is
    refused if another engine has written to a table (`other_engines`: refuse).
    With other `decoding` or `deriving` than tables were made with, a start is refused (`changed_settings`: refuse), or
    makes them again (remake).
    `windows` are further definitions of windows, each with a table of its own. Windows that are not final are written
    anew every `provisional` seconds, at most; 0: never.
    With `live_broker` (`mqtt://host:port`), what comes by MQTT is compared with what was stored. With `advise`, nodes
    get advice by `advising`, for which the token has to be theirs (`rest.token`); `stored_filters` are what they
    store by. `spark` are settings of Spark by their whole names."""

    urls: tuple[str, ...] = (URL,)
    urls_file: str | None = None
    token: str | None = None
    user: str | None = None
    password: str | None = None
    ca: str | None = None
    reader: str = "lakehouse"
    starting: str = "earliest"
    fail_on_data_loss: bool = True
    wait_for_store: float = 600.0
    most_rows: int = 1_000_000
    rows_per_partition: int = 250_000
    history: str = "node"
    history_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    trigger: float = 1.0
    without: tuple[str, ...] = ()
    tidy_every: float = 60.0
    changed_settings: str = "refuse"
    lake_options: Mapping[str, str] = field(default_factory=dict)
    other_engines: str = "refuse"
    live_broker: str | None = None
    live_topics: tuple[str, ...] = ("#",)
    advise: bool = False
    stored_filters: tuple[str, ...] = ("#",)
    decoding: tuple[Mapping[str, Any], ...] = ()
    expectations: tuple[Mapping[str, Any], ...] = ()
    windows: tuple[Mapping[str, Any], ...] = ()
    provisional: float = 2.0
    deriving: Deriving = field(default_factory=Deriving)
    advising: Advising = field(default_factory=Advising)
    upkeep: UpkeepSettings = field(default_factory=UpkeepSettings)
    monitoring: Monitoring = field(default_factory=Monitoring)
    catalog: tuple[Catalog, ...] = ()
    iceberg: Iceberg | None = None
    spark: Mapping[str, str] = field(default_factory=dict)

    def source_options(self) -> dict[str, str]:
        """For `format("headwater")`."""
        options = {
            "url": ",".join(self.urls),
            "urlsFile": self.urls_file,
            "token": self.token,
            "user": self.user,
            "password": self.password,
            "ca": self.ca,
            "reader": self.reader,
            "startingOffsets": self.starting,
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            "waitForStore": str(self.wait_for_store),
            "maxRowsPerTrigger": str(self.most_rows),
            "rowsPerPartition": str(self.rows_per_partition),
            "history": self.history,
            "historyOptions": json.dumps(dict(self.history_options)) if self.history_options else None,
        }
        return {name: value for name, value in options.items() if value}

    def live_options(self) -> dict[str, str]:
        """For `format("mqtt")`."""
        options = {
            "broker": self.live_broker,
            "topics": ",".join(self.live_topics),
            "username": self.user,
            "password": self.password,
            "group": f"{self.reader}-live",
        }
        return {name: value for name, value in options.items() if value}

    def source(self) -> Source:
        return read_settings(self.source_options())

    def rules(self) -> Rules:
        """How payloads are decoded. A clock is wrong where windows say so."""
        return Rules.from_settings(self.decoding, ahead=self.deriving.clock_ahead, behind=self.deriving.clock_behind)

    def definitions(self) -> dict[str, Deriving]:
        """Of windows, by name; that of `deriving` is "". Raises ValueError."""
        found = {"": self.deriving}
        for number, given in enumerate(self.windows, 1):
            try:
                name, made = definition_of(given, self.deriving)
                if name in found:
                    raise SettingsError(f"another definition has the name {name}")
            except ValueError as error:
                raise SettingsError(f"windows {number}: {error}") from error
            found[name] = made
        if len(found) > MOST_DEFINITIONS + 1:
            raise SettingsError(f"there are {len(found) - 1} definitions of windows; there may be {MOST_DEFINITIONS}")
        return found

    def checks(self) -> dict[str, Checks]:
        """What is expected of each table. Raises ExpectationError."""
        own = {table.name: {each.name: each.type for each in table.columns} for table in (SILVER, GOLD)}
        columns = {**own, SILVER.name: {**own[SILVER.name], **self.rules().columns}} if self.expectations else own
        made = expectations_of(self.expectations, columns)
        return {name: Checks(tuple(each for each in made if each.table == name)) for name in own}


def read_file(path: Path) -> Settings:
    """From TOML: the fields by their names, `[[decoding]]`, `[[expectations]]` and `[[windows]]` one each,
    `[deriving]`, `[advising]`, `[upkeep]`, `[monitoring]` and `[spark]`.
    Raises SettingsError."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is no TOML: {error}") from None
    try:
        return make_settings(given, path.absolute().parent)
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from error


def make_settings(given: Mapping[str, Any], folder: Path = HERE) -> Settings:
    """Files that are named are in this folder, unless their path is absolute. Raises ValueError, which says what is
    wrong."""
    known = [each.name for each in fields(Settings)]
    for name in given:
        if name not in known:
            raise SettingsError(unknown("setting", name, known))
    values = dict(given)
    if "urls_file" in values:  # then only what is in it, unless there are `urls` as well
        values.setdefault("urls", ())
    for name in ("urls", "without", "live_topics", "stored_filters", *LISTS):
        if name in values:
            found = values[name]
            if name in LISTS and not isinstance(found, list | tuple):
                raise SettingsError(f"{name} is a list of tables: [[{name}]]")
            values[name] = (found,) if isinstance(found, str) else tuple(found)
    if "decoding" in values:
        values["decoding"] = tuple(with_schema(each, folder) for each in values["decoding"])
    for each in fields(Settings):
        if each.name in values and isinstance(each.default, bool | int | float):
            _check_number(each.name, values[each.name], each.default)
    if values.get("changed_settings", ON_CHANGE[0]) not in ON_CHANGE:
        raise SettingsError(
            f"changed_settings is {values['changed_settings']!r}; it has to be {' or '.join(ON_CHANGE)}"
        )
    if values.get("other_engines", ON_OTHERS[0]) not in ON_OTHERS:
        raise SettingsError(f"other_engines is {values['other_engines']!r}; it has to be {' or '.join(ON_OTHERS)}")
    if "lake_options" in values:
        options = values["lake_options"]
        if not isinstance(options, dict) or not all(isinstance(each, str) for each in options.values()):
            raise SettingsError('lake_options are names and texts, such as AWS_REGION = "eu-west-1"')
    if "deriving" in values:
        values["deriving"] = Deriving.from_settings(values["deriving"])
    if "advising" in values:
        values["advising"] = Advising.from_settings(values["advising"])
    if "upkeep" in values:
        values["upkeep"] = UpkeepSettings.from_settings(values["upkeep"])
    if "spark" in values:
        values["spark"] = read_spark(values["spark"])
    if "monitoring" in values:
        values["monitoring"] = Monitoring.from_settings(values["monitoring"])
    if "catalog" in values:
        values["catalog"] = catalogs_from(values["catalog"])
    if "iceberg" in values:
        values["iceberg"] = Iceberg.from_settings(values["iceberg"])
    settings = Settings(**values)
    settings.source()
    settings.rules()
    settings.checks()
    settings.definitions()
    return settings


def _check_number(name: str, value: Any, default: bool | int | float) -> None:
    """As the default is: true or false, a whole number above 0, or seconds."""
    if isinstance(default, bool):
        fits, wanted = isinstance(value, bool), "true or false"
    elif isinstance(default, int):
        fits, wanted = type(value) is int and value > 0, "a whole number above 0"
    else:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        fits, wanted = is_number and math.isfinite(value) and value >= 0, "seconds"
    if not fits:
        raise SettingsError(f"{name} is {value!r}; it has to be {wanted}")
