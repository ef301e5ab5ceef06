"""Published snapshots: states of the store that other processes can read for a while."""

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
    """What ``Snapshot.publish`` returned, or ``Store.published`` found.

    Any process can read it with ``open``, and Spark with ``format("octavo").option("snapshot", id)
    .load(path of the store)``. Neither needs the process that made it, or the store to be open.
    """

    def __init__(self, disk: Disk, found: Published, clock_ms: Callable[[], int]) -> None:
        self._disk = disk
        self._found = found
        self._clock_ms = clock_ms

    @property
    def id(self) -> str:
        """A text that no other published snapshot has."""
        return self._found.id

    @property
    def name(self) -> str:
        """The name it was given; "" if it has none."""
        return self._found.name

    @property
    def path(self) -> str:
        """Its directory."""
        return self._found.path

    @property
    def store_path(self) -> str:
        """The directory of its store."""
        return self._found.path.rpartition("/")[0].rpartition("/")[0]

    @property
    def sqn(self) -> int:
        """The last sequence number that is in it."""
        return self._found.sqn

    @property
    def taken_at(self) -> int:
        """When it was taken, ms UTC: what had expired by then is absent."""
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
        """The number of its live keys, exact; None if they were not counted."""
        return self._found.keys

    @property
    def bytes(self) -> int | None:
        """Bytes of their values, before compression; None if they were not counted."""
        return self._found.bytes

    @property
    def counts(self) -> Mapping[str, Counted]:
        """Keys and bytes for each type of objects, by its name."""
        return {count.name: count for count in self._found.counts.values()}

    def open(self) -> read_only.ReadOnlyStore:
        """Open this state for reading, as ``octavo.open`` with ``read_only=True`` opens the newest
        one. The reader has links of its own: a release or the end of this lease takes nothing from
        it, and closing it leaves the snapshot published. O(files). Raises SnapshotExpired, Misuse,
        Corruption, StorageFull, StorageFailed."""
        with usable("path", self.store_path):
            return read_only.opened_published(RealDisk(), self.store_path, self.path)

    def renew(self, lease_seconds: float = PUBLISHED_SECONDS) -> None:
        """Begin the lease again, now; writes one small file. A lease that ends later is left as it
        is, since others may rely on it. Those who already read the snapshot see the new end by
        themselves. Raises Misuse, SnapshotExpired if the lease had ended, StorageFull,
        StorageFailed (the lease may then be the old one or the new one)."""
        now_ms = self._clock_ms()
        ends = now_ms + int(to_lease(lease_seconds) * 1000)
        with storage_errors(f"the lease of {self.path}"):
            self._found = published.renewed(self._disk, self.path, ends, now_ms)

    def release(self) -> None:
        """Remove it; whoever reads it gets SnapshotExpired. Idempotent. O(files). Raises
        StorageFull and StorageFailed: it may then be there or gone, so try again."""
        with storage_errors(f"the release of {self.path}"):
            published.remove(self._disk, self.path)

    def df(self, spark: Any, columns: Sequence[str] | None = None, **options: Any) -> Any:
        """A Spark DataFrame of it. ``columns``: see SnapshotBucket.to_arrow; only those asked for
        are read. ``options`` as for ``spark.read.format("octavo")``: bucket, keyStart, ...
        (docs/spark.md), where bytes may be given as they are. Raises Misuse, SnapshotExpired."""
        with unbroken, loading:
            from octavo.pipeline.frames import frame
        return frame(spark, self.store_path, self.id, columns, options)

    def __reduce__(self) -> NoReturn:
        raise Misuse(
            "a published snapshot cannot be copied or passed to another process, since it uses the "
            "open files of its store: pass its store_path and id"
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
