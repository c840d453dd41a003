"""Nodes that do not keep one promise of how filters move, each in its own way: the campaign has to find them.

They are made in the node's own process, out of modules that are not compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from headwater.edge.messages import View
from headwater.edge.owners import Owners
from headwater.edge.ownership import Table
from headwater.node.links.owning import Owning


def _deaf() -> None:
    """Says that it has heard of others' views, and forgets them, but for the first one: it stores by an old view."""
    viewed = Owning._viewed

    def view_once(self: Owning, node: str, view: View, body: bytes, is_letter: bool) -> None:
        use = self._use
        if node in self.owners.heard:
            self._use = _do_nothing  # type: ignore[method-assign]
        try:
            viewed(self, node, view, body, is_letter)
        finally:
            self._use = use  # type: ignore[method-assign]

    _replace(Owning, "_viewed", view_once)


def _do_nothing(node: str) -> None:
    pass


def _hasty() -> None:
    """Takes what is its own by a new view at once, whether the former owner has what was before it or not."""

    def nobody(self: Owners, node: str, view: View) -> set[str]:
        return set()

    _replace(Owners, "must_wait", nobody)


def _early_end() -> None:
    """Says that its stretch has ended as soon as it hears of a claim, while messages are still under way to it."""

    def nobody(self: Owners, filter: str, rank: tuple[int, str], members: Iterable[str]) -> list[str]:
        return []

    _replace(Owners, "_unswitched", nobody)


def _greedy() -> None:
    """Goes on to store what is published at itself, whoever owns it now."""

    def ignore(self: Owning, table: Table) -> None:
        self.server.hot.own_fanouts.forget("#")

    _replace(Owning, "_view_changed", ignore)


def _impolite() -> None:
    """Ends its clients' connections when its view changes, so that they come back to new routes."""
    change = Owning._view_changed

    def end_connections(self: Owning, table: Table) -> None:
        change(self, table)
        for channel in [each for each in self.server.channels if each.session is not None]:
            self.server.close(channel, 0, True)

    _replace(Owning, "_view_changed", end_connections)


def _replace(owner: type, name: str, function: Callable[..., Any]) -> None:
    if not hasattr(owner, name):
        raise AttributeError(f"{owner.__name__} has no {name} any more: the broken node is none")
    setattr(owner, name, function)


BROKEN: Final[dict[str, Callable[[], None]]] = {
    "deaf": _deaf,
    "hasty": _hasty,
    "early-end": _early_end,
    "greedy": _greedy,
    "impolite": _impolite,
}
