"""A published snapshot: a state of the store that other processes can read, for a while."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from octavo.arguments import to_lease
from octavo.files.argument_checks import shown
from octavo.files.door.disk import Disk, RealDisk
from octavo.files.errors import Misuse, storage_errors, usable
from octavo.files.later import Later, loading
from octavo.files.unbroken import unbroken
from octavo.manifest import published
from octavo.manifest.published import Counted, Published

if TYPE_CHECKING:
    from octavo import read_only
else:
    read_only = Later("octavo.read_only")

PUBLISHED_SECONDS = 3600.0


class PublishedSnapshot:
    """What ``Snapshot.publish`` made, or ``Store.published`` found.

    ``open`` reads it, in any process; Spark does with ``format("octavo").option("snapshot", id)
    .load(path of the store)``. It needs neither the store nor the process that made it.
    """

    def __init__(self, disk: Disk, found: Published, clock_ms: Callable[[], int]) -> None:
        self._disk = disk
        self._found = found
        self._clock_ms = clock_ms

    @property
    def id(self) -> str:
        """What tells it from all others."""
        return self._found.id

    @property
    def name(self) -> str:
        """The name that it was given; "" where it has none."""
        return self._found.name

    @property
    def path(self) -> str:
        """Its directory."""
        return self._found.path

    @property
    def store_path(self) -> str:
        """The directory of the store that it is of."""
        return self._found.path.rpartition("/")[0].rpartition("/")[0]

    @property
    def sqn(self) -> int:
        """The last sequence number that is in it."""
        return self._found.sqn

    @property
    def taken_at(self) -> int:
        """The moment it is of, ms UTC: what had expired by then is absent."""
        return self._found.taken_at

    @property
    def expires_at(self) -> int:
        """The moment from which reading it raises SnapshotExpired, ms UTC, unless it is renewed."""
        return self._found.expires_at

    @property
    def expired(self) -> bool:
        """Whether that moment has come."""
        return self._clock_ms() >= self._found.expires_at

    @property
    def keys(self) -> int | None:
        """Live keys, exactly; None where they were not counted."""
        return self._found.keys

    @property
    def bytes(self) -> int | None:
        """Bytes of their values, before compression; None where they were not counted."""
        return self._found.bytes

    @property
    def counts(self) -> Mapping[str, Counted]:
        """Keys and bytes by the name of the objects' type."""
        return {count.name: count for count in self._found.counts.values()}

    def open(self) -> read_only.ReadOnlyStore:
        """This state, to be read as a store that was opened with ``read_only=True`` is: by links
        of its own, so a release, or the end of this lease, takes nothing from who reads it, and
        closing it leaves the snapshot published. O(files). Raises SnapshotExpired, Misuse,
        Corruption, StorageFull, StorageFailed."""
        with usable("path", self.store_path):
            return read_only.opened_published(RealDisk(), self.store_path, self.path)

    def renew(self, lease_seconds: float = PUBLISHED_SECONDS) -> None:
        """Begin the lease anew, now: one small file is written. A lease that ends later stays as it
        is, for others may count on it. Whoever reads it already is told where they look. Raises
        Misuse, SnapshotExpired if it had ended, StorageFull, and StorageFailed, where the lease may
        be the old one or the new one."""
        now_ms = self._clock_ms()
        ends = now_ms + int(to_lease(lease_seconds) * 1000)
        with storage_errors(f"the lease of {self.path}"):
            self._found = published.renewed(self._disk, self.path, ends, now_ms)

    def release(self) -> None:
        """Remove it: who reads it is told SnapshotExpired. Idempotent. O(files). Raises StorageFull
        and StorageFailed, where it may be there or gone: try again."""
        with storage_errors(f"the release of {self.path}"):
            published.remove(self._disk, self.path)

    def df(self, spark: Any, columns: Sequence[str] | None = None, **options: Any) -> Any:
        """A Spark DataFrame of it. ``columns``: see SnapshotBucket.to_arrow; what is not asked for
        is not read. ``options`` as of ``spark.read.format("octavo")``: bucket, keyStart, ...
        (docs/spark.md), and bytes as they are. Raises Misuse, SnapshotExpired."""
        with unbroken, loading:
            from octavo.pipeline.frames import frame
        return frame(spark, self.store_path, self.id, columns, options)

    def __reduce__(self) -> NoReturn:
        raise Misuse(
            "a published snapshot is not copied, and does not go to another process, for it uses "
            "the open files of its store: give its store_path and id"
        )

    def __repr__(self) -> str:
        named = f" {self.name!r}" if self.name else ""
        return f"<octavo.PublishedSnapshot {self.id}{named} at sqn {self.sqn}>"


def published_of(
    disk: Disk, store: str, wanted: object, clock_ms: Callable[[], int]
) -> list[PublishedSnapshot]:
    """See Store.published."""
    with storage_errors(f"the published snapshots of {store}"):
        if wanted is not None:
            found = [published.found(disk, store, to_name(wanted), clock_ms())]
        else:
            found = list(published.listed(disk, store))
    made = [PublishedSnapshot(disk, each, clock_ms) for each in found]
    return [each for each in made if not each.expired]


def to_name(name: object) -> str:
    """The name of a published snapshot. Raises Misuse."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise Misuse(f"name={shown(name)}: allowed is printable text")
    return name
