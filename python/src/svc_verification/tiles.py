"""Entries of a log, from its tiles (spec/log.md, 12; C2SP tlog-tiles)."""

from __future__ import annotations

from itertools import count
from typing import Any

from .answers import tile_path
from .encoding import sha256
from .entries import read_entry
from .errors import SvcError, raising, require
from .merkle import tree_root
from .pins import PinnedLog
from .transport import Service

WIDTH = 256


def path_of(folder: str, number: int, width: int) -> str:
    return tile_path(f"tile/{folder}", number) + ("" if width == WIDTH else f".p/{width}")


def read_bundle(data: bytes, width: int) -> list[bytes]:
    """The entries of a bundle."""
    entries, at = [], 0
    while at < len(data):
        start = at + 2
        at = start + int.from_bytes(data[start - 2 : start], "big")
        require(start <= len(data) >= at, "malformed_tile")
        entries.append(data[start:at])
    require(len(entries) == width, "malformed_tile")
    return entries


async def read_log(service: Service, first: int, log: PinnedLog | None) -> list[dict[str, Any]]:
    """The entries from an index to the end of its bundle, verified up to the root of a checkpoint.

    The hash of a full tile on the path to the root must be in the tile above it. The partial tiles, at the right edge
    of the tree, must hash to the root.
    """
    if log is None or first < 0:
        raise SvcError("invalid_input", "read_log needs pins of a log, and an index from 0")
    note = await service.read("/log/checkpoint", accept="text/plain")
    with raising("evidence_rejected", "the log is rejected"):
        # Bytes that are not UTF-8 become lone surrogates, which a note cannot have.
        checkpoint = log.open(note.content.decode(errors="surrogateescape"))
        size, number = checkpoint.size, first // WIDTH
        if first >= size:
            return []

        async def read(folder: str, number: int, width: int) -> bytes:
            path = "/log/" + path_of(folder, number, width)
            return (await service.read(path, accept="application/octet-stream")).content

        async def read_hashes(level: int, number: int) -> list[bytes]:
            width = min(WIDTH, (size >> 8 * level) - WIDTH * number)
            data = await read(str(level), number, width)
            require(len(data) == 32 * width, "malformed_tile")
            return [data[at : at + 32] for at in range(0, len(data), 32)]

        width = min(WIDTH, size - WIDTH * number)
        bundle = read_bundle((await read("entries", number, width)), width)
        # `tile` is on the path from the bundle to the root, until the path reaches a partial tile. `right` is the
        # hash over the partial tiles of the levels so far, if any.
        tile, right = [sha256(b"\0" + entry) for entry in bundle], list[bytes]()
        is_full = True
        for level in count():
            last, partial = divmod(size >> 8 * level, WIDTH)
            is_partial, is_full = is_full and number == last, is_full and number < last
            if partial:
                right = [tree_root((tile if is_partial else (await read_hashes(level, last))) + right)]
            if last == 0:
                break
            if is_full:
                node, at, number = tree_root(tile), number % WIDTH, number // WIDTH
                tile = await read_hashes(level + 1, number)
                require(tile[at] == node, "not_in_tree")
        require(right == [checkpoint.root], "not_in_tree")
        return [read_entry(entry) for entry in bundle[first % WIDTH :]]
