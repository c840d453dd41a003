"""RocksDB through rocksdict, which is imported here and nowhere else, and only when it is used.

Theory. What decided how it is used, measured with rocksdict 0.3.29 by a thread that spins in Python meanwhile:

- `Rdict.write` holds the interpreter's lock for all of its time: 20,000 keys with 200 bytes each stop every other
  thread for 60 ms, 50 keys for 0.1 ms. A sync inside the write would stop the broker for as long as the disk takes, so
  nothing is written with `sync`; `Rdict.flush_wal(True)`, `flush`, `get` and iterators let others run.
- A write that RocksDB holds back because flushing or compaction cannot keep up would stop the broker for seconds.
  Therefore its own brakes are set out of reach, and who writes calls `wait_for_room` before, which looks at the same
  figures and sleeps, without the lock (4 us for each batch). The option `no_slowdown` is no way out: what it refuses is
  refused for ever.
- `Rdict.items` ends silently where a block is damaged; `Rdict.iter` has a status, and is as fast (0.3 us a key).

A store may have several families of keys, each with buffers and files of its own, and one log: a batch over several of
them is whole after a crash. What `get_column_family` returns is another hold on the store, and has to be closed too;
what `get_column_family_handle` returns and iterators have to be let go of. Until then the store stays open and locked.
A batch goes to the family whose handle each `put` and `delete` names, and to the default one if it names none; whose
`write` is called does not matter.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from headwater.disk.errors import DiskFull, StorageError, storage_error
from headwater.disk.repair import LogCheck

if TYPE_CHECKING:
    from rocksdict import Options, Rdict, RdictIter, WriteBatch

MEGA: Final = 1024 * 1024

BUFFERS_AT_MOST: Final = 2
"""Full ones that wait for being written to a file; above, `wait_for_room` waits."""
FRESH_FILES_AT_MOST: Final = 32
"""Files that wait for being merged with others; above, `wait_for_room` waits."""
LOG_AT_MOST: Final = 128 * MEGA
"""Of the write-ahead log: what has to be read again after a crash."""
OPEN_FILES: Final = 256
WAIT: Final = 0.002

_OUT_OF_REACH: Final = 1 << 30

Compression = Literal["none", "lz4", "zstd"]


# ---- opening ---------------------------------------------------------------------------------------------------


def open_rocks(
    path: Path, create: bool, options: Options, families: dict[str, Options] | None = None, *, repaired: bool = False
) -> Rdict:
    """The store in `path`, with a log whose torn end, if it has one, is put aside and told of (repair.py).

    It is made if `create`, and so are those of the `families` that it does not have; all that it has must be named, or
    none at all. What `options` say of recovery and making is set here. `repaired`: changes may be missing in the middle
    of its log. Raises StorageError; DamagedLog if they are, and it was not.
    """
    from rocksdict import DBRecoveryMode, Rdict

    options.create_if_missing(create)
    options.create_missing_column_families(families is not None)
    options.set_wal_recovery_mode(DBRecoveryMode.absolute_consistency())
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        check = LogCheck(path)
        if repaired or check.looks_whole():
            try:
                return Rdict(str(path), options, families)
            except Exception as error:
                if repaired or "Corruption" not in str(error) or not check.cut_torn_end():
                    raise
        else:
            check.cut_torn_end()
        return Rdict(str(path), options, families)
    except StorageError:
        raise
    except Exception as error:
        raise explained("open", path, error) from None


def follow_rocks(path: Path, own: Path, options: Options, families: dict[str, Options]) -> Rdict:
    """The store in `path`, which another process writes to, for reading: RocksDB's secondary instance. It sees what had
    been written when it was opened, or when `try_catch_up_with_primary` was called last; its own log goes to `own`.

    Measured with rocksdict 0.3.29: batches are seen whole, but where the writer has just turned a buffer into a file,
    one look may miss what was in it, and the next one sees it. So whoever follows has to know what must be there. It
    keeps all files open (what the writer deletes can be read on). Raises StorageError.
    """
    from rocksdict import AccessType, Rdict

    for each in (options, *families.values()):
        each.set_max_open_files(-1)
    try:
        own.mkdir(mode=0o700, exist_ok=True)
        return Rdict(str(path), options, families, AccessType.secondary(str(own)))
    except Exception as error:
        raise explained("follow", path, error) from None


def rocks_options(*, write_buffer: int, cache: int, compression: Compression = "lz4") -> Options:
    """For a store, or for one family of it, which then has the buffers and the cache for itself.

    Raises StorageError if RocksDB is not installed: nothing can be opened without having been here.
    """
    try:
        from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options
    except ImportError as error:
        raise StorageError(
            f"a data folder needs rocksdict ({error}): pip install 'headwater[durable]', or run without one"
        ) from None

    options = Options(raw_mode=True)
    options.set_write_buffer_size(write_buffer)
    options.set_max_total_wal_size(LOG_AT_MOST)
    options.set_compression_type(getattr(DBCompressionType, compression)())
    options.set_max_background_jobs(2)
    options.set_bytes_per_sync(MEGA)
    options.set_avoid_unnecessary_blocking_io(True)
    # A queue leaves files full of deletions, over which every look at its head has to pass.
    options.add_compact_on_deletion_collector_factory(1024, 512, 0.5)
    # RocksDB's brakes, out of reach of ours.
    options.set_max_write_buffer_number(BUFFERS_AT_MOST + 3)
    options.set_level_zero_slowdown_writes_trigger(_OUT_OF_REACH)
    options.set_level_zero_stop_writes_trigger(_OUT_OF_REACH)
    options.set_soft_pending_compaction_bytes_limit(0)
    options.set_hard_pending_compaction_bytes_limit(0)
    # Memory and files.
    table = BlockBasedOptions()
    table.set_block_cache(Cache(cache))
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_bloom_filter(10, False)
    options.set_block_based_table_factory(table)
    options.set_max_open_files(OPEN_FILES)
    options.set_max_file_opening_threads(2)
    # Its own log: three small files.
    options.set_keep_log_file_num(3)
    options.set_max_log_file_size(MEGA)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


# ---- writing and copying ---------------------------------------------------------------------------------------


def new_batch() -> WriteBatch:
    """An empty one, for `Rdict.write`."""
    from rocksdict import WriteBatch

    return WriteBatch(raw_mode=True)


def wait_for_room(*written: Rdict) -> None:
    """Return when RocksDB would not hold a write back; `written` are the store, or those families that are written to.

    At once if it has failed in the background: the next write says so.
    """
    for each in written:
        look = each.property_int_value
        while (
            (look("rocksdb.num-immutable-mem-table") or 0) >= BUFFERS_AT_MOST
            or int(each.property_value("rocksdb.num-files-at-level0") or 0) >= FRESH_FILES_AT_MOST
        ) and not look("rocksdb.background-errors"):
            time.sleep(WAIT)


def make_checkpoint(db: Rdict, path: Path) -> None:
    """Make `path`, which does not exist, a store with all that has been written; it shares files where it can.

    `Checkpoint` holds the interpreter's lock, `flush` does not: it leaves little to do. It is for
    the keys of `db` alone: whoever has families flushes each of them before.
    """
    from rocksdict import Checkpoint

    db.flush()
    Checkpoint(db).create_checkpoint(str(path))


class RocksKeys:
    """A store that is open. Any thread may read; writes of several threads are in some order, and after one that failed
    there is no other: a later batch would be there without an earlier one. Only if the disk is full (DiskFull), the
    same batch, of which nothing is there then, may be written again: RocksDB goes on within seconds of there being
    room, and has by then written to sorted files what its damaged log should have."""

    def __init__(self, path: Path, db: Rdict) -> None:
        self.path = path
        self._db = db
        self._error: StorageError | None = None
        self._closed = False

    def sync(self) -> None:
        self._check()
        try:
            self._db.flush_wal(True)
        except Exception as error:
            raise self._failed("sync", error) from None

    def get(self, key: bytes) -> bytes | None:
        return self._read(self._db, key)

    def _read(self, family: Rdict, key: bytes) -> bytes | None:
        self._check_open()
        try:
            value: bytes | None = family.get(key)
        except Exception as error:
            raise explained("read from", self.path, error) from None
        return value

    def _items(self, cursor: RdictIter, start: bytes, prefix: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        """From `start` on, as far as keys begin with `prefix`. The cursor sees what was there when it was made."""
        with self._explaining("read from"):
            try:
                cursor.seek(start)
                while cursor.valid():
                    key: bytes = cursor.key()
                    if not key.startswith(prefix):
                        return
                    yield key, cursor.value()
                    cursor.next()
                cursor.status()
            finally:
                del cursor  # whoever holds the error must not keep the store open

    def _write(self, batch: WriteBatch, *families: Rdict) -> None:
        """`families` are those that it writes to besides the default one."""
        self._check()
        try:
            wait_for_room(self._db, *families)
            self._db.write(batch)
        except Exception as error:
            raise self._failed("write to", error) from None

    @contextmanager
    def _explaining(self, what: str) -> Iterator[None]:
        """A failure of RocksDB within is a StorageError that says what was tried."""
        try:
            yield
        except Exception as error:
            raise explained(what, self.path, error) from None

    def _failed(self, what: str, error: Exception) -> StorageError:
        failed = explained(what, self.path, error)
        if not isinstance(failed, DiskFull):
            self._error = failed
        return failed

    def _check(self) -> None:
        self._check_open()
        if self._error is not None:
            raise StorageError(f"the store has failed before: {self._error}")

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError("the store has been closed")


# ---- errors ----------------------------------------------------------------------------------------------------


def explained(what: str, path: Path, error: Exception) -> StorageError:
    """What RocksDB says, with the reason and the way out in front of it if we know them."""
    return storage_error(f"{what} the store {path}", " ".join(str(error).split()))
