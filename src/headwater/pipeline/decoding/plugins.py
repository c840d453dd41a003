"""Decoders that users wrote, found by name: an entry point of the group `headwater.decoders`, or `module:function`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Final

GROUP: Final = "headwater.decoders"


class NoDecoder(ValueError):
    """Says why there is none of this name."""


def names() -> list[str]:
    """Of installed ones."""
    return sorted(entry_points(group=GROUP).names)


def load(name: str) -> Callable[..., Any]:
    """The function, or NoDecoder. It is imported: whoever writes rules may run code, as whoever submits the job."""
    try:
        found = _by_place(name) if ":" in name else _installed(name)
    except NoDecoder:
        raise
    except Exception as error:  # an import runs a user's code
        raise NoDecoder(f"decoder {name!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise NoDecoder(f"decoder {name!r} is no function, but {type(found).__name__}")
    function: Callable[..., Any] = found
    return function


def _by_place(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise NoDecoder(f"{name!r} is no place of a function such as my_package.decoders:scale")
    found: Any = importlib.import_module(module)
    for each in attribute.split("."):
        found = getattr(found, each)
    return found


def _installed(name: str) -> Any:
    found = [each for each in entry_points(group=GROUP) if each.name == name]
    if not found:
        raise NoDecoder(f"there is no decoder {name!r}")
    return found[0].load()
