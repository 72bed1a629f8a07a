"""The page on a terminal: golden screens, and what must never reach one."""

import dataclasses
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from headway.ledger.ledger import Ledger, Part
from headway.report.entry import Entry, Options
from headway.report.glyphs import Glyphs
from headway.report.terminal import print_report
from headway.units import Price

from unit.shown import NASTY, S, attempts, digits, entry, ledger, pool, ranks, windows

GOLDEN = Path(__file__).parents[1] / "golden"


SCREENS = {
    "one_run": ([entry(warnings=["ranks 5 of 8 present"])], Options(), "utf-8"),
    "price": ([entry(digits(released_ns=300 * S))], Options(price=Price(20_000)), "utf-8"),
    "ascii": ([entry()], Options(), "ascii"),
    "ranks": ([entry(ranks((0.2, 2, 0.3, 0.2), "source"), run="wide")], Options(by="rank"), "utf-8"),
    "peers": ([entry(ranks(phase="allreduce"), run="wide")], Options(), "utf-8"),
    "attempts": ([entry(attempts(), run="train-20231114T221320.123456-4242")], Options(by="attempt"), "utf-8"),
    "cheap": ([entry()], Options(price=Price(2)), "utf-8"),
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


def test_bars_have_one_scale_for_all_pages():
    def bars(shown):
        return {line.split()[0]: len(line.split("%")[1].split()[0]) for line in shown.splitlines() if "█" in line}

    one = bars(screen([entry(ledger({"productive": 61.3, "recovery": 38.7}))]))
    two = bars(screen([entry(ledger({"productive": 14.8, "startup": 38.7, "silent": 46.5}))], width=120))
    assert (one["productive"], one["recovery"]) == (25, 16)
    assert (two["productive"], two["startup"]) == (6, 16)


def test_a_title_that_is_too_long_for_its_line_stands_alone():
    name = "train-20231114T221320.123456-4242-" + "x" * 20
    first, second, third, *_ = screen([entry(run=name)]).splitlines()
    assert (first, second) == (name, "2 attempts · 1 rank x 1 device · held 41.2 s")
    assert third.startswith("runtime goodput")
    assert screen([entry(run="x" * 200)]).splitlines()[0] == "x" * 40 + "…" + "x" * 39


def test_what_a_run_could_say_besides_is_no_warning():
    shown = screen([entry(warnings=["saves not recorded: what a failure would lose is not known", "ranks 5 of 8"])])
    assert "\n  saves not recorded" in shown
    assert "warning: ranks" in shown
    assert shown.count("warning") == 1


def test_how_attempts_ended_is_said():
    shown = screen([entry(attempts())])
    assert "of 5 attempts 1 did not close, 2 failed, 1 ended by a signal (--by attempt)" in shown
    part = dataclasses.replace(attempts().parts[1], attempt="a0")
    shown = screen([entry(dataclasses.replace(part.ledger, parts=(part,)))])
    assert "\n  attempt a0 failed\n" in shown
    assert "ended" not in screen([entry()])


def test_a_run_that_did_not_close_has_no_last_word():
    part = Part(0, "a0", ledger({"productive": 5}))
    for lost in ({}, {"recovery": 0.001}):
        shown = ledger({"productive": 5, **lost})
        assert "Nothing" in screen([entry(shown)])
        assert "Nothing" not in screen([entry(dataclasses.replace(shown, parts=(part,)))])


def test_a_sum_counts_runs_and_not_ranks_that_may_be_the_same():
    shown = screen([entry(), entry(ranks(), run="wide")])
    assert "Sum of 2 runs · 3 attempts · held 97.4 s of device-time\n" in shown


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


def test_a_number_is_never_parted_from_its_unit():
    long = ledger({"productive": 60, "checkpoint_restore": 40.5})
    for width in range(60, 100):
        assert not re.search(r"\d\n +\S* ?s\b|\d +\n", screen([entry(long), entry(long)], width=width))


def test_losses_that_cannot_be_ranked_are_named():
    long = replace(ledger({"productive": 40, "compile": 50, "below_peak": 10}), unknown={"R": "there is no clock"})
    page = screen([entry(long)])
    assert "1. larger or fused kernels" in page
    assert "not ranked, as R is not known: compile 50.0 s" in page
    assert "What would return most" not in screen([entry(replace(ledger({"compile": 50}), unknown={"R": "no clock"}))])


def test_a_sum_lists_what_is_in_it_and_says_that_its_parts_warn():
    good, bad = entry(ledger({"productive": 40})), replace(entry(ledger({"startup": 50})), run="b", warnings=["odd"])
    page = screen([good, bad])
    assert "what 1 of them warn of, above, holds for the sum too" in page
    assert re.search(r"\n  b +50\.0 s +0\.0 % .*startup 50\.0 s", page)


def test_traces_are_no_runs_to_be_added():
    run, trace = entry(ledger({"productive": 40})), replace(entry(ledger({"productive": 4})), source="kineto")
    assert "Sum of" not in screen([run, trace])
    assert "Sum of 2 traces" in screen([run, trace, trace])


def test_times_without_a_clock_give_a_sum_none():
    told = ledger({"productive": 40}, start_ns=1_700_000_000 * S, end_ns=1_700_000_040 * S)
    page = screen([entry(told), entry(replace(told, start_ns=None, end_ns=None))])
    assert page.count(" UTC: ") == 1


def test_a_sum_names_as_not_ranked_what_no_run_of_it_ranks():
    known = ledger({"productive": 40, "compile": 10})
    unknown = replace(ledger({"productive": 40, "compile": 30}), unknown={"R": "there is no clock"})
    page = screen([entry(known), entry(unknown)])
    assert page.count("not ranked, as R is not known: compile 30.0 s") == 1  # the runs of a sum leave that to it
