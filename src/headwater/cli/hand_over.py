"""`headwater edge hand-over`: the delivery store of a node that runs goes to another node (docs/edge.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.admin import read_token
from headwater.cli.data import TokenFile
from headwater.cli.failure import complain, fail


def hand_over(
    source: Annotated[
        str,
        typer.Option("--from", metavar="URL", help="The admin API of the node that has the store: http://old:18830."),
    ],
    folder: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", help="The data folder of the node that gets it; not in use.")
    ],
    node: Annotated[str, typer.Option("--node", help="Name of the node that gets it, for the other one's records.")],
    token_file: TokenFile = None,
    freeze: Annotated[
        float, typer.Option("--freeze", min=0.1, max=60.0, help="Seconds for which publishers wait at most.")
    ] = 10.0,
    release: Annotated[
        bool,
        typer.Option(
            "--release", help="Then let publishers at the old node go on; what they send is not stored there."
        ),
    ] = False,
    fence: Annotated[
        Path | None,
        typer.Option("--fence", metavar="FILE", help="The old node's handed-over.json, if that node cannot be asked."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was taken over as JSON.")] = False,
) -> None:
    """Take over the delivery store of a node that runs: its id and positions stay, and the old node takes messages for
    it no more. Killed, it goes on when it is started again with the same options. Then start the new node with DIR."""
    from headwater.disk.errors import StorageError
    from headwater.disk.lock import locked, make_folder
    from headwater.edge.http_source import HttpSource
    from headwater.edge.taking_over import TakeOverError, take_over
    from headwater.node.persistence.folder import MESSAGES
    from headwater.store.hand_over import fence_in

    def tell(text: str) -> None:
        complain("edge hand-over", text, quiet=as_json)

    asked = HttpSource(source, read_token("edge hand-over", token_file))
    try:
        make_folder(folder)
        with locked(folder):
            known = None if fence is None else fence_in(fence)
            took = take_over(folder / MESSAGES, asked, node, freeze=freeze, tell=tell, fence=known)
            if release:
                asked.ask(f"/{took.hand_over}/release", {})
    except (StorageError, TakeOverError) as error:
        fail("edge hand-over", f"{error}.")
    if as_json:
        print(json.dumps({**took._asdict(), "split/pause_ms": took.pause * 1e3}))
