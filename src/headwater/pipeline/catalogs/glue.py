"""AWS Glue's data catalog, and what speaks its API: Delta tables as Athena, Trino and Spark on EMR find them."""

from __future__ import annotations

from typing import Any, Final

from headwater.pipeline.catalogs.described import CatalogError, Described
from headwater.pipeline.catalogs.settings import Catalog

PARAMETERS: Final = {"EXTERNAL": "TRUE", "table_type": "delta", "spark.sql.sources.provider": "delta"}


class Glue:
    def __init__(self, settings: Catalog) -> None:
        try:
            import boto3
        except ImportError:
            raise CatalogError("glue needs boto3: pip install 'headwater[glue]'") from None
        self._database = settings.name
        self._client: Any = boto3.client("glue", region_name=settings.region, endpoint_url=settings.url)

    def register(self, table: Described) -> bool:
        """Whether anything had to be done. Raises CatalogError."""
        try:
            return self._register(table)
        except self._client.exceptions.ClientError as error:
            raise CatalogError(f"glue: {error}") from None
        except Exception as error:  # of botocore: no credentials, no region, nobody there
            raise CatalogError(f"glue: {error}") from None

    def _register(self, table: Described) -> bool:
        wanted = {
            "Name": table.name,
            "Description": table.doc,
            "TableType": "EXTERNAL_TABLE",
            "Parameters": PARAMETERS,
            "StorageDescriptor": {
                "Location": table.location,
                "Columns": [{"Name": name, "Type": type} for name, type in table.columns],
            },
        }
        missing = self._client.exceptions.EntityNotFoundException
        try:
            known = self._client.get_table(DatabaseName=self._database, Name=table.name)["Table"]
        except missing:
            try:
                self._client.get_database(Name=self._database)
            except missing:
                self._client.create_database(DatabaseInput={"Name": self._database})
            self._client.create_table(DatabaseName=self._database, TableInput=wanted)
            return True
        storage: Any = wanted["StorageDescriptor"]
        there = [(each["Name"], each["Type"]) for each in known["StorageDescriptor"].get("Columns", [])]
        if there == list(table.columns) and known["StorageDescriptor"].get("Location") == storage["Location"]:
            return False
        self._client.update_table(DatabaseName=self._database, TableInput=wanted)
        return True
