"""Lists of resources whose commas were the delimiter of their table too, put together again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_ITEM: Final = re.compile(rb"\s*([\w./:@+-]+)=[^=]*")
_MOST: Final = 200
"""So many resources stand in a few lists at most."""
_RESOURCE: Final = re.compile(rb"(?:^|,)\s*(?:billing|cpu|mem|node|energy|(?:gres|fs|license|bb|ic)/[^=,]+)=")


def has_resource(text: bytes) -> bool:
    """Return whether a text has in it what belongs to a list of resources.

    Example:
        >>> has_resource(b"a,gres/gpu=2"), has_resource(b"lr=1,bs=2")
        (True, False)
    """
    return _RESOURCE.search(text) is not None


def joined(cells: Sequence[bytes], width: int, lists: frozenset[int]) -> list[bytes] | None:
    """Return cells of which lists of resources fell apart at their commas, put together; None where that is unclear.

    Args:
        cells: More than there are columns.
        width: How many columns there are.
        lists: The places of those that are lists.

    Example:
        >>> joined([b"7", b"cpu=8", b"gres/gpu=2", b"cpu=4", b"gres/gpu=2", b"gpu"], 4, frozenset({1, 2}))
        [b'7', b'cpu=8,gres/gpu=2', b'cpu=4,gres/gpu=2', b'gpu']
        >>> joined([b"7", b"cpu=8", b"gres/gpu=2", b"node=1", b"gpu"], 4, frozenset({1, 2})) is None
        True
    """
    found: list[bytes] = []
    at = 0
    n_blocks = sum(place in lists and place - 1 not in lists for place in range(width))
    while len(found) < width and at < len(cells):
        n_lists = 0
        while len(found) + n_lists < width and len(found) + n_lists in lists:
            n_lists += 1
        if not n_lists:
            found.append(cells[at])
            at += 1
            continue
        end = at + len(cells) - width + n_lists if n_blocks == 1 else _end(cells, at)
        parts = _parts(cells[at:end], n_lists)
        if parts is None:
            return None
        found += parts
        at = end
    return found if len(found) == width and at == len(cells) else None


def _end(cells: Sequence[bytes], at: int) -> int:
    """Return where the cells end that are of lists, of which there is one at least."""
    end = at
    while end < len(cells) and _ITEM.fullmatch(cells[end]):
        end += 1
    return max(end, at + 1)


def _parts(cells: Sequence[bytes], n_lists: int) -> list[bytes] | None:
    """Return cells as so many lists; None where there is more than one way."""
    if n_lists == len(cells):
        return [*cells]
    if len(cells) > _MOST:
        return None
    names = [match[1] if (match := _ITEM.fullmatch(cell)) else b"" for cell in cells]
    if any(not name and cell.strip() for name, cell in zip(names, cells, strict=True)):
        return None
    ways = [cuts for cuts in _cuts(len(cells), n_lists) if all(map(_is_list, _pieces(names, cuts)))]
    if len(ways) != 1:
        return None
    return [b",".join(piece) for piece in _pieces(cells, ways[0])]


def _cuts(n_cells: int, n_lists: int) -> list[tuple[int, ...]]:
    """Return the ways to cut cells into lists, at the places where each but the first begins."""
    if n_lists == 1:
        return [()]
    if n_lists == 2:
        return [(cut,) for cut in range(1, n_cells)]
    each, rest = divmod(n_cells, n_lists)
    return [] if rest else [tuple(range(each, n_cells, each))]


def _pieces(cells: Sequence[bytes], cuts: Sequence[int]) -> list[Sequence[bytes]]:
    return [cells[low:high] for low, high in zip((0, *cuts), (*cuts, len(cells)), strict=True)]


def _is_list(names: Sequence[bytes]) -> bool:
    """Return whether the names of resources are of one list: each once, or one that is empty."""
    return len(set(names)) == len(names) and (b"" not in names or len(names) == 1)
