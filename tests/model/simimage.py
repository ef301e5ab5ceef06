"""What a power cut leaves of a simulated disk: one choice among all that may be left."""

from __future__ import annotations

import random
from collections import Counter

from simnodes import Change, Directory, File, Node, apply_bytes, put_name

MODES = ("nothing", "all", "random_subset", "torn", "names_reordered")
"""
nothing          none of the changes that were not synced
all              all of them
random_subset    any of the writes, each whole; names as far as some moment, in order
torn             as random_subset, but a write survives by 512-byte sectors, and a file may
                 have its new length without the bytes (zeros)
names_reordered  as random_subset, but each name is as it was at some moment of its own
"""
SECTOR_BYTES = 512

Write = tuple[int, bytes | None]


class Image:
    """One choice of what of the changes not yet synced survives."""

    def __init__(self, directories: list[Directory], mode: str, seed: int) -> None:
        self.mode = mode
        self.random = random.Random(f"{mode} {seed}")
        self.made: dict[int, Node] = {}
        # Chosen for all directories first: a rename has halves in two of them.
        self.kept = {id(change) for each in directories for change in self._choose(each.pending)}

    def copy(self, root: Directory) -> tuple[Directory, list[Directory]]:
        """The root as it is found when the power comes back, and every directory."""
        top = self._copy_directory(root)
        return top, [each for each in self.made.values() if isinstance(each, Directory)]

    def _choose(self, pending: list[Change]) -> list[Change]:
        if self.mode == "nothing":
            return []
        if self.mode == "all":
            return pending
        if self.mode == "names_reordered":
            counts = Counter(change.name for change in pending)
            left = {name: self.random.randint(0, counts[name]) for name in sorted(counts)}
            kept = []
            for change in pending:
                if left[change.name] > 0:
                    left[change.name] -= 1
                    kept.append(change)
            return kept
        length = self.random.randint(0, len(pending))
        while length < len(pending) and pending[length].joined:
            length += 1
        return pending[:length]

    def _survives(self, change: Change) -> bool:
        kept = id(change) in self.kept
        entry = change.within
        if entry is None:
            return kept
        arrived = entry.durable or id(entry) in self.kept
        # A file may be found under both names; a directory is never in two places.
        return arrived and (kept or isinstance(entry.node, Directory))

    def _copy_directory(self, directory: Directory) -> Directory:
        copy = Directory()
        self.made[id(directory)] = copy
        chosen = dict(directory.durable)
        for change in directory.pending:
            if self._survives(change):
                put_name(chosen, change)
        for name, node in chosen.items():
            there = self.made.get(id(node))
            if there is None:
                there = (
                    self._copy_file(node) if isinstance(node, File) else self._copy_directory(node)
                )
            copy.names[name] = copy.durable[name] = there
            if isinstance(there, File):
                there.links += 1
        return copy

    def _copy_file(self, file: File) -> File:
        image = bytearray(file.durable)
        for offset, data in self._writes_kept(file.pending):
            apply_bytes(image, offset, data)
        copy = File(bytes(image))
        self.made[id(file)] = copy
        return copy

    def _writes_kept(self, pending: list[tuple[int, bytes | None]]) -> list[Write]:
        if self.mode == "nothing":
            return []
        if self.mode == "all":
            return list(pending)
        likely = self.random.choice((0.1, 0.5, 0.9))
        kept: list[Write] = []
        cut: int | None = None  # a truncation to this length was lost
        for offset, data in pending:
            if data is None:
                # Lengths change in order: with one truncation the later ones are lost too.
                if cut is not None or self.random.random() >= likely:
                    cut = offset if cut is None else min(cut, offset)
                else:
                    kept.append((offset, None))
            elif cut is not None and offset + len(data) > cut:
                continue  # and so is what was written beyond it
            elif self.mode == "torn":
                self._tear(kept, offset, data, likely)
            elif self.random.random() < likely:
                kept.append((offset, data))
        return kept

    def _tear(self, kept: list[Write], offset: int, data: bytes, likely: float) -> None:
        end = offset + len(data)
        if self.random.random() < 0.5:
            kept.append((end, b""))  # the length came through, with or without the bytes
        at = offset
        while at < end:
            stop = min(end, (at // SECTOR_BYTES + 1) * SECTOR_BYTES)
            if self.random.random() < likely:
                kept.append((at, data[at - offset : stop - offset]))
            at = stop
