"""The job that seals a full journal file: it becomes stock CDB."""

from __future__ import annotations

from contextlib import suppress
from mmap import mmap
from typing import Any

from octavo.files.door.disk import AppendFile, Disk
from octavo.files.errors import OUT_OF_DESCRIPTORS, Corruption, StorageFailed
from octavo.files.journal import cdb, cdb_seal, record_columns
from octavo.files.journal.journal_windows import WindowSums
from octavo.files.kernels.arrays import np, npt


def seal(
    disk: Disk,
    offsets: bytes,
    *,
    directory: str,
    name: str,
    sealed_name: str,
    seed: int,
    first_ms: int,
    last_ms: int,
) -> dict[str, Any]:
    """Turn a full journal file into stock CDB under its sealed name, durably.

    ``offsets``: native u32, count + 1. The pointers at the front are written last, after the
    tables are durable; the new name comes after both, so a sealed name means a whole file.
    """
    table = np.frombuffer(offsets, dtype=np.uint32)
    records_end = int(table[-1])
    path, sealed = f"{directory}/{name}", f"{directory}/{sealed_name}"
    try:
        # Zeros behind the records are written over, not cut off: others may have mapped them.
        length = max(min(disk.size(path), records_end + cdb.AHEAD_BYTES), records_end)
        file = disk.reopen(path, length)
    except FileNotFoundError:
        if not disk.exists(sealed):
            raise
        # A worker that did all this was killed before it could say so.
        _sync_names(disk, directory)
        return {"bytes": disk.size(sealed)}
    try:
        windows = _windows(disk.map(path), table, seed)
        room = length - records_end
        front, back = cdb_seal.sealing(table, seed, first_ms, last_ms, windows, room)
        try:
            file.pwrite_all(back, records_end)
        except OSError:
            # No room, say. The next opening would take what was written for a record cut short.
            with suppress(OSError):
                file.truncate(length)
                file.pwrite_all(bytes(room), records_end)
            raise
        _sync(file)
        file.pwrite_all(front + _missing_header(disk, path, name, seed, first_ms), 0)
        _sync(file)
    finally:
        file.close()
    disk.rename(path, sealed)
    _sync_names(disk, directory)
    return {"bytes": records_end + len(back)}


def _windows(mapped: mmap | bytes, table: npt.NDArray[np.uint32], seed: int) -> bytes:
    """The checksums of the windows of a file's records; nothing where a record is not whole, since
    they would vouch for it: then reads go by the records' own checksums, which show the damage."""
    if not record_columns.all_whole(mapped, table, seed):
        return b""
    made = WindowSums(seed)
    made.add(memoryview(mapped)[: int(table[-1])])
    return made.section()


def _sync(file: AppendFile) -> None:
    """Sync the file. Raises StorageFailed, since a sync that failed must not be tried again, nor
    must the same bytes be written again in their place, where ext4 reads zeros later."""
    try:
        file.sync()
    except OSError as error:
        raise StorageFailed(f"fsync failed: {error}; close the store and reopen it") from error


def _sync_names(disk: Disk, directory: str) -> None:
    """Sync the directory. Raises StorageFailed, since a sync that failed must not be tried again:
    the next one would say that all is well."""
    try:
        disk.sync_dir(directory)
    except OSError as error:
        if error.errno in OUT_OF_DESCRIPTORS:
            raise  # it did not come to an fsync
        raise StorageFailed(f"{directory}: {error}; close the store and reopen it") from error


def _missing_header(disk: Disk, path: str, name: str, seed: int, created_ms: int) -> bytes:
    """The file header, made anew from the file's name, if a power cut kept it from the disk while
    records got there; else nothing."""
    at = cdb.POINTERS_BYTES
    try:
        cdb.read_header(bytes(at) + disk.pread(path, cdb.RECORDS_AT - at, at), path)
    except Corruption:
        made = cdb.FileHeader(0, int(name[:16], 16), seed, created_ms)
        return cdb.beginning(made)[at:]
    return b""
