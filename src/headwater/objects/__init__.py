"""Objects by URL: a folder, S3 and what speaks it, Azure, Google Cloud Storage, or the memory of this process.

    place = open_place("s3://bucket/lake", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_ALLOW_HTTP": "true"})
    place.put("name", b"…")                      its etag; what was there is replaced
    place.put_if_absent("name", b"…")            its etag; None: something else has the name
    place.put_if_match("name", b"…", etag)       its new etag; None: it is not any more what has that etag
    place.get("name").data                       whole; `place.get("name").item.etag`; raises Missing
    place.read("name", 4096, 100)                a range
    place.head("name")                           an Item: name, size, modified, etag; None: it is not there
    place.list("folder", after="folder/b")       Items in the order of names, with all below
    place.level("folder")                        one folder's items and folders
    place.delete(["name", "other"])
    place.put_file("name", Path("large.bin"))    in parts
    with place.sink("name") as sink: …           written as it is made; appears when the context ends well
    place.open("name")                           a file to read and seek in
    place.below("tables/gold")                   a Place again; it pickles
    arrow.filesystem(place)                      for Parquet and datasets
    arrow.output(sink)                           for a ParquetWriter

Objects appear whole or not at all. `place.py` has the contract, `tests/contract/test_places.py` shows it for each kind.

Options are named as deltalake's `storage_options`: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_ALLOW_HTTP,
AZURE_STORAGE_ACCOUNT_NAME, GOOGLE_SERVICE_ACCOUNT and so on, and `timeout`, `connect_timeout`, `max_retries`,
`retry_timeout` for any store. What is not given comes from the environment of each machine (`settings.py`). Folders
need the standard library only, others `headwater[objects]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from headwater.objects.folder import Folder
from headwater.objects.place import Content, Denied, Item, Level, Missing, Place, PlaceError, Sink
from headwater.objects.settings import scheme_of

__all__ = [
    "Content",
    "Denied",
    "Item",
    "Level",
    "Missing",
    "Place",
    "PlaceError",
    "Sink",
    "is_remote",
    "open_place",
]


def is_remote(url: str | Path) -> bool:
    """Whether it is no folder. Raises PlaceError if it is no place at all."""
    return scheme_of(str(url)) is not None


def open_place(url: str | Path, options: Mapping[str, str] | None = None) -> Place:
    """Nothing is asked of a store, and no folder is made, before the place is used. Raises PlaceError."""
    text = str(url)
    if is_remote(text):
        from headwater.objects.remote import Remote

        return Remote(text, options)
    if text.startswith("file:"):
        text = "/" + unquote(text.removeprefix("file:")).lstrip("/")
    return Folder(text)
