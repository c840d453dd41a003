"""Interest filters by name: `make` one for a broker's own clients, `decode` what another broker has sent."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from headwater.interest.bf import Bf
from headwater.interest.bfp import Bfp
from headwater.interest.bloom import CountingBloom, read_bloom
from headwater.interest.elements import CountedElements, Elements, Method
from headwater.interest.filter import MOST_PROBES, Incompatible, Interest
from headwater.interest.prefix import Prefix, PrintedPrefix
from headwater.interest.shared_summary import SharedSummary, read_summary
from headwater.interest.summary import RATE, Summary
from headwater.interest.written import Reading

DEFAULT: Final = "summary"
EXPECTED: Final = 10_000

_METHODS: Final[dict[str, Callable[[], Method]]] = {
    "bf-paper": lambda: Bf(is_mended=False),
    "bf": Bf,
    "bfp-paper": lambda: Bfp(is_mended=False),
    "bfp": Bfp,
    "prefix-printed": PrintedPrefix,
    "prefix-paper": lambda: Prefix(is_mended=False),
    "prefix": Prefix,
}
NAMES: Final = (*_METHODS, "summary")
EXACT_ENOUGH: Final = ("bf", "bfp", "prefix", "summary")
"""Those that never say no where they should not; the others are kept as papers have them."""

Counted = Summary | CountedElements


def make(
    name: str = DEFAULT,
    expected: int = EXPECTED,
    p: float = RATE,
    seed: int | None = None,
    most_probes: int = MOST_PROBES,
) -> Counted:
    """`expected` are strings to be stored: filters, or for `prefix` their prefixes. All but `summary` err more often
    when there are more. `p` is the rate of false positives of a look-up for `summary`, of each probe for the others."""
    if name == "summary":
        return Summary(expected, p, seed, most_probes)
    if name not in _METHODS:
        raise ValueError(f"there is no method {name!r}; there are {', '.join(NAMES)}")
    seed = secrets.randbits(60) if seed is None else seed
    return CountedElements(_METHODS[name](), CountingBloom(expected, p, seed), most_probes)


def decode(data: bytes) -> Interest:
    """Raises Incompatible."""
    reading = Reading(data)
    if reading.kind == "summary":
        return read_summary(reading)
    if reading.kind not in _METHODS:
        raise Incompatible(f"an interest filter of the method {reading.kind!r} is not known here")
    method = _METHODS[reading.kind]()
    bloom = read_bloom(reading)
    if isinstance(method, Bfp):
        method.read(reading)
    reading.end()
    return Elements(method, bloom)


__all__ = ["DEFAULT", "EXACT_ENOUGH", "NAMES", "Counted", "SharedSummary", "decode", "make"]
