"""Unity Catalog, the open-source server and Databricks' own: its REST API 2.1, tables as external Delta tables.

The API has no call that changes the columns of an external table, so a table with other columns is registered anew; its
files are not touched by that.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any, Final

from headwater.pipeline.catalogs.described import CatalogError, Described
from headwater.pipeline.catalogs.settings import Catalog

PREFIX: Final = "/api/2.1/unity-catalog"
TIMEOUT: Final = 15.0
NAMES: Final = {
    "string": "STRING",
    "bigint": "LONG",
    "int": "INT",
    "double": "DOUBLE",
    "float": "FLOAT",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMP",
    "date": "DATE",
    "binary": "BINARY",
}
OTHERS: Final = {"array": "ARRAY", "map": "MAP", "struct": "STRUCT", "decimal": "DECIMAL"}


class Unity:
    def __init__(self, settings: Catalog) -> None:
        self._url = (settings.url or "").rstrip("/") + PREFIX
        self._token = settings.token
        self._catalog, self._schema = settings.name.split(".")

    def register(self, table: Described) -> bool:
        """Whether anything had to be done. Raises CatalogError."""
        full = f"{self._catalog}.{self._schema}.{table.name}"
        known = self._ask("GET", f"/tables/{full}", missing=True)
        wanted = self._body(table)
        if known is not None and self._is_same(known, wanted):
            return False
        if known is not None:
            self._ask("DELETE", f"/tables/{full}")
        elif self._ask("GET", f"/schemas/{self._catalog}.{self._schema}", missing=True) is None:
            self._ask("POST", "/schemas", {"name": self._schema, "catalog_name": self._catalog})
        self._ask("POST", "/tables", wanted)
        return True

    def _body(self, table: Described) -> dict[str, Any]:
        columns = [
            {
                "name": name,
                "type_text": type,
                "type_name": NAMES.get(type) or OTHERS.get(type.partition("<")[0].partition("(")[0], "STRING"),
                "type_json": json.dumps({"name": name, "type": type, "nullable": True, "metadata": {}}),
                "position": at,
                "nullable": True,
                **({"partition_index": 0} if name == table.partition else {}),
            }
            for at, (name, type) in enumerate(table.columns)
        ]
        return {
            "name": table.name,
            "catalog_name": self._catalog,
            "schema_name": self._schema,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "storage_location": table.location,
            "comment": table.doc,
            "columns": columns,
        }

    def _is_same(self, known: dict[str, Any], wanted: dict[str, Any]) -> bool:
        def gist(table: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
            columns = sorted(table.get("columns") or [], key=lambda each: int(each.get("position", 0)))
            location = str(table.get("storage_location", "")).rstrip("/")
            return location, [(each["name"], each["type_text"]) for each in columns]

        return gist(known) == gist(wanted)

    def _ask(self, method: str, path: str, body: object = None, missing: bool = False) -> dict[str, Any] | None:
        """None: there is no such thing, which may be."""
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                found: dict[str, Any] = json.loads(answer.read() or b"{}")
                return found
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404 and missing:
                    return None
                raise CatalogError(f"unity: {method} {path}: {error.code} {_said(error.read())}") from None
        except (OSError, ValueError) as error:
            raise CatalogError(f"unity: {method} {path}: {error}") from None


def _said(body: bytes) -> str:
    try:
        return str(json.loads(body).get("message", ""))[:300]
    except (ValueError, AttributeError):
        return body[:300].decode("utf-8", "replace")
