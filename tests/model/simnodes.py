"""What a simulated disk is made of: files and directories with two images each.

The visible image is what calls see; the durable one is what has been synced. Between them stand
the changes not yet synced: of a file its writes and truncations, of a directory its names.
"""

from __future__ import annotations

from mmap import mmap
from weakref import WeakSet


def apply_bytes(image: bytearray, offset: int, data: bytes | None) -> None:
    """Write ``data`` at ``offset``, over zeros where there is nothing; None truncates there."""
    if len(image) < offset:
        image.extend(bytes(offset - len(image)))
    if data is None:
        del image[offset:]
    else:
        image[offset : offset + len(data)] = data


class File:
    __slots__ = ("content", "dropped", "durable", "links", "maps", "pending")

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.durable = bytearray(content)
        self.pending: list[tuple[int, bytes | None]] = []  # None: truncated to the offset
        self.links = 0
        self.dropped: list[tuple[int, int]] = []
        """Where a failed sync dropped writes that nobody did again: (offset, end)."""
        self.maps: WeakSet[mmap] = WeakSet()

    def change(self, offset: int, data: bytes | None) -> None:
        apply_bytes(self.content, offset, data)
        for mapped in self.maps if data else ():
            part = memoryview(data)[: max(len(mapped) - offset, 0)]
            mapped[offset : offset + len(part)] = part
        self.pending.append((offset, data))
        if self.dropped:
            end = None if data is None else offset + len(data)
            self.dropped = [
                (first, last)
                for first, last in self.dropped
                if first < offset or (end is not None and last > end)
            ]

    def mapped(self) -> mmap | bytes:
        """A map, in which what is written later is seen."""
        if not self.content:
            return b""
        mapped = mmap(-1, len(self.content))
        mapped[:] = self.content
        self.maps.add(mapped)
        return mapped

    def drop(self) -> None:
        """A sync failed: what was not durable never will be, though it can be read."""
        self.dropped += [(offset, offset + len(data)) for offset, data in self.pending if data]
        self.pending.clear()

    def sync(self) -> None:
        for offset, data in self.pending:
            apply_bytes(self.durable, offset, data)
        self.pending.clear()


class Change:
    """A name of a directory now stands for ``node``, or for nothing."""

    __slots__ = ("durable", "joined", "name", "node", "within")

    def __init__(
        self, name: str, node: Node | None, *, joined: bool = False, within: Change | None = None
    ) -> None:
        self.name = name
        self.node = node
        self.joined = joined  # one step with the change before it in this directory
        self.within = within  # half of a rename: never durable before its other half
        self.durable = False


class Directory:
    __slots__ = ("durable", "names", "pending")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[Change] = []

    def change(self, change: Change) -> None:
        old = self.names.get(change.name)
        if isinstance(old, File):
            old.links -= 1
        put_name(self.names, change)
        if isinstance(change.node, File):
            change.node.links += 1
        self.pending.append(change)

    def sync(self) -> None:
        waiting: dict[str, Change] = {}
        for change in self.pending:
            if change.within is not None and not change.within.durable:
                waiting[change.name] = change
                continue
            put_name(self.durable, change)
            change.durable = True
            waiting.pop(change.name, None)
        self.pending = list(waiting.values())


Node = File | Directory


def put_name(names: dict[str, Node], change: Change) -> None:
    if change.node is None:
        names.pop(change.name, None)
    else:
        names[change.name] = change.node
