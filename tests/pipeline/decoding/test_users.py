"""Decoders that users wrote, and all the ways in which they may go wrong."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType
from typing import Any

import pytest

from headwater.pipeline.decoding import Message, Reading, Refused, Rules, SettingsError, decode, plugins
from headwater.pipeline.decoding.paths import EPOCH
from tests.pipeline.decoding.bronze import NOON, SECOND, bronze, decoded, reading, refusal, rows

HERE = __name__


def scale(message: Message, *, factor: float = 1.0) -> Reading:
    if len(message.payload) != 2:
        raise Refused("a scale sends two bytes")
    return Reading(value=int.from_bytes(message.payload, "big") * factor)


def everything(message: Message) -> Iterator[Reading]:
    yield Reading(
        value=1, text="é", data={"b": b"\xff", "at": EPOCH, 1: [None]}, raw=b"\x00", time=EPOCH, device="d", metric="m"
    )
    yield Reading(data=message._asdict())


def made_by(name: str, **settings: Any) -> Rules:
    return Rules.from_settings([{"filter": "#", "decoder": f"{HERE}:{name}", **settings}])


def returning(found: Any) -> Rules:
    """Rules with a decoder that returns, or raises, this."""
    module = ModuleType("strange_decoder")

    def strange(message: Message) -> Any:
        if isinstance(found, BaseException):
            raise found
        return found(message) if callable(found) else found

    module.strange = strange  # type: ignore[attr-defined]
    sys.modules["strange_decoder"] = module
    return Rules.from_settings([{"decoder": "strange_decoder:strange"}])


@pytest.fixture(autouse=True)
def no_strange_decoder_stays() -> Iterator[None]:
    yield
    sys.modules.pop("strange_decoder", None)


def test_a_function_by_its_place_with_options() -> None:
    assert reading(b"\x01\x00", made_by("scale"))["value"] == 256.0
    found = reading(b"\x01\x00", made_by("scale", options={"factor": 0.5}, device="{3}"))
    assert (found["value"], found["device"], found["metric"], found["decoder"]) == (
        128.0,
        "press7",
        "temp",
        f"{HERE}:scale",
    )
    assert refusal(b"\x01", made_by("scale")) == "a scale sends two bytes"


def test_an_installed_one_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = EntryPoints([EntryPoint("scale", f"{HERE}:scale", plugins.GROUP)])
    monkeypatch.setattr(plugins, "entry_points", lambda group: installed.select(group=group))
    rules = Rules.from_settings([{"decoder": "scale", "options": {"factor": 2}}])
    assert reading(b"\x00\x01", rules)["value"] == 2.0
    with pytest.raises(SettingsError, match="did you mean 'scale'"):
        Rules.from_settings([{"decoder": "scales"}])


def test_all_that_a_decoder_may_give() -> None:
    [first, second], quarantined = decoded(b"\xff", made_by("everything"), times=NOON - SECOND, values=[3.0])
    assert quarantined == []
    assert (first["value"], first["text"], first["raw"], first["time"]) == (1.0, "é", b"\x00", 0)
    assert (first["device"], first["metric"], first["clock"]) == ("d", "m", "behind")
    assert first["data"] == '{"b":"/w==","at":"1970-01-01T00:00:00+00:00","1":[null]}'
    assert (second["part"], second["device"], second["metric"], second["time"]) == (
        1,
        "client-1",
        "temp",
        NOON - SECOND,
    )
    assert second["data"] == (
        '{"topic":"plant/line1/press7/temp","payload":"/w==","publisher":"client-1","time":"2026-09-10T00:26:39+00:00",'
        '"arrival":"2026-09-10T00:26:40+00:00","value":3.0}'
    )


def test_fields_of_its_documents_become_columns() -> None:
    rules = made_by("everything", mode="inferred")
    found = decode(bronze([b"x"]), rules).readings
    assert found["b"].to_pylist() == ["/w==", None]
    assert found["publisher"].to_pylist() == [None, "client-1"]
    strict = made_by("everything", fields={"publisher": "string not null"})
    assert refusal(b"x", strict) == "field publisher is missing, and declared not null"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


class Hostile(dict[str, Any]):
    def items(self) -> Any:
        raise KeyError("no items today")


def endless(message: Message) -> Iterator[Reading]:
    while True:
        yield Reading(value=1)


def breaking(message: Message) -> Iterator[Reading]:
    yield Reading(value=1)
    raise OSError("cut")


def recursing(message: Message) -> Any:
    return recursing(message)


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, "the decoder found no reading"),
        ([], "the decoder found no reading"),
        (5, "the decoder returned int, neither a Reading nor several"),
        ("text", "the decoder returned str, neither a Reading nor several"),
        ({"value": 1}, "the decoder returned dict, neither a Reading nor several"),
        ([Reading(), None], "the decoder returned NoneType among its readings"),
        (Reading(value=float("nan")), "the decoder's value is float and no finite number"),
        (Reading(value="1"), "the decoder's value is str and no finite number"),  # type: ignore[arg-type]
        (Reading(value=10**400), "the decoder's value is int and no finite number"),
        (Reading(text=b"x"), "the decoder's text is bytes and no str"),  # type: ignore[arg-type]
        (Reading(text="\ud800"), "the decoder's text has half of a surrogate pair"),
        (Reading(device="\udfff"), "the decoder's device has half of a surrogate pair"),
        (Reading(metric=5), "the decoder's metric is int and no str"),  # type: ignore[arg-type]
        (Reading(raw="x"), "the decoder's raw is str and no bytes"),  # type: ignore[arg-type]
        (Reading(time=5), "the decoder's time is no datetime of the years 1 to 9999 in UTC (int)"),  # type: ignore[arg-type]
        (Reading(data=object()), "the decoder's data has a value of type object, for which JSON has no word"),
        (Reading(data={"a": float("inf")}), "the decoder's data has a number that is not finite"),
        (Reading(data="\ud800"), "the decoder's data has a text with half of a surrogate pair"),
        (Reading(data={object(): 1}), "the decoder's data has a key of type object"),
        (Reading(data={1: 1, "1": 2}), "the decoder's data has the key '1' twice"),
        (Reading(data={"k" * 10_001: 1}), "the decoder's data has a name of more than 10000 characters"),
        (Reading(data=CYCLE), "the decoder's data is nested deeper than 200 levels"),
        (Reading(data="x" * (5 << 20)), "the decoder's data becomes too large"),
        (Reading(data=Hostile()), "KeyError: 'no items today'"),
        (endless, "the decoder gives more than 10000 readings"),
        (breaking, "OSError: cut"),
        (recursing, "RecursionError: maximum recursion depth exceeded"),
        (ValueError("\ud800 and NUL \x00"), "ValueError: ? and NUL \x00"),
        (ValueError(), "ValueError"),
        (Refused(""), "no reason was given"),
        (Refused("long " * 1000), ("long " * 60)[:300]),
        (Unspeakable(), "Unspeakable"),
        (SystemExit(3), "SystemExit: 3"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_whatever_a_decoder_does_the_message_is_quarantined(found: Any, reason: str) -> None:
    assert refusal(b"x", returning(found)).startswith(reason)


def test_how_many_readings_a_message_may_have() -> None:
    readings, quarantined = decoded(b"x", returning([Reading()] * 10_000))
    assert len(readings) == 10_000 and quarantined == []
    assert refusal(b"x", returning([Reading()] * 10_001)) == "the decoder gives more than 10000 readings"


def test_one_bad_message_leaves_the_others() -> None:
    readings, quarantined = decode(bronze([b"\x00\x01", b"", b"\x00\x02"]), made_by("scale"))
    assert [row["value"] for row in rows(readings)] == [1.0, 2.0]
    assert [row["position"] for row in rows(quarantined)] == [2]


def test_a_time_without_a_zone_is_utc() -> None:
    local = datetime(1970, 1, 1, 0, 0, 1)
    assert reading(b"x", returning(Reading(time=local)))["time"] == SECOND
    late = datetime.max.replace(tzinfo=UTC)
    assert reading(b"x", returning(Reading(time=late)))["time"] == (late - EPOCH) // timedelta(microseconds=1)


def test_a_decoder_that_is_not_on_the_machine_is_no_fault_of_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = pickle.loads(pickle.dumps(returning(Reading())))
    monkeypatch.delitem(sys.modules, "strange_decoder")
    with pytest.raises(SettingsError, match="cannot be imported"):
        decode(bronze([b"x"]), rules)
