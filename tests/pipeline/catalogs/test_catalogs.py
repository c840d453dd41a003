"""Tables in Unity Catalog, Glue and a Hive metastore: each as a server of its own kind."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport

from headwater.fleet.process import free_port
from headwater.pipeline.catalogs.described import CatalogError, Described, describe
from headwater.pipeline.catalogs.registrar import AGAIN, Beside, Registrar, registering
from headwater.pipeline.catalogs.settings import Catalog, Iceberg, catalogs_from
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.tables import BRONZE
from tests.objects.s3_server import s3_server
from tests.pipeline.jobs.a_lake import a_message, land

GOLD = Described(
    "gold",
    "Windows.",
    "s3://bucket/lake/tables/gold",
    (("topic", "string"), ("count", "bigint"), ("day", "date")),
    "day",
)
WIDER = replace(GOLD, columns=(*GOLD.columns, ("mean", "double")))

Columns = list[tuple[str, str]]
Seen = Callable[[], tuple[str, Columns]]
"""Where the table is, and its columns, as the server has them."""


@contextmanager
def unity() -> Iterator[tuple[Catalog, Seen]]:
    """The paths of Unity Catalog's API that we use, as its description has them."""
    tables: dict[str, dict[str, Any]] = {}
    schemas: set[str] = set()

    class Handler(BaseHTTPRequestHandler):
        def serve(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"null")
            prefix, _, path = self.path.partition("/api/2.1/unity-catalog/")
            assert prefix == ""
            kind, _, name = path.partition("/")
            if self.headers["authorization"] != "Bearer secret":
                return self.say(401, {"message": "no token"})
            if kind == "schemas" and self.command == "POST":
                schemas.add(f"{body['catalog_name']}.{body['name']}")
                return self.say(200, body)
            if kind == "schemas":
                return self.say(200 if name in schemas else 404, {"message": "schema not found"})
            if self.command == "POST":
                full = f"{body['catalog_name']}.{body['schema_name']}.{body['name']}"
                if full in tables:
                    return self.say(409, {"message": "it exists"})
                if full.rpartition(".")[0] not in schemas:
                    return self.say(404, {"message": "schema not found"})
                tables[full] = body
                return self.say(200, body)
            if name not in tables:
                return self.say(404, {"message": "table not found"})
            return self.say(200, tables.pop(name) if self.command == "DELETE" else tables[name])

        do_GET = do_POST = do_DELETE = serve

        def say(self, status: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    def seen() -> tuple[str, Columns]:
        found = tables["main.iot.gold"]
        assert found["data_source_format"] == "DELTA" and found["table_type"] == "EXTERNAL"
        assert [each["name"] for each in found["columns"] if each.get("partition_index") == 0] == ["day"]
        return found["storage_location"], [(each["name"], each["type_text"]) for each in found["columns"]]

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with serving(server.serve_forever, server.shutdown):
        yield Catalog("unity", "main.iot", f"http://127.0.0.1:{server.server_port}", token="secret"), seen
    server.server_close()


@contextmanager
def serving(serve: Callable[[], object], stop: Callable[[], object]) -> Iterator[None]:
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join()


@contextmanager
def glue() -> Iterator[tuple[Catalog, Seen]]:
    import boto3

    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        url = f"http://127.0.0.1:{server.port}"

        def seen() -> tuple[str, Columns]:
            client = boto3.client("glue", region_name="us-east-1", endpoint_url=url)
            found = client.get_table(DatabaseName="iot", Name="gold")["Table"]
            assert found["Parameters"]["spark.sql.sources.provider"] == "delta"
            storage = found["StorageDescriptor"]
            return storage["Location"], [(each["Name"], each["Type"]) for each in storage["Columns"]]

        yield Catalog("glue", "iot", url, region="us-east-1"), seen


class Metastore:
    """Of Hive's interface, what we use."""

    def __init__(self) -> None:
        self.databases: set[str] = set()
        self.tables: dict[tuple[str, str], Any] = {}

    def get_database(self, name: str) -> Any:
        if name not in self.databases:
            raise ttypes.NoSuchObjectException("no such database")
        return ttypes.Database(name=name)

    def create_database(self, database: Any) -> None:
        self.databases.add(database.name)

    def get_table(self, database: str, name: str) -> Any:
        if (database, name) not in self.tables:
            raise ttypes.NoSuchObjectException("no such table")
        return self.tables[database, name]

    def create_table(self, table: Any) -> None:
        if table.dbName not in self.databases:
            raise ttypes.InvalidObjectException("no such database")
        self.tables[table.dbName, table.tableName] = table

    def alter_table(self, database: str, name: str, table: Any) -> None:
        self.get_table(database, name)
        self.tables[database, name] = table


@contextmanager
def hive() -> Iterator[tuple[Catalog, Seen]]:
    """Hive's own Thrift, on a socket."""
    metastore, port = Metastore(), free_port()
    processor = ThriftHiveMetastore.Processor(metastore)
    listening = socket.create_server(("127.0.0.1", port))

    def serve() -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                connection, _ = listening.accept()
                transport = TTransport.TBufferedTransport(TSocket.TSocket())
                transport._TBufferedTransport__trans.setHandle(connection)
                protocol = TBinaryProtocol.TBinaryProtocol(transport)
                with connection, contextlib.suppress(TTransport.TTransportException):
                    while True:
                        processor.process(protocol, protocol)

    def seen() -> tuple[str, Columns]:
        table = metastore.tables["iot", "gold"]
        assert table.parameters["spark.sql.sources.provider"] == "delta"
        assert table.sd.serdeInfo.parameters["path"] == table.sd.location
        return table.sd.location, [(each.name, each.type) for each in table.sd.cols]

    def stop() -> None:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()

    with serving(serve, stop):
        yield Catalog("hive", "iot", f"thrift://127.0.0.1:{port}"), seen


@pytest.mark.parametrize("server", [unity, glue, hive])
def test_a_table_is_registered_and_follows_its_columns(server: Callable[[], Any]) -> None:
    with server() as (settings, seen):
        catalog = registering(settings)
        assert catalog.register(GOLD)
        assert seen() == (GOLD.location, list(GOLD.columns))
        assert not catalog.register(GOLD)
        assert not registering(settings).register(GOLD)  # of another process
        assert catalog.register(WIDER)
        assert seen() == (WIDER.location, list(WIDER.columns))
        moved = replace(WIDER, location="s3://bucket/other/tables/gold")
        assert catalog.register(moved)
        assert seen()[0] == moved.location


@pytest.mark.parametrize("kind", ["unity", "glue", "hive"])
def test_a_catalog_that_is_not_there_is_one_sentence(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    name = "main.iot" if kind == "unity" else "iot"
    settings = Catalog(kind, name, f"http://127.0.0.1:{free_port()}", region="us-east-1")
    with pytest.raises(CatalogError, match=rf"^{kind}: "):
        registering(settings).register(GOLD)


def test_a_token_that_is_wrong_is_said() -> None:
    with unity() as (settings, _), pytest.raises(CatalogError, match="401 no token"):
        registering(replace(settings, token="other")).register(GOLD)


def test_a_table_of_the_lake_as_catalogs_hear_of_it(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "a lake")
    land(lake, [a_message(1)])
    found = describe(lake, "bronze", lake.snapshot(BRONZE))
    types = dict(found.columns)
    assert (types["position"], types["time"], types["payload"], types["day"]) == (
        "bigint",
        "timestamp",
        "binary",
        "date",
    )
    assert types["properties"].startswith(("array<struct<", "map<", "string"))
    assert found.location == f"file://{tmp_path}/a%20lake/tables/bronze" and found.partition == "day"


def test_a_registrar_asks_only_what_is_new_and_waits_after_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake, now, asked = Lake(tmp_path), [0.0], []
    land(lake, [a_message(1)])
    fails = [True]

    class Fake:
        def register(self, table: Described) -> bool:
            asked.append(table.name)
            if fails[0]:
                raise CatalogError("unity: it is away")
            return True

    monkeypatch.setattr("headwater.pipeline.catalogs.registrar.registering", lambda _: Fake())
    registrar = Registrar(lake, [Catalog("unity", "main.iot", tables=("bronze", "gold"))], clock=lambda: now[0])
    registrar.saw()
    assert asked == ["bronze"] and "it is away; tried again in 60 s" in caplog.text
    fails[0] = False
    registrar.saw()
    assert asked == ["bronze"]
    now[0] = AGAIN
    registrar.saw()
    assert asked == ["bronze"] * 2
    land(lake, [a_message(2)])
    registrar.saw()  # other rows, the same columns
    assert asked == ["bronze"] * 2


def test_a_catalog_that_hangs_keeps_no_round_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, asked = Lake(tmp_path), []
    land(lake, [a_message(1)])
    is_asked, answers = threading.Event(), threading.Event()

    class Fake:
        def register(self, table: Described) -> bool:
            asked.append(table.name)
            is_asked.set()
            assert answers.wait(30)
            return True

    monkeypatch.setattr("headwater.pipeline.catalogs.registrar.registering", lambda _: Fake())
    with Beside(lake, Registrar(lake, [Catalog("unity", "main.iot", tables=("bronze",))])) as beside:
        beside.saw()
        assert is_asked.wait(30)
        for _ in range(3):
            beside.saw()
        assert asked == ["bronze"]  # it hangs, and three rounds have gone by
        answers.set()
    assert asked == ["bronze"]


def test_without_catalogs_there_is_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    with Beside(Lake(tmp_path), Registrar(Lake(tmp_path), [])) as beside:
        beside.saw()
        assert threading.active_count() == before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "polaris", "name": "a"}, "glue, hive or unity"),
        ({"kind": "unity", "name": "main", "url": "http://a"}, "CATALOG.SCHEMA"),
        ({"kind": "hive", "name": "a.b", "url": "thrift://a"}, "a database"),
        ({"kind": "hive", "name": "a"}, "catalog.url"),
        ({"kind": "glue", "name": "a", "tables": ["golld"]}, "golld"),
        ({"kind": "glue", "nme": "a"}, "nme"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        catalogs_from([given])


def test_settings_of_iceberg() -> None:
    found = Iceberg.from_settings({"catalog": {"type": "rest", "uri": "http://a", "token": "secret"}, "every": 5})
    assert "secret" not in repr(found)
    for given in ({}, {"catalog": {"type": 5}}, {"catalog": {"type": "rest"}, "every": "x"}):
        with pytest.raises(ValueError, match="iceberg"):
            Iceberg.from_settings(given)
