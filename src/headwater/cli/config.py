"""`headwater config check|show|init|from-mosquitto`: settings before a broker runs with them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headwater.cli.failure import complain, fail

if TYPE_CHECKING:
    from headwater.node.config import Config
    from headwater.node.settings import Loaded

config = typer.Typer(
    name="config",
    help="Write, check and show settings of the broker.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

PRIVATE: Final = 0o600
"""Of a file with passwords of bridges in it."""
OF_A_NODE: Final[dict[str, Any]] = {"data_dir": "headwater-data", "store.enabled": True, "rest.enabled": True}
"""What `headwater node` has by default and `headwater broker` has not."""
NOT_SUPPORTED: Final = "NOT SUPPORTED"
"""How the converter marks lines that are lost."""

File = Annotated[Path, typer.Argument(help="Settings in a TOML file.", show_default=False)]
Out = Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file, which must not exist.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting, such as admin.port=1880; repeat.")
]


def read_settings(
    path: str | None, flags: dict[str, Any], assignments: list[str] | None, defaults: dict[str, Any] | None = None
) -> Loaded[Config]:
    """All sources together; raises ConfigError."""
    from headwater.node.config import Config
    from headwater.node.settings import load, parse_assignment

    given = dict(parse_assignment(Config, each) for each in assignments or [])
    given.update((name, value) for name, value in flags.items() if value is not None)
    return load(Config, path, os.environ, given, defaults)


def load_settings(
    command: str,
    path: str | None,
    flags: dict[str, Any],
    assignments: list[str] | None,
    defaults: dict[str, Any] | None = None,
) -> Loaded[Config]:
    """The same; a mistake ends the command with an explanation."""
    from headwater.node.config import ConfigError

    try:
        return read_settings(path, flags, assignments, defaults)
    except ConfigError as error:
        fail(command, str(error))


@config.command()
def check(
    file: File,
    node: Annotated[
        bool, typer.Option("--node", help="As `headwater node` starts with it, with store and REST, not `broker`.")
    ] = False,
    is_running: Annotated[
        bool, typer.Option("--running", help="A broker runs with it already: its ports and folder are in use.")
    ] = False,
    without_files: Annotated[
        bool, typer.Option("--without-files", help="Only the settings: look at nothing else on this machine.")
    ] = False,
) -> None:
    """Say what would keep a broker from starting with a file: settings, the files that they name, libraries, ports and
    the data folder. The environment does not count."""
    from headwater.node.config import Config, ConfigError
    from headwater.node.settings import load

    try:
        loaded = load(Config, str(file), {}, {}, OF_A_NODE if node else None)
    except ConfigError as error:
        fail("config check", str(error))
    if not without_files:
        from headwater.node.operations.checking import problems

        if found := problems(loaded.settings, is_running=is_running):
            fail("config check", "\n".join(found))
    print(f"{file} is fine")


@config.command()
def show(
    file: Annotated[Path | None, typer.Argument(help="Settings in a TOML file.", show_default=False)] = None,
    assignments: Assignments = None,
) -> None:
    """Print the settings in force, and where each comes from: file, environment, command line or default."""
    from headwater.node.toml_text import effective

    loaded = load_settings("config show", None if file is None else str(file), {}, assignments)
    print(effective(loaded.settings, loaded.origins), end="")


@config.command()
def init(output: Out = None) -> None:
    """Write a file of all settings with their defaults, explained and commented out."""
    from headwater.node.config import Config
    from headwater.node.toml_text import template

    head = "## Settings of headwater broker. Take away the `# ` before those that you change.\n\n"
    _write("config init", head + template(Config), output)


@config.command("from-mosquitto")
def from_mosquitto(
    file: Annotated[Path, typer.Argument(help="Mosquitto's configuration file.", show_default=False)],
    output: Out = None,
    accept_loss: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE:LINE", help="Convert without this line, though it protected something; repeat."),
    ] = None,
) -> None:
    """Make a file of our settings from one of Mosquitto's; what has no counterpart is said in comments. A line that
    protected something and has none ends it: nothing is written."""
    from headwater.node.config import ConfigError
    from headwater.node.mosquitto.conf import from_mosquitto

    try:
        text = from_mosquitto(file, accepted=accept_loss or [])
    except ConfigError as error:
        fail("config from-mosquitto", str(error))
    _write("config from-mosquitto", text, output, PRIVATE)
    if output is None and "\npassword = " in text:
        complain("config from-mosquitto", "this holds a password: with -o FILE it is for your eyes only")
    lost = text.count(NOT_SUPPORTED)
    if output is not None and lost:
        what = "1 line is" if lost == 1 else f"{lost} lines are"
        complain("config from-mosquitto", f"{what} {NOT_SUPPORTED}; the comments in {output.name} say why")


def _write(command: str, text: str, output: Path | None, mode: int = 0o666) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        fail(command, f"{output} exists and is not overwritten")
    except OSError as error:
        fail(command, f"cannot write {output}: {error.strerror}")
