"""Options that several commands share, declared once as the fields of a dataclass."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def with_options(options: type[Any], name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with the fields of `options` as options of its own, in place of its parameter `name`; typer finds
    options in a function's signature."""
    hints = get_type_hints(options, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in dataclasses.fields(options)
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [each.replace(kind=each.KEYWORD_ONLY) for each in signature.parameters.values() if each.name != name]

        @functools.wraps(command)
        def with_them(**values: Any) -> None:
            given = options(**{each.name: values.pop(each.name) for each in shared})
            command(**{name: given}, **values)

        with_them.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
        with_them.__annotations__ = {each.name: each.annotation for each in [*own, *shared]}
        return with_them

    return decorate
