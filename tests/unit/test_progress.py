import io
import os

import pytest

from headway.record.progress import Bar, bar_text, wants_bar

S = 10**9


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


class Ascii(Terminal):
    encoding = "ascii"

    def write(self, text):
        return super().write(text.encode("ascii").decode())


class Broken(Terminal):
    def write(self, text):
        raise BrokenPipeError

    def isatty(self):
        raise ValueError("I/O operation on closed file")


class Hostile:
    def __getattr__(self, name):
        raise RuntimeError(name)


def test_the_line_says_how_far_how_fast_and_how_well():
    bar = Bar("train", 8, Terminal(), started_ns=0)
    for second in range(1, 5):
        bar.update(second * S // 2, waited_ns=S // 10)
    assert bar.line(2 * S, 70) == "train  ███████████████                 4/8  2 it/s  goodput 80 %"


def test_without_a_total_there_is_no_bar():
    bar = Bar("", None, Terminal(), started_ns=0)
    bar.update(S, 0, n=2500)
    assert bar.line(S, 79) == "2500  2500 it/s  goodput 100 %"


def test_before_any_time_has_passed_nothing_is_divided():
    assert Bar("x", 3, Terminal(), started_ns=5).line(5, 79).split() == ["x", "0/3"]


def test_no_rate_before_a_second_has_been_measured():
    bar = Bar("", 5, Terminal(), started_ns=0)
    bar.update(S // 2, 0)
    assert "it/s" not in bar.line(S - 1, 79)
    assert bar.line(S, 79).endswith("1/5  1 it/s  goodput 100 %")


def test_it_begins_where_the_work_goes_on_and_the_rate_is_of_this_pass():
    bar = Bar("", 10, Terminal(), started_ns=0, initial=6)
    assert bar.line(0, 79).split()[-1] == "6/10"
    bar.update(2 * S, 0, n=2)
    assert "8/10  1 it/s" in bar.line(2 * S, 79)


def test_a_step_counts_when_it_is_done():
    bar = Bar("", 3, Terminal(), started_ns=0)
    counts = [bar.line(0, 79).split()[-1] for _ in bar.watch(iter("abc"))]
    assert counts == ["0/3", "1/3", "2/3"]
    bar.close(0)
    assert bar.line(0, 79).split()[-1] == "3/3"


@pytest.mark.parametrize(("turns", "done"), [(1, "1/9"), (2, "2/9"), (3, "2/9")])
def test_the_step_that_the_loop_broke_out_of_counts_and_one_without_an_item_does_not(turns, done):
    bar = Bar("", 9, Terminal(), started_ns=0)
    items = bar.watch(iter("ab"))
    for _ in range(turns):
        next(items, None)
    bar.close(0)
    assert bar.line(0, 79).split()[-1] == done


def test_a_print_after_the_bar_begins_at_column_0_and_the_streams_are_left_alone(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    bar = Bar("train", 4, terminal, started_ns=0)
    bar.update(0, 0)
    assert "write" not in vars(terminal)
    assert terminal.getvalue().endswith("\r")
    bar.close(S)
    print("after")
    assert terminal.getvalue().endswith("\nafter\n")


@pytest.mark.parametrize("columns", range(100))
def test_the_line_never_is_wider_than_the_terminal(columns):
    bar = Bar("a long description of what is done", 1000, Terminal(), started_ns=0)
    bar.update(S, S // 2, n=999)
    assert len(bar.line(S, columns)) <= columns


def test_more_items_than_announced_do_no_harm():
    bar = Bar("", 2, Terminal(), started_ns=0)
    bar.update(S, 0, n=5)
    assert "5/2" in bar.line(S, 79)
    assert bar_text(2.5, 4) == "████"
    assert bar_text(-1, 4) == "    "


def test_it_is_drawn_at_most_ten_times_a_second_and_the_last_line_stays():
    stream = Terminal()
    bar = Bar("train", 1000, stream, started_ns=0)
    for ms in range(1000):
        bar.update(ms * 1_000_000, 0)
    drawn = stream.getvalue().count("train")
    assert drawn == 10
    bar.close(S)
    bar.close(2 * S)
    assert stream.getvalue().count("train") == drawn + 1
    assert stream.getvalue().endswith("\n")
    assert "1000/1000" in stream.getvalue().splitlines()[-1]


def test_an_encoding_without_blocks_gets_ascii():
    stream = Ascii()
    bar = Bar("épocas\n\tx", 2, stream, started_ns=0)
    bar.update(S, 0)
    bar.close(2 * S)
    assert "?pocas x  ####" in stream.getvalue()


@pytest.mark.parametrize("make", [Broken, Hostile, lambda: None])
def test_a_broken_stream_stops_the_bar_and_not_the_loop(make):
    stream = make()
    for quiet in (None, False, True):
        wants_bar(stream, quiet)
    bar = Bar("x", 3, stream, 0)
    bar.update(S, 0)
    bar.close(2 * S)


def test_a_bar_is_wanted_on_a_terminal_or_when_asked():
    assert wants_bar(Terminal(), None)
    assert not wants_bar(Terminal(), quiet=True)
    assert not wants_bar(io.StringIO(), None)
    assert wants_bar(io.StringIO(), quiet=False)
    assert not wants_bar(None, quiet=False)


def test_a_real_terminals_width_is_kept():
    leader, follower = os.openpty()
    try:
        import fcntl
        import struct
        import termios

        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
        with open(follower, "w", encoding="utf-8", closefd=False) as stream:
            bar = Bar("train", 10, stream, started_ns=0)
            bar.update(S, 0)
        line = os.read(leader, 4096).decode()
    finally:
        os.close(leader)
        os.close(follower)
    assert len(line.strip("\r")) == 39
