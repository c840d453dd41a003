"""In which form an answer is wanted: by `format`, else by `Accept`; and whether compressed."""

from __future__ import annotations

from typing import Final

from headwater.store.rest.gate import Refused

JSON: Final = "json"
NDJSON: Final = "ndjson"
CSV: Final = "csv"
ARROW: Final = "arrow"
MEDIA_TYPES: Final = {
    JSON: "application/json",
    NDJSON: "application/x-ndjson",
    CSV: "text/csv; charset=utf-8; header=present",
    ARROW: "application/vnd.apache.arrow.stream",
}
"""In the order of preference where a caller has none."""
ALSO: Final = {"application/ndjson": NDJSON, "application/jsonl": NDJSON}
MOST: Final = 100
"""Ranges of a header that are looked at."""


def wanted_form(format: str | None, accept: str | None) -> str:
    """One of MEDIA_TYPES; raises Refused (406)."""
    if format is not None:
        return format
    if not accept or not accept.strip():
        return JSON
    ranges = _weighed(accept)
    best, weight = "", 0.0
    for form, media_type in MEDIA_TYPES.items():
        also = [ranges.get(name, 0.0) for name, its in ALSO.items() if its == form]
        found = max(_weight(ranges, media_type.partition(";")[0]), *also, 0.0)
        if found > weight:
            best, weight = form, found
    if not best:
        offered = ", ".join(each.partition(";")[0] for each in MEDIA_TYPES.values())
        raise Refused(406, "not_acceptable", f"this can be had as {offered}")
    return best


def takes_gzip(accept_encoding: str | None) -> bool:
    ranges = _weighed(accept_encoding or "")
    return ranges.get("gzip", ranges.get("*", 0.0)) > 0


def _weight(ranges: dict[str, float], media_type: str) -> float:
    """[RFC 9110, 12.5.1] The most specific range counts."""
    for each in (media_type, media_type.partition("/")[0] + "/*", "*/*"):
        if each in ranges:
            return ranges[each]
    return 0.0


def _weighed(header: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in header.split(",")[:MOST]:
        name, *parameters = part.split(";")
        weight = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip().lower() == "q":
                weight = _quality(value.strip())
        found[name.strip().lower()] = weight
    return found


def _quality(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0.0 <= weight <= 1.0 else 0.0
