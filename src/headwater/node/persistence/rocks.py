"""The store on disk: RocksDB through rocksdict, which is imported here and nowhere else.

What decided how it is used, measured with rocksdict 0.3.29 by a thread that spins in Python meanwhile:

- `Rdict.write` holds the interpreter's lock for all of its time: 20,000 keys with 200 bytes each stop every other
  thread for 60 ms, 50 keys for 0.1 ms. A sync inside the write would stop the broker for as long as the disk takes, so
  nothing is written with `sync`; `Rdict.flush_wal(True)`, `flush`, `get` and iterators let others run.
- A write that RocksDB holds back because flushing or compaction cannot keep up would stop the broker for seconds.
  Therefore its own brakes are set out of reach, and `write` looks at the same figures and sleeps, without the lock
  (4 us for each batch). The option `no_slowdown` is no way out: what it refuses is refused for ever.
- `Rdict.items` ends silently where a block is damaged; `Rdict.iter` has a status, and is as fast (0.3 us a key).
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater.node.persistence.backend import Backend, StorageError
from headwater.node.persistence.reasons import storage_error
from headwater.node.persistence.repair import LogRepair

if TYPE_CHECKING:
    from rocksdict import Options, Rdict, RdictIter

KILO: Final = 1024
MEGA: Final = 1024 * KILO

WRITE_BUFFER: Final = 16 * MEGA
"""What is written collects in memory up to here, then it goes to a sorted file. Most deliveries are deleted before."""
BUFFERS_AT_MOST: Final = 2
"""Full ones that wait for being written to a file; above, `write` waits."""
FRESH_FILES_AT_MOST: Final = 32
"""Files that wait for being merged with others; above, `write` waits."""
LOG_AT_MOST: Final = 128 * MEGA
"""Of the write-ahead log: what has to be read again after a crash."""
CACHE: Final = 32 * MEGA
OPEN_FILES: Final = 256
WAIT: Final = 0.002

_OUT_OF_REACH: Final = 1 << 30


class RocksBackend(Backend):
    """The store in `path`, which is made unless `create` is false; `release` is called when it has been closed."""

    def __init__(self, path: Path, *, create: bool = True, release: Callable[[], None] | None = None) -> None:
        self.path = path
        self._release = release
        self._scans: weakref.WeakSet[Generator[tuple[bytes, bytes], None, None]] = weakref.WeakSet()
        self._error: StorageError | None = None
        self._closed = False
        self._copying = threading.Lock()
        try:
            import rocksdict
        except ImportError as error:
            raise StorageError(
                f"a data folder needs rocksdict ({error}): pip install 'headwater[durable]', or run without one"
            ) from None
        self._new_batch = rocksdict.WriteBatch
        self._db = _opened(path, create)

    def write(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
        self._check()
        batch = self._new_batch(raw_mode=True)
        for key in deletes:
            batch.delete(key)
        for key, value in puts:
            batch.put(key, value)
        try:
            self._wait_for_room()
            self._db.write(batch)
        except Exception as error:
            raise self._failed("write to", error) from None

    def sync(self) -> None:
        self._check()
        try:
            self._db.flush_wal(True)
        except Exception as error:
            raise self._failed("sync", error) from None

    def get(self, key: bytes) -> bytes | None:
        self._check_open()
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:
            raise explained("read from", self.path, error) from None
        return value

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._check_open()
        try:
            cursor = self._db.iter()  # from here on, it does not see what is written
            cursor.seek(prefix)
        except Exception as error:
            raise explained("read from", self.path, error) from None
        scan = self._items(cursor, prefix)
        self._scans.add(scan)
        return scan

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for scan in list(self._scans):
            scan.close()  # one that lives would keep the folder locked
        failed_before = self._error is not None
        try:
            if not failed_before:
                self._db.flush_wal(True)
            with self._copying:
                self._db.close()
        except Exception as error:
            if not failed_before:
                raise self._failed("sync", error) from None
        finally:
            if self._release is not None:
                self._release()

    def checkpoint(self, path: Path) -> None:
        """Make `path`, which does not exist, a store with all that has been written; it shares files where it can.

        Other threads may go on meanwhile. `Checkpoint` holds the interpreter's lock, `flush` does not: it leaves little
        to do.
        """
        self._check()
        from rocksdict import Checkpoint

        try:
            with self._copying:
                self._db.flush()
                Checkpoint(self._db).create_checkpoint(str(path))
        except Exception as error:
            raise explained("copy", self.path, error) from None

    def _items(self, cursor: RdictIter, prefix: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        try:
            while cursor.valid():
                key: bytes = cursor.key()
                if not key.startswith(prefix):
                    return
                yield key, cursor.value()
                cursor.next()
            cursor.status()
        except Exception as error:
            raise explained("read from", self.path, error) from None
        finally:
            del cursor

    def _wait_for_room(self) -> None:
        look = self._db.property_int_value
        while (
            (look("rocksdb.num-immutable-mem-table") or 0) >= BUFFERS_AT_MOST
            or int(self._db.property_value("rocksdb.num-files-at-level0") or 0) >= FRESH_FILES_AT_MOST
        ) and not look("rocksdb.background-errors"):
            time.sleep(WAIT)

    def _failed(self, what: str, error: Exception) -> StorageError:
        """After one failure there is no other success: a later batch would be there without an earlier one."""
        self._error = explained(what, self.path, error)
        return self._error

    def _check(self) -> None:
        self._check_open()
        if self._error is not None:
            raise StorageError(f"the store has failed before: {self._error}")

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError("the store has been closed")


# ---- opening ---------------------------------------------------------------------------------------------------


def _opened(path: Path, create: bool) -> Rdict:
    from rocksdict import DBRecoveryMode, Rdict

    options = _options()
    options.create_if_missing(create)
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        repair = LogRepair(path)
        if not repair.prepare():
            options.set_wal_recovery_mode(DBRecoveryMode.absolute_consistency())
            try:
                return Rdict(str(path), options)
            except Exception as error:
                if "Corruption" not in str(error):
                    raise
            repair.keep()
        options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
        db = Rdict(str(path), options)
        repair.tell()
    except StorageError:
        raise
    except Exception as error:
        raise explained("open", path, error) from None
    return db


def _options() -> Options:
    from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options

    options = Options(raw_mode=True)
    options.set_write_buffer_size(WRITE_BUFFER)
    options.set_max_total_wal_size(LOG_AT_MOST)
    options.set_compression_type(DBCompressionType.lz4())
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
    table.set_block_cache(Cache(CACHE))
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


# ---- errors ----------------------------------------------------------------------------------------------------


def explained(what: str, path: Path, error: Exception) -> StorageError:
    """What RocksDB says, with the reason and the way out in front of it if we know them."""
    return storage_error(f"{what} the store {path}", " ".join(str(error).split()))
