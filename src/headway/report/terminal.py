"""A report as a page on a terminal: 80 columns are enough, colours are not needed.

Everything that came from a file goes through `Glyphs.clean` and into `rich.text.Text`: it is
never read as markup, and never steers the terminal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from headway.clock import NS_PER_S
from headway.ledger.categories import PROGRAM, category
from headway.ledger.ledger import Ledger
from headway.report import notes
from headway.report.advice import SHOWN, Change, advise
from headway.report.bars import Line, draw
from headway.report.endings import bad_endings, ending, endings, is_open
from headway.report.entry import Entry, Options, groups, kind, shown_by, split, total
from headway.report.glyphs import Glyphs, wrap
from headway.report.money import Costs
from headway.report.straggler import Spread, compare_ranks
from headway.units import show_percent, show_seconds

UNACCOUNTED_FIRST: Final = 0.01
"""Share of the window from which time without a name is the first thing to read."""
MIN_WIDTH: Final = 72
"""Columns of the narrowest page: a screen with fewer wraps its lines, which is better than figures cut short."""
MIN_GAIN: Final = 0.001
"""Share of the window below which a change is not worth a reader's time."""
_STYLES: Final = {None: "green", "R": "yellow", "S": "magenta", "P": "cyan"}
_NAME_WIDTH: Final = 26
_PIECE_WIDTH: Final = 32
_SHORT_NAME: Final = 22
_LEAST_BAR: Final = 8
"""A bar of fewer cells says nothing."""
_PERFECT: Final = "Nothing was lost: every device-second was productive."
_USUAL_WIDTH: Final = 80
_PAGE_WIDTH: Final = 100
_HOUR_NS: Final = 3600 * NS_PER_S
_MANY_HOURS: Final = 48
"""Longer times are shown as days, and of devices everybody counts hours."""
_MOST_SHARES: Final = 20


def print_report(entries: Sequence[Entry], options: Options, console: Console) -> None:
    """Print each run and pool, and of several runs their sum, and of several pools theirs.

    Args:
        entries: The runs, in the order they are shown.
        options: How they are shown.
        console: Where to; its width and encoding are kept to.
    """
    page = Page(Glyphs.of(console.encoding), console.width, options)
    sums = [group for group in groups(entries) if len(group) > 1]
    added = {id(entry) for group in sums for entry in group}
    screens = [page.run(entry, alone=id(entry) not in added) for entry in entries]
    screens += [page.sum(group) for group in sums]
    with console.capture() as capture:
        for place, screen in enumerate(screens):
            console.print(Group(*(["" for _ in range(2 * bool(place))]), screen), markup=False, highlight=False)
    # Cells are padded to their column: what is copied from a page should not be.
    console.file.write(re.sub(r" +$", "", capture.get(), flags=re.MULTILINE))
    console.file.flush()


class Page:
    """What a screen is made of, for one encoding, width and set of options.

    Args:
        glyphs: What can be printed.
        width: Columns of the screen.
        options: How the runs are shown.
    """

    def __init__(self, glyphs: Glyphs, width: int, options: Options) -> None:
        self._glyphs = glyphs
        self._width = width
        self._options = options

    def run(self, entry: Entry, *, alone: bool = True) -> Group:
        """Return one run; where it is one of several, what to do about it is left to the sum."""
        ledger = entry.ledger
        blocks = [*self._header(entry.run, notes.size(ledger), ledger), Text(), self._amounts(ledger)]
        bad = bad_endings(ledger)
        blocks += self._below(ledger, entry.all_warnings, [bad] if bad else [])
        blocks += self._ranks(ledger)
        by = shown_by(ledger, self._options.by)
        if by is not None and ledger.of_pool:
            pieces = split(ledger, by)
            blocks += [Text(), self._shares(by, pieces, self._costs(ledger))] if pieces else []
        elif by is not None:
            ended = endings(ledger) if by == "attempt" else {}
            blocks += [Text(), self._pieces(by, list(split(ledger, by).items()), ended)]
        if entry.windows:
            rows = [(notes.moment(window.start_ns), window) for window in entry.windows]
            blocks += [Text(), self._pieces("window from (UTC)", rows)]
        if alone:
            blocks += self._changes(
                [("", change) for change in advise(ledger, self._options.price, entry.history)], ledger
            )
        return Group(*blocks)

    def sum(self, entries: Sequence[Entry]) -> Group:
        """Return the sum of several runs or of several pools, and what would return most over all of them."""
        ledger = total(entries)
        changes = [
            (entry.run, change)
            for entry in entries
            for change in advise(entry.ledger, self._options.price, entry.history)
        ]
        changes.sort(key=lambda pair: -pair[1].seconds)
        title = f"Sum of {len(entries)} {kind(entries[0])}s"
        blocks = [*self._header(title, notes.size_of_sum(ledger), ledger), Text(), self._amounts(ledger)]
        doubtful = sum(not all(map(notes.is_mild, entry.all_warnings)) for entry in entries)
        said = [f"what {doubtful} of them warn of, above, holds for the sum too"] if doubtful else []
        blocks += [*self._below(ledger, (), said), Text()]
        blocks.append(self._pieces(kind(entries[0]), [(entry.run, entry.ledger) for entry in entries]))
        lost = Counter[str]()
        for entry in entries:
            lost.update(_of_unknown(entry.ledger))
        return Group(*blocks, *self._changes(changes, ledger, lost))

    def _header(self, title: str, size: str, ledger: Ledger) -> Iterator[Text]:
        """Yield title and size, on one line where they fit, and the factors."""
        dot = f" {self._glyphs.dot} "
        held = f"held {_show(ledger.held_ns)}"
        if ledger.held_ns > _MANY_HOURS * _HOUR_NS:
            held += f" ({ledger.held_ns / _HOUR_NS:,.0f} device-hours)"
        elif ledger.devices > 1 or ledger.of_pool:
            held += " of device-time"
        about = dot.join([size.replace(" | ", dot), held])
        title = self._glyphs.clean(title)
        if len(title) + len(dot) + len(about) <= self._width:
            yield Text.assemble((title, "bold"), dot, about)
        else:
            yield Text(self._glyphs.shorten(title, self._width), style="bold")
            yield Text(about)
        known, _ = notes.factors(ledger)
        costs = self._costs(ledger)
        yield Text.assemble((known, "bold"), f"   {costs.rate}" if costs else "")

    def _costs(self, ledger: Ledger) -> Costs | None:
        return None if self._options.price is None else Costs.of(self._options.price, ledger.window_ns)

    def _amounts(self, ledger: Ledger) -> RenderableType:
        """The table: what was kept, then the losses, widest first; a lot without a name before all."""
        rows = sorted(ledger.amounts_ns.items(), key=lambda item: (_rank(ledger, *item), -item[1]))
        rows = [(name, ns) for name, ns in rows if ns > 0]
        if not rows:
            return Text("  nothing was held, so there is nothing to divide")
        names = [self._glyphs.shorten(name, _NAME_WIDTH) for name, _ in rows]
        figures = [self._figures(ns, ledger) for _, ns in rows]
        totals = self._figures(ledger.window_ns, ledger, style="bold")
        columns = [[Text(name) for name in names], *zip(totals, *figures, strict=True)]
        used = 2 + sum(2 + max(cell.cell_len for cell in column) for column in columns)
        lines = [Line(_style(name), ns / ledger.window_ns, self._note(ledger, name)) for name, ns in rows]
        table = _grid("left", *("right" for _ in totals), "note")
        for name, cells, drawn in zip(names, figures, draw(lines, self._glyphs, self._width - used), strict=True):
            table.add_row(Text(name), *cells, drawn)
        table.add_row(Text(), *totals)
        return Padding(table, (0, 0, 0, 2))

    def _note(self, ledger: Ledger, name: str) -> str:
        return self._glyphs.clean(notes.note(ledger, name))

    def _figures(self, ns: int, ledger: Ledger, style: str = "") -> list[Text]:
        texts = [_show(ns), show_percent(ns / ledger.window_ns)]
        if (costs := self._costs(ledger)) is not None:
            texts.append(costs.show(ns / NS_PER_S))
        return [Text(text, style=style) for text in texts]

    def _below(self, ledger: Ledger, warnings: Sequence[str], more: Sequence[str] = ()) -> list[RenderableType]:
        _, to_give = notes.factors(ledger)
        mild = [text for text in warnings if notes.is_mild(text)]
        said = [*notes.beside(ledger), *more, *mild, *([to_give] if to_give else [])]
        lines = [Text(self._glyphs.clean(line), style="dim") for line in said]
        lines += [Text(f"warning: {self._glyphs.clean(text)}", style="yellow") for text in warnings if text not in mild]
        return [Text(), *(_hanging(line) for line in lines)] if lines else []

    def _ranks(self, ledger: Ledger) -> Iterator[RenderableType]:
        """The spread over ranks, and by name who holds the others up."""
        compared = compare_ranks(ledger)
        if compared is None:
            return
        table = _grid("left", "right", "right", "right")
        table.add_row(Text("of one rank"), *(Text(word, style="dim") for word in ("min", "median", "max")))
        shown = {"productive": compared.productive, "input_wait": compared.wait, "bubble": compared.bubble}
        if not compared.wait.max_s and not PROGRAM.isdisjoint(ledger.amounts_ns):
            del shown["input_wait"]  # it says how stages or devices computed, and nothing of data
        for name, spread in shown.items():
            if spread is not None:
                table.add_row(Text(name), *_spread(spread))
        yield Text()
        yield Padding(table, (0, 0, 0, 2))
        yield from (_hanging(Text(text, style="bold")) for text in compared.sentences())

    def _pieces(
        self, title: str, rows: Sequence[tuple[str, Ledger]], ended: Mapping[str, list[str | None]] | None = None
    ) -> RenderableType:
        """A line for each rank, attempt or window; of an attempt also how it ended."""
        is_wide = bool(ended) or any(len(name) > _SHORT_NAME for name, _ in rows)
        drawn = 16 if self._width >= (_PAGE_WIDTH if is_wide else _USUAL_WIDTH) else 0
        factor = "S" if any(ledger.of_pool for _, ledger in rows) else "R"
        head = [title, "held", factor, *([""] if drawn else []), *(["ended"] if ended else []), "largest loss"]
        table = _grid("left", "right", "right", *("left" for _ in head[3:-1]), "note")
        table.add_row(*(Text(word, style="dim") for word in head))
        for name, ledger in rows:
            share = ledger.scheduling if factor == "S" else ledger.runtime
            cells = [Text(self._glyphs.shorten(name, _PIECE_WIDTH)), Text(_show(ledger.held_ns))]
            cells += [Text("-" if share is None else show_percent(share))]
            cells += [Text(self._glyphs.bar(share or 0.0, drawn), style="green")] if drawn else []
            cells += [Text(self._glyphs.clean(ending(ended.get(name, []))))] if ended else []
            table.add_row(*cells, Text(self._glyphs.clean(notes.biggest_loss(ledger))))
        return Padding(table, (0, 0, 0, 2))

    def _shares(self, title: str, pieces: Mapping[str, Ledger], costs: Costs | None) -> RenderableType:
        """Who held a pool, the most first, what that cost, and how long their jobs waited."""
        whole = sum(piece.held_ns for piece in pieces.values()) or 1
        shown = list(pieces.items())[:_MOST_SHARES]
        waited = any(piece.queue is not None for _, piece in shown)
        never = any(piece.queue is not None and piece.queue.n_never_ran for _, piece in shown)
        more = [*(["cost"] if costs else []), *(["jobs", "mean wait"] if waited else []), *(["never ran"] * never)]
        rows = [[title, "held", "share", *more]]

        def add(name: str, held_ns: int, beside: Sequence[str]) -> None:
            cost = [costs.show(held_ns / NS_PER_S)] if costs else []
            rows.append([name, _show(held_ns), show_percent(held_ns / whole), *cost, *beside])

        for name, piece in shown:
            mean_s = None if piece.queue is None else piece.queue.mean_s
            beside = [str(piece.jobs), "-" if mean_s is None else show_seconds(mean_s)] if waited else []
            beside += ["-" if piece.queue is None else str(piece.queue.n_never_ran)] if never else []
            add(self._glyphs.clean(name) or "not said", piece.held_ns, beside)
        if rest := list(pieces.values())[len(shown) :]:
            add(f"{len(rest)} more", sum(piece.held_ns for piece in rest), [""] * (2 * waited + never))
        figures = sum(2 + max(map(len, column)) for column in list(zip(*rows, strict=True))[1:])
        names = [self._glyphs.shorten(row[0], max(8, min(_PIECE_WIDTH, self._width - 2 - figures))) for row in rows]
        left = self._width - 4 - figures - max(map(cell_len, names))
        drawn = min(left, 16 if waited else 24) if left >= _LEAST_BAR else 0
        table = _grid("left", *("right" for _ in rows[0][1:]), *(["left"] if drawn else []))
        for place, (name, row) in enumerate(zip(names, rows, strict=True)):
            bar = [shown[place - 1][1].held_ns / whole] if 0 < place <= len(shown) else []
            texts = [Text(text, style="" if place else "dim") for text in (name, *row[1:])]
            table.add_row(*texts, *(Text(self._glyphs.bar(share, drawn), style="green") for share in bar if drawn))
        return Padding(table, (0, 0, 0, 2))

    def _changes(
        self, changes: Sequence[tuple[str, Change]], ledger: Ledger, unknown: Mapping[str, int] | None = None
    ) -> list[RenderableType]:
        """The first few changes, each with its gain at the right and where to look below; then what is no advice."""
        if not ledger.window_ns:
            return []
        shown = [pair for pair in changes if pair[1].seconds * NS_PER_S >= MIN_GAIN * ledger.window_ns][:SHOWN]
        unranked = self._unranked(_of_unknown(ledger) if unknown is None else unknown, ledger)
        if not shown and ledger.unknown:
            return [Text(), *unranked] if unranked else []  # what is not known is no proof that nothing was lost
        if not shown:
            lost = ledger.amounts_ns.get("productive", 0) < ledger.window_ns
            said = "Nothing is left to gain but crumbs, each under 0.1 points." if lost else _PERFECT
            return [] if is_open(ledger) else [Text(), Text(said, style="bold")]
        title = "What would return most" + (", in device-time" if ledger.devices > 1 else "")
        lines: list[RenderableType] = [Text(), Text(title, style="bold")]
        gains = self._gains([change for _, change in shown], ledger)
        for place, ((run, change), gain) in enumerate(zip(shown, gains, strict=True), 1):
            about = f"{run}: " if run else ""
            table = Table.grid(Column(no_wrap=True), Column(ratio=1), Column(no_wrap=True), padding=(0, 1, 0, 0))
            table.width = min(self._width, _PAGE_WIDTH) - 2
            text = "\n".join(wrap(self._glyphs.clean(about + change.text), table.width - len(gain) - 4))
            table.add_row(f"{place}.", Text(text), Text(gain, style="green"))
            lines += [_hanging(table), Padding(Text(change.where, style="dim"), (0, 0, 0, 5))]
        return [*lines, *unranked]

    def _unranked(self, lost: Mapping[str, int], ledger: Ledger) -> list[RenderableType]:
        """Name the losses of factors that are not known: what they are a share of is not, so they are no advice."""
        least = MIN_GAIN * ledger.window_ns
        some = [pair for pair in sorted(lost.items(), key=lambda pair: -pair[1]) if pair[1] >= least]
        if not some:
            return []
        named = ", ".join(f"{self._glyphs.clean(name)} {_show(ns)}" for name, ns in some[:SHOWN])
        factors = sorted({category(name).factor or "" for name, _ in some})
        are = "is" if len(factors) == 1 else "are"
        return [_hanging(Text(f"not ranked, as {' and '.join(factors)} {are} not known: {named}", style="dim"))]

    def _gains(self, changes: Sequence[Change], ledger: Ledger) -> list[str]:
        """Points, and money in a column of one width."""
        shares = [show_percent(change.seconds * NS_PER_S / ledger.window_ns)[:-2] for change in changes]
        up_to = ["up to " if change.up_to else "" for change in changes]
        points = [f"{word:>7}+{share} points" for word, share in zip(up_to, shares, strict=True)]
        costs = self._costs(ledger)
        if costs is None:
            return points
        money = [costs.show(change.seconds) for change in changes]
        width = max(map(len, money))
        return [f"{gain}  {amount:>{width}}" for gain, amount in zip(points, money, strict=True)]


def _of_unknown(ledger: Ledger) -> dict[str, int]:
    """Return the losses of a ledger whose factor its source cannot tell [device-ns]."""
    return {name: ns for name, ns in ledger.amounts_ns.items() if category(name).factor in ledger.unknown}


def _style(name: str) -> str:
    return "bold red" if name == "unaccounted" else _STYLES[category(name).factor]


def _rank(ledger: Ledger, name: str, ns: int) -> int:
    """Where a category stands: unaccounted over its limit, then what was kept, then losses."""
    if name == "unaccounted" and ns > UNACCOUNTED_FIRST * ledger.window_ns:
        return 0
    return 1 if name == "productive" else 2


def _grid(*columns: str) -> Table:
    """Return a table without lines; a column ``note`` takes what width is left, and wraps."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        if column == "note":
            table.add_column(overflow="fold")
        else:
            table.add_column(justify="right" if column == "right" else "left", no_wrap=True, overflow="crop")
    return table


def _hanging(text: RenderableType) -> Padding:
    return Padding(text, (0, 0, 0, 2))


def _spread(spread: Spread) -> list[Text]:
    return [Text(show_seconds(value)) for value in (spread.min_s, spread.median_s, spread.max_s)]


def _show(ns: int) -> str:
    return show_seconds(ns / NS_PER_S)
