"""A Hive metastore, by its Thrift interface: Delta tables as Spark and Trino keep them there."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from headwater.pipeline.catalogs.described import CatalogError, Described
from headwater.pipeline.catalogs.settings import Catalog

PROVIDER: Final = "spark.sql.sources.provider"
SERDE: Final = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
PORT: Final = 9083
TIMEOUT: Final = 15_000
"""Milliseconds."""


class Hive:
    def __init__(self, settings: Catalog) -> None:
        try:
            from hive_metastore import ThriftHiveMetastore, ttypes  # which PyIceberg brings
            from thrift.protocol import TBinaryProtocol
            from thrift.transport import TSocket, TTransport
        except ImportError:
            raise CatalogError("hive needs Thrift: pip install 'headwater[hive]'") from None
        url = urlsplit(settings.url or "")
        self._database = settings.name
        self._types: Any = ttypes
        socket = TSocket.TSocket(url.hostname, url.port or PORT)
        socket.setTimeout(TIMEOUT)
        self._transport: Any = TTransport.TBufferedTransport(socket)
        self._client: Any = ThriftHiveMetastore.Client(TBinaryProtocol.TBinaryProtocol(self._transport))

    def register(self, table: Described) -> bool:
        """Whether anything had to be done. Raises CatalogError."""
        try:
            self._transport.open()
            try:
                return self._register(table)
            finally:
                self._transport.close()
        except Exception as error:  # of Thrift, of the metastore, of the network
            raise CatalogError(f"hive: {getattr(error, 'message', None) or error}") from None

    def _register(self, table: Described) -> bool:
        missing = self._types.NoSuchObjectException
        wanted = self._table(table)
        try:
            known = self._client.get_table(self._database, table.name)
        except missing:
            try:
                self._client.get_database(self._database)
            except missing:
                self._client.create_database(self._types.Database(name=self._database, parameters={}))
            self._client.create_table(wanted)
            return True
        if [(each.name, each.type) for each in known.sd.cols] == list(
            table.columns
        ) and known.sd.location == table.location:
            return False
        self._client.alter_table(self._database, table.name, wanted)
        return True

    def _table(self, table: Described) -> Any:
        types = self._types
        storage = types.StorageDescriptor(
            cols=[types.FieldSchema(name, type, None) for name, type in table.columns],
            location=table.location,
            inputFormat="org.apache.hadoop.mapred.SequenceFileInputFormat",
            outputFormat="org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat",
            serdeInfo=types.SerDeInfo(serializationLib=SERDE, parameters={"path": table.location}),
        )
        return types.Table(
            dbName=self._database,
            tableName=table.name,
            tableType="EXTERNAL_TABLE",
            sd=storage,
            partitionKeys=[],
            parameters={"EXTERNAL": "TRUE", PROVIDER: "delta", "comment": table.doc},
        )
