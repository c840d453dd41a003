"""What is said of settings that cannot be: `unknown setting 'prot'; did you mean 'port'?`, and of their values."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

MOST_LISTED: Final = 40
"""Names that are listed where none is close; of more, nobody reads the one that was meant."""
CLOSE: Final = 0.6
"""How much of two names has to agree, from 0 to 1."""


def closest(name: str, known: Iterable[str], least: float = CLOSE) -> str | None:
    """The known name that was probably meant; case does not count."""
    lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), lower, 1, least)
    return lower[found[0]] if found else None


def unknown(what: str, name: str, known: Iterable[str], where: str = "") -> str:
    """`what` is said before the name, such as `option`, and `where` behind it, such as ` of format('mqtt')`."""
    names = list(known)
    meant = closest(name, names)
    if meant is not None:
        hint = f"; did you mean {meant!r}?"
    elif len(names) > MOST_LISTED:
        hint = ""
    else:
        hint = f"; there are {', '.join(names) or 'none'}"
    return f"unknown {what} {name!r}{where}{hint}"


def check_known(what: str, given: Iterable[str], known: Iterable[str], where: str = "") -> None:
    """ValueError says which of the given names is the first that is not known."""
    names = list(known)
    for name in given:
        if name not in names:
            raise ValueError(unknown(what, name, names, where))


def check_value(holds: bool, name: str, value: object, wanted: str) -> None:
    """ValueError says what a setting has to be."""
    if not holds:
        raise ValueError(f"{name} is {value!r}; it has to be {wanted}")
