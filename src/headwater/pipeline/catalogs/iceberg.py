"""Tables as Iceberg tables, too: the same Parquet files, told to a catalog of Iceberg.

Theory. A version of a Delta table is a set of files. A snapshot of an Iceberg table is a set of files as well,
committed by the catalog in one step if nobody else has. So nothing is written twice, and nothing has to be remembered:
what the newest snapshot has is compared with what the table has now; the difference is one snapshot, which adds and
removes files and carries the version, and the positions of the version, as properties. Whoever is killed between the
two compares again. So a row is in the Iceberg table exactly once if it is in the Delta table exactly once, whatever
happened between.

    property of a snapshot            what it says
    headwater.version                 the Delta version whose files it has
    headwater.positions.STORE         up to which position of a store the table contains everything

Iceberg knows columns by numbers, which our files do not carry: the table has a mapping by name. The column of days is
in no file, as Delta has it in the folders' names; it is the partition, whose value Iceberg keeps beside each file.

Files that Delta has replaced are removed after a while (`keep_replaced`), so older snapshots are expired before that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.disk.crash_points import crash_point
from headwater.pipeline.catalogs.described import CatalogError
from headwater.pipeline.catalogs.settings import Iceberg as Settings
from headwater.pipeline.jobs.status import JOBS
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.snapshot import Snapshot
from headwater.pipeline.tables import named

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction

VERSION: Final = "headwater.version"
POSITIONS: Final = "headwater.positions."
PROPERTIES: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "commit.retry.num-retries": "0",
}
"""A commit that failed must not be tried again by itself: what was missing may be there now. We compare again."""
EPOCH: Final = date(1970, 1, 1)
log = logging.getLogger(__name__)


def open_catalog(settings: Settings) -> Catalog:
    """Raises CatalogError."""
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise CatalogError(f"iceberg needs {error.name}: pip install 'headwater[iceberg]'") from None
    try:
        catalog = load_catalog("headwater", **settings.catalog)
        catalog.create_namespace_if_not_exists(settings.namespace)
    except Exception as error:  # of any kind of catalog
        raise CatalogError(f"iceberg: {type(error).__name__}: {error}") from None
    return catalog


class IcebergTable:
    """One table of the lake, in the catalog. Belongs to one thread."""

    def __init__(self, catalog: Catalog, namespace: str, lake: Lake, name: str) -> None:
        self._catalog = catalog
        self._identifier = f"{namespace}.{name}"
        self._lake = lake
        self._name = name
        self._partition = named(name).partition

    def bring(self, snapshot: Snapshot) -> bool:
        """Whether there was anything to tell. Raises CatalogError."""
        try:
            return self._bring(snapshot)
        except CatalogError:
            raise
        except Exception as error:  # of the catalog, of storage, or somebody else has committed
            raise CatalogError(f"iceberg: {self._identifier}: {type(error).__name__}: {error}") from error

    def _bring(self, snapshot: Snapshot) -> bool:
        table = self._opened(snapshot)
        lacking = {name: value for name, value in PROPERTIES.items() if table.properties.get(name) != value}
        if lacking:
            with table.transaction() as transaction:
                transaction.set_properties(lacking)
        said = table.current_snapshot()
        before = -1 if said is None or said.summary is None else int(said.summary.get(VERSION, "-1") or -1)
        if before == snapshot.version:
            return False
        there = _files_of(table)
        wanted = {self._url(path): path for path in snapshot.files}
        added = [path for url, path in wanted.items() if url not in there]
        gone = [there[url] for url in there.keys() - wanted.keys()]
        with table.transaction() as transaction:
            self._widen(transaction, snapshot)
            data = [self._data_file(table, transaction, snapshot, path) for path in added]
            update = transaction.update_snapshot(snapshot_properties=self._properties(snapshot))
            with update.overwrite() if gone or not data else update.merge_append() as producer:
                for each in gone:
                    producer.delete_data_file(each)
                for each in data:
                    producer.append_data_file(each)
            crash_point("iceberg-before-commit", self._name)
        crash_point("iceberg-after-commit", self._name)
        self._expire()
        return True

    def _opened(self, snapshot: Snapshot) -> Table:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            schema = self._schema(snapshot)
            table = self._catalog.create_table_if_not_exists(self._identifier, schema, properties=PROPERTIES)
        if self._partition is not None and table.spec().is_unpartitioned():
            with table.update_spec() as update:
                update.add_identity(self._partition)
        return self._catalog.load_table(self._identifier)

    def _schema(self, snapshot: Snapshot) -> pa.Schema:
        """A column that is in no file has to be an optional one, or readers refuse the file."""
        if self._partition is None:
            return snapshot.schema
        at = snapshot.schema.get_field_index(self._partition)
        return snapshot.schema.set(at, snapshot.schema.field(at).with_nullable(True))

    def _widen(self, transaction: Transaction, snapshot: Snapshot) -> None:
        """With the columns that the table has got meanwhile, and the mapping of names that goes with them."""
        known = set(transaction.table_metadata.schema().column_names)
        if not {each.name for each in snapshot.schema} <= known:
            with transaction.update_schema() as update:
                update.union_by_name(self._schema(snapshot))
        mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
        if transaction.table_metadata.properties.get("schema.name-mapping.default") != mapping:
            transaction.set_properties({"schema.name-mapping.default": mapping})

    def _data_file(self, table: Table, transaction: Transaction, snapshot: Snapshot, path: str) -> DataFile:
        """As Iceberg describes it, from the file's own end. The day is in its path."""
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        metadata = transaction.table_metadata
        schema = metadata.schema()
        url = self._url(path)
        source = table.io.new_input(url)
        with source.open() as stream:
            footer = pq.read_metadata(stream)
        statistics = data_file_statistics_from_parquet_metadata(
            footer, compute_statistics_plan(schema, metadata.properties), parquet_path_to_id_mapping(schema)
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=url,
            file_format=FileFormat.PARQUET,
            partition=Record(*self._partition_of(path)),
            file_size_in_bytes=len(source),
            sort_order_id=None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )

    def _partition_of(self, path: str) -> Iterable[int]:
        """Iceberg has days as numbers since 1970."""
        if self._partition is not None:
            yield (date.fromisoformat(path.split("/", maxsplit=1)[0].partition("=")[2]) - EPOCH).days

    def _properties(self, snapshot: Snapshot) -> dict[str, str]:
        positions = snapshot.positions(JOBS[self._name]) if self._name in JOBS else {}
        told = {f"{POSITIONS}{store}": str(position) for store, position in positions.items()}
        return {VERSION: str(snapshot.version), **told}

    def _expire(self) -> None:
        """Snapshots whose files may be gone soon: half of the time for which replaced files stay."""
        kept = timedelta(seconds=self._lake.keeping.kept(self._name) / 2)
        table = self._catalog.load_table(self._identifier)
        before = datetime.now(UTC) - kept
        if any(each.timestamp_ms / 1000 < before.timestamp() for each in table.snapshots()[:-1]):
            table.maintenance.expire_snapshots().older_than(before).commit()

    def _url(self, path: str) -> str:
        return f"{self._lake.reading(named(self._name)).place.url}/{path}"


def _files_of(table: Table) -> dict[str, DataFile]:
    """By their URLs."""
    said = table.current_snapshot()
    if said is None:
        return {}
    found: dict[str, DataFile] = {}
    for manifest in said.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            found[entry.data_file.file_path] = entry.data_file
    return found


class IcebergTables:
    """All that are told, each at most every so many seconds. `clock` is monotonic."""

    def __init__(self, lake: Lake, settings: Settings, clock: Callable[[], float]) -> None:
        self._lake = lake
        self._settings = settings
        self._clock = clock
        self._tables: dict[str, IcebergTable] = {}
        self._catalog: Catalog | None = None
        self._next = 0.0

    def bring(self, snapshots: Mapping[str, Snapshot], at_once: bool = False) -> list[str]:
        """The names of those that were told. Raises CatalogError behind the last table, if one was not taken."""
        now = self._clock()
        if now < self._next and not at_once:
            return []
        self._next = now + self._settings.every
        if self._catalog is None:
            self._catalog = open_catalog(self._settings)
        told, failures = [], []
        for name in self._settings.tables:
            if name not in snapshots:
                continue
            table = self._tables.setdefault(
                name, IcebergTable(self._catalog, self._settings.namespace, self._lake, name)
            )
            try:
                if table.bring(snapshots[name]):
                    told.append(name)
            except CatalogError as error:
                failures.append(str(error))
        if failures:
            raise CatalogError("; ".join(failures))
        return told
