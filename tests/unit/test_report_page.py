"""The page on a terminal: golden screens, and what must never reach one."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from headway.ledger.ledger import Ledger, Part
from headway.report.entry import Entry, Options
from headway.report.glyphs import Glyphs
from headway.report.terminal import print_report
from headway.units import Price

from unit.shown import NASTY, S, digits, entry, ledger, pool, ranks, windows

GOLDEN = Path(__file__).parents[1] / "golden"


SCREENS = {
    "one_run": ([entry(warnings=["ranks 5 of 8 present"])], Options(), "utf-8"),
    "price": ([entry(digits(released_ns=300 * S))], Options(price=Price(20_000)), "utf-8"),
    "ascii": ([entry()], Options(), "ascii"),
    "ranks": ([entry(ranks(), run="wide")], Options(by="rank"), "utf-8"),
    "windows": ([entry(windows=windows())], Options(windows=True), "utf-8"),
    "several": ([entry(), entry(ranks(), run="wide")], Options(price=Price(1000, "EUR")), "utf-8"),
    "perfect": ([entry(ledger({"productive": 3}, attempts=1, ranks=1, devices=1))], Options(), "utf-8"),
    "empty": ([entry(Ledger())], Options(price=Price(2)), "utf-8"),
    "pool": ([entry(pool(), run="pool")], Options(), "utf-8"),
}


def screen(entries, options=None, encoding="utf-8", width=80, **console):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = {"color_system": None, **console}
    print_report(entries, options or Options(), Console(file=stream, width=width, **console))
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_as_it_was_agreed(name):
    entries, options, encoding = SCREENS[name]
    got = screen(entries, options, encoding)
    golden = GOLDEN / f"{name}.txt"
    if not golden.exists() or golden.read_text() != got:
        golden.with_suffix(".failed").write_text(got)
    assert got == (golden.read_text() if golden.exists() else ""), f"see {golden.with_suffix('.failed')}"


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_fits_80_columns_and_drags_no_blanks(name):
    entries, options, encoding = SCREENS[name]
    for line in screen(entries, options, encoding).splitlines():
        assert len(line) <= 80
        assert line == line.rstrip(" ")


@pytest.mark.parametrize("name", SCREENS)
@pytest.mark.parametrize("width", [50, 60, 200])
def test_a_screen_shows_every_amount_at_any_width(name, width):
    entries, options, encoding = SCREENS[name]
    shown = screen(entries, options, encoding, width)
    assert all(len(line) <= width for line in shown.splitlines())
    if entries[0].ledger.held_ns:
        assert "productive" in shown
        assert "100.0 %" in shown


def test_a_terminal_gets_colours_and_a_file_none():
    assert "\x1b[" in screen([entry()], force_terminal=True, color_system="standard")
    assert "\x1b" not in screen([entry()], color_system="auto")


def test_nothing_from_a_log_steers_the_terminal():
    amounts = {"productive": S, f"custom:{NASTY}": S}
    part = Part(0, NASTY, Ledger(amounts, held_ns=2 * S))
    nasty = Ledger(
        amounts, held_ns=2 * S, attempts=1, ranks=1, devices=1, parts=(part,),
        waits_ns={NASTY: S}, background_ns={NASTY: S}, warnings=(NASTY,),
    )  # fmt: skip
    entries = [Entry(NASTY, NASTY, nasty, NASTY, (NASTY,))]
    for encoding in ("utf-8", "ascii", "latin-1"):
        shown = screen([*entries, *entries], Options(by="attempt"), encoding, 200)
        assert "[red]x[/red]?[31m" in shown
        assert ":boom:" in shown
        assert not {"\x1b", "\r", "\x07", "\u202e", "\udc80"} & set(shown)


def test_100_percent_is_printed_only_when_it_is_true():
    nearly = ledger({"productive": 10_000, "recovery": 0.001}, attempts=1, ranks=1, devices=1)
    assert "R 99.9 %" in screen([entry(nearly)])
    assert "recovery" in screen([entry(nearly)])


def test_crumbs_are_no_advice():
    shown = screen([entry(ledger({"productive": 10_000, "recovery": 1}))])
    assert "crumbs" in shown
    assert "1. " not in shown


def test_a_window_counts_no_steps():
    shown = screen([entry(ledger({"productive": 6, "rework": 4}))])
    assert "4.0 s done again or lost" in shown
    assert "0 steps" not in shown


def test_time_without_a_name_stands_first_only_when_it_is_much():
    def first(share):
        shown = screen([entry(ledger({"productive": 100 - share, "unaccounted": share}))])
        return shown.splitlines()[3].split()[0]

    assert first(1.1) == "unaccounted"
    assert first(0.9) == "productive"


def test_bars_are_as_long_as_their_share():
    glyphs = Glyphs.of("utf-8")
    assert [glyphs.bar(f, 10) for f in (0, 1e-9, 0.5, 1)] == ["", "▏", "█████", "█" * 10]
    assert [Glyphs.of("ascii").bar(f, 10) for f in (0, 1e-9, 0.5, 1)] == ["", "#", "#####", "#" * 10]
    assert Glyphs.of("no-such-encoding").plain


def test_a_long_name_keeps_its_ends():
    assert Glyphs.of("utf-8").shorten("custom:" + "x" * 50 + "_end", 15) == "custom:…xxx_end"
    assert Glyphs.of("ascii").shorten("custom:" + "x" * 50 + "_end", 15) == "custom:..xx_end"
