"""An S3 server that may be killed: all that it has acknowledged is in a folder. Of S3 as much as lakes need.

python -m headwater_lab.kept_s3 FOLDER PORT

Servers that one can install from a package index forget everything when they end (moto), or take no notice of
conditions (rclone, s3rver). Here, an object is a file of `headwater.objects.folder.Folder`, which appears whole and
under conditions. Large uploads are parts in a folder of their own until they are completed. Nobody looks at signatures.
"""

from __future__ import annotations

import contextlib
import re
import sys
import uuid
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from headwater.objects import Item, Missing, PlaceError
from headwater.objects.folder import Folder

MOST_KEYS: Final = 1000
UPLOADS: Final = "uploads"
XML: Final = '<?xml version="1.0" encoding="UTF-8"?>\n'


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    buckets: Folder
    uploads: Folder

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""

    # ---- requests ----------------------------------------------------------------------------------------------

    def do_PUT(self) -> None:
        name, query, body = self._asked()
        if "uploadId" in query:
            self._answer(200, etag=self.uploads.put(f"{query['uploadId']}/{int(query['partNumber']):05d}", body))
            return
        try:
            etag = self._put(name, body)
        except PlaceError:  # what is a folder cannot be an object here
            self._refuse(409, "InvalidRequest")
            return
        if etag is None:
            self._refuse(412, "PreconditionFailed")
        else:
            self._answer(200, etag=etag)

    def _put(self, name: str, body: bytes) -> str | None:
        match, absent = self.headers.get("If-Match"), self.headers.get("If-None-Match")
        if absent is not None:
            return self.buckets.put_if_absent(name, body)
        if match is not None:
            return self.buckets.put_if_match(name, body, match.strip('"'))
        return self.buckets.put(name, body)

    def do_GET(self) -> None:
        name, query, _ = self._asked()
        if "list-type" in query:
            self._answer(200, self._listed(name, query).encode())
            return
        try:
            data, item = self.buckets.get(name)
        except Missing:
            self._refuse(404, "NoSuchKey")
            return
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if found is None:
            self._answer(200, data, item.etag, item)
            return
        first = int(found[1]) if found[1] else max(0, len(data) - int(found[2]))
        last = min(int(found[2]) if found[1] and found[2] else len(data) - 1, len(data) - 1)
        if first >= len(data):
            self._refuse(416, "InvalidRange")
            return
        self._answer(206, data[first : last + 1], item.etag, item, f"bytes {first}-{last}/{len(data)}")

    def do_HEAD(self) -> None:
        name, _, _ = self._asked()
        item = self.buckets.head(name)
        if item is None:
            self._answer(404)
        else:
            self._answer(200, b"", item.etag, item)

    def do_DELETE(self) -> None:
        name, query, _ = self._asked()
        if "uploadId" in query:
            self.uploads.clear(query["uploadId"])
        else:
            self.buckets.delete([name])
        self._answer(204)

    def do_POST(self) -> None:
        name, query, body = self._asked()
        if "delete" in query:
            keys = [each.text or "" for each in ElementTree.fromstring(body).iter() if each.tag.endswith("Key")]
            self.buckets.delete(f"{name}/{key}" for key in keys)
            gone = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            self._answer(200, f"{XML}<DeleteResult>{gone}</DeleteResult>".encode())
        elif "uploads" in query:
            made = f"<UploadId>{uuid.uuid4().hex}</UploadId>"
            self._answer(200, f"{XML}<InitiateMultipartUploadResult>{made}</InitiateMultipartUploadResult>".encode())
        else:
            self._complete(name, query["uploadId"])

    def _complete(self, name: str, upload: str) -> None:
        parts = [each.name for each in self.uploads.list(upload)]
        if not parts:
            self._refuse(404, "NoSuchUpload")
            return
        with self.buckets.sink(name) as sink:
            for part in parts:
                sink.write(self.uploads.get(part).data)
        self.uploads.clear(upload)
        item = self.buckets.head(name)
        etag = "" if item is None else item.etag
        said = f"<CompleteMultipartUploadResult><ETag>&quot;{etag}&quot;</ETag></CompleteMultipartUploadResult>"
        self._answer(200, f"{XML}{said}".encode())

    # ---- words -------------------------------------------------------------------------------------------------

    def _asked(self) -> tuple[str, dict[str, str], bytes]:
        """Bucket and key, what is asked beside, and the body."""
        found = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(found.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return unquote(found.path).strip("/"), query, body

    def _listed(self, bucket: str, query: dict[str, str]) -> str:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        place = self.buckets.below(bucket)
        found: list[str] = []
        groups: list[str] = []
        truncated = last = ""
        folder = prefix.rpartition("/")[0]
        for item in place.list(folder):
            if not item.name.startswith(prefix) or (after and item.name.encode() <= after.encode()):
                continue
            if len(found) + len(groups) >= MOST_KEYS:
                truncated = last
                break
            last = item.name
            rest = item.name[len(prefix) :]
            if delimiter and delimiter in rest:
                group = prefix + rest.partition(delimiter)[0] + delimiter
                if group not in groups:
                    groups.append(group)
            else:
                found.append(_contents(item))
        more = f"<NextContinuationToken>{escape(truncated)}</NextContinuationToken>" if truncated else ""
        common = "".join(f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in groups)
        count = (
            f"<KeyCount>{len(found) + len(groups)}</KeyCount><IsTruncated>{str(bool(truncated)).lower()}</IsTruncated>"
        )
        return f"{XML}<ListBucketResult>{count}{more}{''.join(found)}{common}</ListBucketResult>"

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"{XML}<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _answer(self, status: int, body: bytes = b"", etag: str = "", item: Item | None = None, part: str = "") -> None:
        self.send_response(status)
        if etag:
            self.send_header("ETag", f'"{etag}"')
        if item is not None:
            self.send_header("Last-Modified", formatdate(item.modified, usegmt=True))
        if part:
            self.send_header("Content-Range", part)
        size = item.size if self.command == "HEAD" and item is not None else len(body)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _contents(item: Item) -> str:
    modified = datetime.fromtimestamp(item.modified, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return (
        f"<Contents><Key>{escape(item.name)}</Key><LastModified>{modified}</LastModified>"
        f"<ETag>&quot;{item.etag}&quot;</ETag><Size>{item.size}</Size></Contents>"
    )


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """Clients come and go."""


def main() -> None:
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    Handler.buckets = Folder(folder / "buckets")
    Handler.uploads = Folder(folder / UPLOADS)
    with contextlib.suppress(KeyboardInterrupt), Server(("127.0.0.1", port), Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
