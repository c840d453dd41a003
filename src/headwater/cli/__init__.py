"""One command for everything: `headwater broker`, `pub`, `sub`, `version`.

The modules of the commands hold their options and import what does the work only when it is to be done, so that
`headwater broker` does not load the client and listens soon.
"""

from __future__ import annotations

import sys


def main() -> None:
    from headwater.cli.app import app
    from headwater.cli.properties import gather_properties

    arguments = sys.argv[1:]
    if arguments[:1] != ["passwd"]:  # whose -D is something else, as mosquitto_passwd's
        arguments = gather_properties(arguments)
    app(args=arguments, prog_name="headwater")
