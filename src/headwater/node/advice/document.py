"""What advice looks like, and whether it can be believed to be advice at all. Nothing is done with it here.

The topic names the kind and the subject, `$headwater/advice/{kind}/{subject}`, the subject percent-encoded so that it
is one level. The payload is a JSON object with exactly these keys:

    version   1
    number    whole, from 1; grows with each new advice on a subject
    made      when, ISO 8601 with a zone
    expires   when it ends by itself
    why       for people; may be missing
    weights   (of kind weights) client id -> factor of its weight; the subject is the group, `$share/name/filter`
    parts     (of kind split) lists of topic filters, one for each part; the subject is the store

Whatever is not exactly so is refused as a whole: half of an advice is none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, unquote

from headwater.routing.topics import USUAL_LEVELS, InvalidTopicFilter, check_filter, split_shared

PREFIX: Final = "$headwater/advice/"
VERSION: Final = 1
LONGEST: Final = 1 << 16
"""Bytes of a document."""
LONGEST_SUBJECT: Final = 4096
LONGEST_WHY: Final = 4096
HIGHEST_NUMBER: Final = (1 << 63) - 1
CLOCKS: Final = 300.0
"""Seconds by which the clock of who made it may be ahead of ours."""
MOST_MEMBERS: Final = 1000
LEAST_WEIGHT: Final = 0.01
HIGHEST_WEIGHT: Final = 100.0
MOST_PARTS: Final = 64
MOST_FILTERS: Final = 1000

WEIGHTS: Final = "weights"
SPLIT: Final = "split"


class BadAdvice(ValueError):
    """It is none, and why."""


class Expired(BadAdvice):
    """It was advice once."""


@dataclass(frozen=True)
class Advice:
    kind: str
    subject: str
    number: int
    made: float
    """Seconds since 1970."""
    expires: float
    why: str = ""
    weights: dict[str, float] = field(default_factory=dict)
    """Of kind weights."""
    parts: tuple[tuple[str, ...], ...] = ()
    """Of kind split."""


def topic_of(kind: str, subject: str) -> str:
    return f"{PREFIX}{kind}/{quote(subject, safe='')}"


def subject_of(topic: str) -> tuple[str, str]:
    """Kind and subject of a topic below `PREFIX`. Each subject has one topic only."""
    kind, _, level = topic.removeprefix(PREFIX).partition("/")
    if kind not in READERS:
        raise BadAdvice(f"no such kind of advice: {kind[:50]!r}; there are {', '.join(READERS)}")
    if not level or len(level) > LONGEST_SUBJECT:
        raise BadAdvice(f"its subject has to be of 1 to {LONGEST_SUBJECT} characters")
    subject = unquote(level)
    if quote(subject, safe="") != level:
        raise BadAdvice("its subject is not one level, percent-encoded")
    return kind, subject


def read_advice(topic: str, payload: bytes, now: float, longest: float) -> Advice:
    """Raises BadAdvice. `now` is in seconds since 1970; none may hold for more than `longest` seconds."""
    kind, subject = subject_of(topic)
    found = _object(payload)
    keys = {"version", "number", "made", "expires", READERS[kind][0]}
    if keys != found.keys() - {"why"}:
        raise BadAdvice(f"its keys have to be {', '.join(sorted(keys))} and perhaps why")
    if found["version"] != VERSION or isinstance(found["version"], bool):
        raise BadAdvice(f"its version is not {VERSION}")
    number = found["number"]
    if type(number) is not int or not 1 <= number <= HIGHEST_NUMBER:
        raise BadAdvice(f"its number is not a whole one from 1 to {HIGHEST_NUMBER}")
    why = found.get("why", "")
    if not isinstance(why, str) or len(why) > LONGEST_WHY:
        raise BadAdvice(f"its why is no text of up to {LONGEST_WHY} characters")
    made, expires = _times(found["made"], found["expires"], now, longest)
    key, read = READERS[kind]
    return Advice(kind, subject, number, made, expires, why, **{key: read(subject, found[key])})


def _object(payload: bytes) -> dict[str, Any]:
    if len(payload) > LONGEST:
        raise BadAdvice(f"it has {len(payload)} bytes; at most {LONGEST} are read")
    try:
        found = json.loads(payload.decode(), parse_constant=_no_number, object_pairs_hook=_once)
        json.dumps(found, ensure_ascii=False).encode()  # halves of characters could not be shown to anybody
    except BadAdvice:
        raise
    except (ValueError, RecursionError) as error:
        raise BadAdvice(f"it is not JSON: {str(error)[:100]}") from None
    if not isinstance(found, dict):
        raise BadAdvice("it is no JSON object")
    return found


def _no_number(name: str) -> float:
    raise BadAdvice(f"{name} is no number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadAdvice("a key is there twice")
    return found


def _times(made: object, expires: object, now: float, longest: float) -> tuple[float, float]:
    began, ends = _time(made), _time(expires)
    if began > now + CLOCKS:
        raise BadAdvice("it was made in the future")
    if not 0.0 < ends - began <= longest:
        raise BadAdvice(f"it has to hold for more than 0 and at most {longest:g} seconds")
    if ends <= now:
        raise Expired("it has expired")
    return began, ends


def _time(text: object) -> float:
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
        if moment is None or moment.tzinfo is None:
            raise ValueError
        return moment.timestamp()
    except (ValueError, OverflowError):
        raise BadAdvice("its times have to be written as in ISO 8601, with a zone") from None


def _read_weights(subject: str, found: object) -> dict[str, float]:
    _check_group(subject)
    if not isinstance(found, dict) or not 1 <= len(found) <= MOST_MEMBERS:
        raise BadAdvice(f"its weights have to be an object of 1 to {MOST_MEMBERS} members")
    for client_id, weight in found.items():
        if not client_id or isinstance(weight, bool) or not isinstance(weight, int | float):
            raise BadAdvice("its weights have to be numbers by client ids")
        if not LEAST_WEIGHT <= weight <= HIGHEST_WEIGHT:
            raise BadAdvice(f"the weight of {client_id[:50]!r} is not from {LEAST_WEIGHT} to {HIGHEST_WEIGHT:g}")
    return {client_id: float(weight) for client_id, weight in found.items()}


def _check_group(subject: str) -> None:
    try:
        share, filter = split_shared(subject)
        check_filter(filter, USUAL_LEVELS)
    except InvalidTopicFilter as error:
        raise BadAdvice(f"its subject is no shared group: {error}") from None
    if share is None:
        raise BadAdvice("its subject is no shared group: it does not begin with $share/")


def _read_parts(subject: str, found: object) -> tuple[tuple[str, ...], ...]:
    if not isinstance(found, list) or not 2 <= len(found) <= MOST_PARTS:
        raise BadAdvice(f"its parts have to be a list of 2 to {MOST_PARTS}")
    seen: set[str] = set()
    for part in found:
        if not isinstance(part, list) or not part or not all(isinstance(each, str) for each in part):
            raise BadAdvice("each part has to be a list of topic filters")
        for filter in part:
            if filter in seen or len(seen) >= MOST_FILTERS:
                raise BadAdvice(f"a filter is there twice, or there are more than {MOST_FILTERS}")
            seen.add(filter)
            try:
                check_filter(filter, USUAL_LEVELS)
            except InvalidTopicFilter as error:
                raise BadAdvice(str(error)) from None
    return tuple(tuple(part) for part in found)


READERS: Final[dict[str, tuple[str, Callable[[str, object], Any]]]] = {
    WEIGHTS: ("weights", _read_weights),
    SPLIT: ("parts", _read_parts),
}
"""For each kind, the key of what is advised and what reads it."""
