"""Commands of other installed packages, which name them as entry points of the group `headwater.commands`.

What is installed is looked up only when a command is asked for that is not our own, or all of them are listed, so that
a broker starts without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperGroup

from headwater.cli.failure import fail

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "headwater.commands"
OF_THE_LAB: Final = ("bench", "check-broker", "reproduce")
"""What the package headwater-lab adds; known here only to say what is missing."""


class PluggedGroup(TyperGroup):
    """Our commands first, then those of other packages. One of ours cannot be replaced."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(dict.fromkeys([*super().list_commands(ctx), *sorted(each.name for each in installed())]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or _plugged(cmd_name)


def installed() -> list[EntryPoint]:
    from importlib.metadata import entry_points

    return list(entry_points(group=GROUP))


def _plugged(name: str) -> Any:
    from typer.main import get_command

    for each in installed():
        if each.name == name:
            return get_command(each.load())
    if name in OF_THE_LAB:
        fail(name, "it is in the package headwater-lab: pip install headwater-lab (or ./lab of the repository).")
    return None
