"""One command for everything: `headwater broker`, `pub`, `sub`, `version`.

The modules of the commands hold their options and import what does the work only when it is to be done, so that
`headwater broker` does not load the client and listens soon.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    try:
        _run(sys.argv[1:])
    except OSError as error:  # commands deal with their own files: what is left is the output
        from headwater.cli.failure import forget_output

        forget_output()
        if not isinstance(error, BrokenPipeError):  # `headwater export … | head`: nobody wants more
            what = "cannot write" if error.filename is None else f"cannot use {error.filename}"
            print(f"headwater: {what}: {error.strerror or error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:  # before there was anything to end in good order
        sys.exit(128 + signal.SIGINT)


def _run(arguments: list[str]) -> None:
    from headwater.cli.app import app
    from headwater.cli.properties import gather_properties

    if arguments[:1] != ["passwd"]:  # whose -D is something else, as mosquitto_passwd's
        arguments = gather_properties(arguments)
    try:
        app(args=arguments, prog_name="headwater")
    finally:
        sys.stdout.flush()
