"""Power beside an MLPerf run: what the readings sum to in its window, and when that is not known."""

import gzip
import json
import os
from datetime import UTC, datetime, timedelta, timezone

import pytest

from headway.errors import SourceError
from headway.events import Close, Open
from headway.ledger.account import account
from headway.ledger.history import Process, Run
from headway.sources import files, load
from headway.sources.asked import Asked
from headway.sources.mlperf import MLPerf
from headway.sources.mlperfpower.source import MLPerfPower, attach, read, window

T0 = 1_700_000_000


def record(seconds, key, value=None, mark=":::MLLOG ", **metadata):
    fields = {"namespace": "", "time_ms": round((T0 + seconds) * 1000), "key": key, "value": value}
    return mark + json.dumps({**fields, "metadata": metadata})


def readings(watts, host="node_0", step=1.0, begin=0.0):
    return [record(begin + n * step, "power_reading", one, host=host) for n, one in enumerate(watts)]


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def training(path, begin=100, end=200):
    keys = [(begin - 50, "init_start"), (begin, "run_start"), (begin, "block_start"), (end, "block_stop")]
    lines = [record(at, key) for at, key in keys]
    return write(path, [*lines, record(end, "run_stop", None, status="success")])


def run_between(begin, end):
    opened = Open(wall_ns=(T0 + begin) * 10**9, mono_ns=0)
    return Run("r", "table", [Process(opened, [Close(at=(end - begin) * 10**9)])])


def test_node_logs_beside_a_training_log_give_its_energy(tmp_path):
    path = training(tmp_path / "result_0.txt")
    write(tmp_path / "power" / "result_0" / "node_0.txt", readings([1000.0] * 301))
    write(tmp_path / "power" / "result_0" / "node_1.txt", [record(0, "conversion_eff", 0.5), *readings([1000.0] * 301)])
    write(tmp_path / "power" / "result_0" / "sw_0.txt", [record(0, "interconnect_power_est", 100.0, host="sw_0")])
    write(tmp_path / "power" / "result_1" / "node_0.txt", readings([7.0] * 301))
    (run,) = MLPerf().load(path, Asked(devices=8))
    assert run.energy_j == pytest.approx(100 * (1000 + 500 + 100))
    assert attach(run, [tmp_path / "power" / "result_1" / "node_0.txt"]) is run
    ledger = account(run)
    assert ledger.energy_j / ledger.steps.retained == pytest.approx(160_000)
    assert window(run) == ((T0 + 100) * 10**9, (T0 + 200) * 10**9)


def power_beside(tmp_path, *names):
    """Return a training log in a folder, and the folder of its power logs, with a log of each name."""
    path = training(tmp_path / "d" / "result_0.txt")
    for name in names:
        write(tmp_path / "d" / "power" / "result_0" / name, readings([1000.0] * 301))
    return path, tmp_path / "d" / "power"


def left_out_of(path):
    (run,) = MLPerf().load(path, Asked(devices=8))
    assert run.energy_j is None
    (said,) = (text for text in run.warnings if "left out" in text)
    return run, said


def test_a_power_log_that_is_a_link_is_not_followed_and_the_rest_is_not_all(tmp_path):
    path, power = power_beside(tmp_path, "node_1.txt")
    outside = write(tmp_path / "outside.txt", readings([7.0] * 301))
    (power / "result_0" / "node_0.txt").symlink_to(outside)
    run, said = left_out_of(path)
    assert said == (
        "power beside it is left out, and its energy is unknown: "
        "power/result_0/node_0.txt (it is a link, which is not followed)"
    )
    assert attach(run, [power / "result_0" / "node_1.txt"]) is run
    (run,) = load(path.parent, devices=8)
    assert run.energy_j is None
    assert said in run.warnings


@pytest.mark.parametrize("name", ["power", "power/result_0"])
def test_a_folder_of_power_logs_that_is_a_link_is_not_followed(tmp_path, name):
    path = training(tmp_path / "d" / "result_0.txt")
    for folder in ("outside", "outside/result_0"):
        write(tmp_path / folder / "node_0.txt", readings([7.0] * 301))
    (tmp_path / "d" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "d" / name).symlink_to(tmp_path / "outside")
    assert f"unknown: {name} (it is a link, which is not followed)" in left_out_of(path)[1]


def test_a_training_log_that_is_a_link_is_read_with_the_power_beside_the_link(tmp_path):
    path, _ = power_beside(tmp_path, "node_0.txt")
    path.rename(tmp_path / "log")
    path.symlink_to(tmp_path / "log")
    (run,) = load(path, devices=8)
    assert run.energy_j == pytest.approx(100_000)


def test_power_logs_that_cannot_be_read_are_said(tmp_path, monkeypatch):
    path, power = power_beside(tmp_path, "node_1.txt")
    os.mkfifo(power / "result_0" / "node_0.txt")
    (power / "result_0" / "sw_0.txt").symlink_to("/dev/zero")
    assert left_out_of(path)[1].endswith(
        "power/result_0/node_0.txt (it is a pipe, not a file); "
        "power/result_0/sw_0.txt (it is a link, which is not followed)"
    )
    for name in ("node_0.txt", "sw_0.txt"):
        (power / "result_0" / name).unlink()
    log = power / "result_0" / "node_1.txt"
    log.write_bytes(gzip.compress(log.read_bytes()))
    monkeypatch.setattr(files, "MAX_UNPACKED", 1 << 10)
    assert "node_1.txt (it unpacks to more than" in left_out_of(path)[1]


def test_a_folder_of_power_logs_that_is_none_is_said(tmp_path):
    path = training(tmp_path / "result_0.txt")
    os.mkfifo(tmp_path / "power")
    assert "power/result_0 (not a directory)" in left_out_of(path)[1]


def test_without_power_logs_nothing_changes(tmp_path):
    (run,) = MLPerf().load(training(tmp_path / "result_0.txt"), Asked())
    assert run.energy_j is None


def test_trapezoids_are_cut_at_the_window_and_order_and_repeats_do_not_matter(tmp_path):
    lines = readings([float(n) for n in range(0, 101, 10)], step=10)  # n watts at second n
    path = write(tmp_path / "a", lines)
    expected = (95**2 - 5**2) / 2
    assert attach(run_between(5, 95), [path, path]).energy_j == pytest.approx(expected)
    write(path, [*lines[::-1], *lines[3:5], "noise"])
    assert attach(run_between(5, 95), [path]).energy_j == pytest.approx(expected)


def test_hosts_of_one_file_and_of_two_are_added(tmp_path):
    one = write(tmp_path / "a", readings([10.0] * 11, "x") + readings([20.0] * 11, "y"))
    two = write(tmp_path / "b", readings([40.0] * 11, "x"))
    assert attach(run_between(0, 10), [one, two]).energy_j == pytest.approx(700)


def test_a_colon_that_is_missing_and_text_around_are_read(tmp_path):
    lines = [f"12: {line} trailing" for line in readings([5.0] * 5)] + [record(5, "power_reading", "5", "::MLLOG ")]
    meters, warnings = read(write(tmp_path / "a", lines))
    assert [len(meter.times) for meter in meters] == [1, 5]  # the last names no host
    assert warnings == []


def test_ptdaemon_lines_are_local_times(tmp_path):
    zone = timezone(timedelta(hours=2))
    stamps = [datetime.fromtimestamp(T0 + n / 2, zone).strftime("%m-%d-%Y %H:%M:%S.%f")[:-3] for n in range(201)]
    lines = [f"Time,{at},Watts,24.50,Volts,226.9,Amps,0.2,PF,0.5,Mark,run\r" for at in stamps]
    path = write(
        tmp_path / "spl.txt", [*lines, "Time,03-01-2021 16:00:01,Watts,-1.0", "Time,99-01-2021", "Time,,Watts,5"]
    )
    run = attach(run_between(0, 100), [path], zone)
    assert run.energy_j == pytest.approx(2450)
    assert any("3 lines are no power reading" in warning for warning in run.warnings)
    assert not any("name no zone" in warning for warning in run.warnings)
    elsewhere = attach(run_between(0, 100), [path])
    assert any("name no zone" in warning for warning in elsewhere.warnings)
    assert elsewhere.energy_j is None
    assert any("see that both clocks are of one zone" in warning for warning in elsewhere.warnings)
    assert MLPerfPower().recognise(path, files.head(path)) is None
    assert MLPerfPower().load(path, Asked())[0].energy_j == pytest.approx(2450)


def spl(path, dates, pattern, watts=24.5):
    """Write a log of PTDaemon: 101 readings, half a second apart, from each date on."""
    stamps = [(date + timedelta(seconds=n / 2)).strftime(pattern)[:-3] for date in dates for n in range(101)]
    return write(path, [f"Time,{at},Watts,{watts},Volts,226.9" for at in stamps])


MONTH_FIRST, DAY_FIRST = "%m-%d-%Y %H:%M:%S.%f", "%d-%m-%Y %H:%M:%S.%f"


def test_an_error_of_the_meter_is_said_as_such(tmp_path):
    path = spl(tmp_path / "spl.txt", [datetime(2021, 1, 22, 15, 5, tzinfo=UTC)], MONTH_FIRST)
    text = path.read_text()
    error = "Time,01-22-2021 15:05:16.322,ERROR,Bad volts reading nan, at once\nBuffer was 1.0E+00;1\n"
    path.write_text(text + error + "Time,01-22-2021 15:05:17.322,Volts,5\nTime,01-22-2021 15:05:18.322,Volts,Watts\n")
    meters, warnings = read(path, UTC)
    assert len(meters[0].times) == 101
    (warning,) = warnings
    assert "3 lines are no power reading" in warning
    assert "the meter's error: Bad volts reading nan, at once" in warning
    assert warning.count("it has no Watts") == 2
    path.write_text(error)
    with pytest.raises(SourceError, match="the meter's error: Bad volts"):
        MLPerfPower().load(path, Asked())


@pytest.mark.parametrize("pattern", [MONTH_FIRST, DAY_FIRST])
def test_the_order_of_day_and_month_is_that_in_which_more_dates_are_some(tmp_path, pattern):
    dates = [datetime(2020, 12, 12, 23, 59, 30, tzinfo=UTC), datetime(2020, 12, 28, 15, 20, tzinfo=UTC)]
    path = spl(tmp_path / "spl.txt", dates, pattern)
    meters, warnings = read(path, UTC)
    assert [int(at) // 10**9 for at in meters[0].sorted()[0][[0, 101]]] == [int(date.timestamp()) for date in dates]
    assert [text for text in warnings if "day before the month" in text] == [
        "spl.txt: its dates are read with the day before the month"
    ] * (pattern == DAY_FIRST)
    path.write_text(path.read_text() + "Time,13-13-2020 15:20:01.000,Watts,5.0\n")
    meters, warnings = read(path, UTC)
    assert len(meters[0].times) == 202
    assert "its date, 13-13-2020, is none with the" in warnings[0]


@pytest.mark.parametrize("pattern", [MONTH_FIRST, DAY_FIRST])
def test_a_date_that_may_be_of_either_order_is_that_of_the_run(tmp_path, pattern):
    date = datetime(2020, 11, 7, 17, 54, tzinfo=UTC)
    path = spl(tmp_path / "spl.txt", [date], pattern)
    begin = int(date.timestamp()) - T0
    run = attach(run_between(begin, begin + 50), [path], UTC)
    assert run.energy_j == pytest.approx(50 * 24.5)
    assert any("day before the month" in text for text in run.warnings) == (pattern == DAY_FIRST)
    assert attach(run_between(0, 50), [path], UTC).energy_j is None
    (alone,) = MLPerfPower().load(path, Asked(zone=UTC))
    assert any("may be of either order: the month is read before the day" in text for text in alone.warnings)


@pytest.mark.parametrize("pattern", [MONTH_FIRST, DAY_FIRST])
def test_the_mark_of_a_measurement_tells_the_order_of_its_dates(tmp_path, pattern):
    dates = [datetime(2020, 11, 7, 17, 54, tzinfo=UTC), datetime(2020, 11, 8, 0, 4, tzinfo=UTC)]
    path = spl(tmp_path / "spl.txt", dates, pattern)
    marks = [("2020-11-07_17-50-01_ranging", True), ("2019-11-07_17-50-01_run_1", False), ("my own", False)]
    for mark, is_told in marks:
        marked = tmp_path / "marked.txt"
        marked.write_text("".join(f"{line},Mark,{mark}\n" for line in path.read_text().splitlines()))
        (alone,) = MLPerfPower().load(marked, Asked(zone=UTC))
        assert any("of either order" in text for text in alone.warnings) != is_told
        at = window(alone)[0] // 10**9
        assert (at == int(dates[0].timestamp())) == (is_told or pattern == MONTH_FIRST)


def test_a_date_that_is_the_same_in_both_orders_is_told(tmp_path):
    path = spl(tmp_path / "spl.txt", [datetime(2020, 3, 3, 17, 54, tzinfo=UTC)], MONTH_FIRST)
    (alone,) = MLPerfPower().load(path, Asked(zone=UTC))
    assert not any("order" in text for text in alone.warnings)


def test_holes_small_and_large(tmp_path):
    line = readings([100.0] * 1001)
    small = write(tmp_path / "a", [*line[:500], *line[540:]])
    run = attach(run_between(0, 1000), [small])
    assert run.energy_j == pytest.approx(100_000)
    assert any("its mean power is taken" in warning for warning in run.warnings)
    large = write(tmp_path / "b", [*line[:300], *line[540:]])
    run = attach(run_between(0, 1000), [small, large])
    assert run.energy_j is None
    assert any("energy is unknown" in warning for warning in run.warnings)


def test_what_cannot_be_is_left_out_and_said(tmp_path):
    odd = [record(3, "power_reading", value) for value in (-5, None, "x", 1e300, True)]
    odd += [record(0, "conversion_eff", -1), ":::MLLOG {", record(-2e9, "power_reading", 5.0)]
    run = attach(run_between(0, 10), [write(tmp_path / "a", [*readings([10.0] * 11), *odd])])
    assert run.energy_j == pytest.approx(100)
    assert any("8 lines are no power reading" in warning for warning in run.warnings)


def test_a_power_log_alone_says_what_it_is_missing(tmp_path):
    path = write(tmp_path / "node_0.txt", readings([10.0] * 11))
    assert MLPerfPower().recognise(path, files.head(path)) is None
    assert "power log" in MLPerf().recognise(path, files.head(path))
    (run,) = MLPerfPower().load(path, Asked())
    assert run.energy_j == pytest.approx(100)
    ledger = account(run)
    assert ledger.runtime is None
    assert "give the training log" in run.warnings[0]


def test_no_reading_at_all(tmp_path):
    path = write(tmp_path / "a", [record(0, "power_measurement_start")])
    with pytest.raises(SourceError, match="no power reading"):
        MLPerfPower().load(path, Asked())
    assert attach(run_between(0, 10), [path]).energy_j is None
    assert MLPerfPower().recognise(path, b"Time, and Watts, in prose")
    training_log = training(tmp_path / "t")
    assert MLPerfPower().recognise(training_log, files.head(training_log))
    assert attach(Run("r", "x", []), [path], UTC).energy_j is None
