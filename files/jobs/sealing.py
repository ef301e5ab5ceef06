"""Sealing as a job: a finished journal file becomes stock CDB."""

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
    """Turn a finished journal file into stock CDB under its sealed name, durably.

    ``offsets``: native u32, count + 1. The pointers at the front are written last, after the
    tables are durable; the new name comes after both, so a sealed name means a whole file.
    """
    table = np.frombuffer(offsets, dtype=np.uint32)
    records_end = int(table[-1])
    path, sealed = f"{directory}/{name}", f"{directory}/{sealed_name}"
    try:
        # Zeros behind the records are written over: whoever has a map of them keeps all of it.
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
            # There was no room, say. The next opening would take what came for a record cut short.
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
    """Checksums of the windows of a file's records. None where a record is not whole, for they
    would vouch for it: reads go by the records' own then, and tell."""
    if not record_columns.all_whole(mapped, table, seed):
        return b""
    made = WindowSums(seed)
    made.add(memoryview(mapped)[: int(table[-1])])
    return made.section()


def _sync(file: AppendFile) -> None:
    """As sync; one that failed must not be tried again, nor must what it was of be written again in
    its place, where ext4 reads zeros later: so it raises StorageFailed."""
    try:
        file.sync()
    except OSError as error:
        raise StorageFailed(f"fsync failed: {error}; close the store and reopen it") from error


def _sync_names(disk: Disk, directory: str) -> None:
    """As sync_dir; one that failed must not be tried again, for the next would say that all is
    well: so it raises StorageFailed."""
    try:
        disk.sync_dir(directory)
    except OSError as error:
        if error.errno in OUT_OF_DESCRIPTORS:
            raise  # it did not come to an fsync
        raise StorageFailed(f"{directory}: {error}; close the store and reopen it") from error


def _missing_header(disk: Disk, path: str, name: str, seed: int, created_ms: int) -> bytes:
    """The file header, if a power cut kept it from the disk while records came there; the file's
    name says what it said."""
    at = cdb.POINTERS_BYTES
    try:
        cdb.read_header(bytes(at) + disk.pread(path, cdb.RECORDS_AT - at, at), path)
    except Corruption:
        made = cdb.FileHeader(0, int(name[:16], 16), seed, created_ms)
        return cdb.beginning(made)[at:]
    return b""
