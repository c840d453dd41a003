"""`headwater passwd`: the users of a password file."""

from __future__ import annotations

import getpass
import os
import sys
from typing import Annotated

import typer

from headwater.cli.failure import fail

COMMAND = "passwd"


def passwd(
    file: Annotated[str, typer.Argument(help="The password file; made if it does not exist.")],
    user: Annotated[str | None, typer.Argument(help="The user to add, change or delete.")] = None,
    password: Annotated[
        str | None, typer.Argument(help="Only with -b: others can see the arguments of commands.", show_default=False)
    ] = None,
    batch: Annotated[bool, typer.Option("-b", "--batch", help="Take the password from the command line.")] = False,
    create: Annotated[bool, typer.Option("-c", "--create", help="Begin a new file, whatever is in it.")] = False,
    delete: Annotated[bool, typer.Option("-D", "--delete", help="Delete the user.")] = False,
    show: Annotated[bool, typer.Option("-l", "--list", help="List the users.")] = False,
    source: Annotated[
        str | None, typer.Option("--import", help="Take over the users of another file, such as Mosquitto's.")
    ] = None,
) -> None:
    """Add, change, delete or list the users of a password file. The password is asked for, or read from standard input.

    Passwords are kept as argon2id hashes. Those of Mosquitto's files can be taken over and used as they are; they
    become argon2id when the password is set again.
    """
    if (password is not None) != batch:
        fail(COMMAND, "a password on the command line needs -b, and -b needs one; without both it is asked for")
    if sum((delete, show, source is not None, batch)) > 1:
        fail(COMMAND, "only one of -b, -D, --list and --import at a time")
    if (user is None) != (show or source is not None):
        fail(COMMAND, "which user?" if user is None else "--list and --import are for all users")
    from headwater.node.access.errors import AccessError
    from headwater.node.access.passwords import PasswordFile, check_user

    try:
        if user is not None and not delete:
            check_user(user)
        exists = os.path.exists(file) and not create
        users = PasswordFile.load(file) if exists or show or delete else PasswordFile()
        if show:
            print("".join(f"{each}\n" for each in users.entries), end="")
            return
        if source is not None:
            users.entries.update(PasswordFile.load(source).entries)
        elif user is not None and delete:
            if users.entries.pop(user, None) is None:
                fail(COMMAND, f"there is no user {user!r} in {file}")
        elif user is not None:
            users.set(user, _ask() if password is None else password)
        users.save(file)
    except AccessError as error:
        fail(COMMAND, str(error))


def _ask() -> str:
    """From the terminal, twice; or the first line of standard input."""
    if sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            fail(COMMAND, "the two are not the same")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        fail(COMMAND, "the password is empty")
    return password
