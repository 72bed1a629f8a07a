"""Entries of ml-goodput-measurement: intervals, restarts, repeats by several hosts, and what is damaged."""

import gzip
import json
import random

import pytest

from headway.errors import SourceError
from headway.ledger.account import account
from headway.sources import again, files
from headway.sources.asked import Asked
from headway.sources.googlegoodput import source as goodput
from headway.sources.googlegoodput.source import GoogleGoodput

T0 = 1_700_000_000.0


def entry(job="job", **payload):
    return {
        "insertId": "x",
        "jsonPayload": {"job_name": job, "python_logger": "goodput", **payload},
        "resource": {"labels": {"pod_name": "p-0"}, "type": "k8s_container"},
        "severity": "INFO",
    }


def attempt(begin, steps, *, step_s=10.0, first_s=30.0, end=False, job="job"):
    """Return entries: 40 s of init, 60 s of preparation, 5 s of loading, then steps; and when they end."""
    entries = [
        entry(job, job_start_time=begin),
        entry(job, tpu_init_start_time=begin),
        entry(job, tpu_init_end_time=begin + 40),
        entry(job, training_prep_start_time=begin + 40),
        entry(job, training_prep_end_time=begin + 100),
        entry(job, data_loading_start_time=begin + 100),
        entry(job, data_loading_end_time=begin + 105),
    ]
    at = begin + 105
    for number, step in enumerate(steps):
        entries.append(entry(job, step_count=step, step_start_time=at))
        at += step_s if number else first_s
    if end:
        entries.append(entry(job, job_end_time=at))
    return entries, at


def whole():
    first, at = attempt(T0, range(20))
    second, end = attempt(at + 100, range(15, 30), end=True)
    return first + second, end - T0


def lines(entries):
    return "".join(json.dumps(one) + "\n" for one in entries).encode()


def read(tmp_path, data, devices=1):
    path = tmp_path / "entries"
    path.write_bytes(data)
    assert GoogleGoodput().recognise(path, files.head(path)) is None
    return GoogleGoodput().load(path, Asked(devices=devices))


def seconds(run):
    return account(run).seconds


def test_the_categories_sum_to_the_wall_time_of_the_job(tmp_path):
    entries, length = whole()
    (run,) = read(tmp_path, lines(entries))
    ledger = account(run)
    assert sum(ledger.seconds.values()) == pytest.approx(length, abs=1e-6)
    assert length == 700.0
    assert ledger.seconds == pytest.approx(
        {
            "productive": 300.0,
            "startup": 120.0,
            "device_init": 80.0,
            "compile": 40.0,
            "custom:data_loading": 10.0,
            "rework": 40.0,
            "recovery": 110.0,
        },
        abs=1e-6,
    )
    assert (ledger.steps.executed, ledger.steps.retained, ledger.steps.reworked) == (34, 30, 4)
    assert ledger.attempts == 2


def test_json_lines_bare_payloads_arrays_and_gzip_say_the_same(tmp_path):
    entries, _ = whole()
    expected = seconds(read(tmp_path, lines(entries))[0])
    pretty = json.dumps(entries, indent=2).encode()
    for data in (
        pretty,
        json.dumps(entries).encode(),
        b"\xef\xbb\xbf" + lines(entries),
        lines(entries).replace(b"\n", b"\r\n"),
        lines(one["jsonPayload"] for one in entries),
        gzip.compress(pretty),
        "\n".join(json.dumps(one, indent=1) for one in entries).encode(),
    ):
        assert seconds(read(tmp_path, data)[0]) == expected


def test_order_and_repeats_of_lines_change_nothing(tmp_path):
    entries, _ = whole()
    expected = seconds(read(tmp_path, lines(entries))[0])
    for seed in range(5):
        mixed = entries + random.Random(seed).choices(entries, k=30)
        random.Random(seed).shuffle(mixed)
        assert seconds(read(tmp_path, lines(mixed))[0]) == expected


def test_several_hosts_report_one_attempt(tmp_path):
    one, _ = attempt(T0, range(10), end=True)
    (alone,) = read(tmp_path, lines(one))
    late, _ = attempt(T0 + 0.2, range(10), end=True)
    (run,) = read(tmp_path, lines(one + late))
    assert len(run.processes) == 1
    assert account(run).steps.executed == 10
    assert seconds(run)["productive"] == pytest.approx(seconds(alone)["productive"] + 0.2, abs=0.5)
    assert any("10 steps are reported again" in warning for warning in run.warnings)


def test_a_job_start_makes_an_attempt_and_a_repeated_number_alone_does_not(tmp_path):
    first, at = attempt(T0, range(5))
    again = [entry(step_count=step, step_start_time=at + 200 + 10 * step) for step in range(2, 9)]
    (run,) = read(tmp_path, lines([*first, *again, entry(job_end_time=at + 300)]))
    ledger = account(run)
    assert len(run.processes) == 1
    assert ledger.steps.rolled_back == 3
    assert any("begin again at a lower number" in warning for warning in run.warnings)


def elastic(begin, wait_s, reinit_s, kind="elastic_slice_down"):
    """Return the entries of a wait for slices and of what is set up anew after it."""
    return [
        entry(elastic_wait_event_type=kind, elastic_wait_start_time=begin),
        entry(elastic_wait_event_type=kind, elastic_wait_end_time=begin + wait_s),
        entry(elastic_reinit_start_time=begin + wait_s),
        entry(elastic_reinit_end_time=begin + wait_s + reinit_s),
    ]


def numbered(begin, steps, step_s=5.0):
    return [entry(step_count=step, step_start_time=begin + step_s * place) for place, step in enumerate(steps)]


@pytest.mark.parametrize("left_out", [(), (1,), (0, 1), (2, 3), (1, 2, 3)])
def test_what_is_done_again_soon_after_a_slice_was_lost_is_rollback(tmp_path, left_out):
    events = [one for place, one in enumerate(elastic(T0 + 23, 4, 3)) if place not in left_out]
    again = numbered(T0 + 30, range(1, 6))
    (run,) = read(tmp_path, lines([entry(job_start_time=T0), *numbered(T0, range(5)), *events, *again]))
    ledger = account(run)
    assert (ledger.steps.rolled_back, ledger.steps.retained) == (4, 5)
    assert not any("another host" in warning for warning in run.warnings)
    if not left_out:
        assert ledger.seconds == pytest.approx(
            {"productive": 25.0, "rollback": 18.0, "custom:elastic_wait": 4.0, "custom:elastic_reinit": 3.0}
        )


def test_what_another_host_reports_while_slices_are_waited_for_is_not_done_again(tmp_path):
    other = [entry(step_count=4, step_start_time=T0 + 24), entry(step_count=5, step_start_time=T0 + 30.5)]
    events = elastic(T0 + 23, 4, 2, "elastic_scale_up")
    steps = [*numbered(T0, range(5)), *other, *numbered(T0 + 30, range(5, 8))]
    (run,) = read(tmp_path, lines([entry(job_start_time=T0), *events, *steps]))
    assert (account(run).steps.rolled_back, account(run).steps.executed) == (0, 7)
    assert any("2 steps are reported again" in warning for warning in run.warnings)


def test_a_second_restart_at_a_lower_number_rolls_back_from_there(tmp_path):
    steps = [*numbered(T0, range(5)), *numbered(T0 + 40, range(3, 6)), *numbered(T0 + 70, range(1, 8))]
    events = [*elastic(T0 + 25, 5, 5), *elastic(T0 + 57, 5, 5)]
    (run,) = read(tmp_path, lines([entry(job_start_time=T0), *steps, *events]))
    ledger = account(run)
    assert [mark.step for mark in run.processes[0].events if hasattr(mark, "step")] == [2, 0]
    assert (ledger.steps.rolled_back, ledger.steps.retained) == (7, 7)


def test_known_custom_events_and_loading_inside_steps(tmp_path):
    entries, _ = attempt(T0, range(10), end=True)
    step = T0 + 105 + 30 + 10
    for kind, low, high in (("eval_step", 1, 3), ("SDC check", 3, 4), ("Checkpoint_Save", 4, 6)):
        entries.append(entry(custom_badput_event_type=kind, custom_badput_event_start_time=step + low))
        entries.append(entry(custom_badput_event_type=kind, custom_badput_event_end_time=step + high))
    entries.append(entry(data_loading_start_time=step + 5.5))
    entries.append(entry(data_loading_end_time=step + 8))
    (run,) = read(tmp_path, lines(entries))
    found = seconds(run)
    assert (found["evaluation"], found["checkpoint_save"], found["custom:sdc check"]) == (2.0, 2.0, 1.0)
    assert found["input_wait"] == 2.0  # half a second of it lies in the checkpoint
    assert sum(found.values()) == pytest.approx(105 + 30 + 90)


def test_saves_and_restores_of_orbax(tmp_path):
    entries, _ = attempt(T0, range(10), end=True)
    at = T0 + 150
    entries.append(
        entry(
            event_type="save",
            step=3,
            checkpoint_manager_blocking_start_time=at,
            checkpoint_manager_blocking_duration_secs=1.5,
        )
    )
    entries.append(
        entry(
            event_type="restore",
            step=0,
            checkpoint_manager_start_time=T0 + 50,
            checkpoint_manager_duration_secs=20.0,
        )
    )
    found = seconds(read(tmp_path, lines(entries))[0])
    assert (found["checkpoint_save"], found["checkpoint_restore"]) == (1.5, 20.0)
    assert sum(found.values()) == pytest.approx(105 + 30 + 90)


def test_a_restore_without_the_time_of_the_whole_is_that_of_its_part(tmp_path):
    entries, _ = attempt(T0, range(10), end=True)
    nothing = {"checkpoint_manager_start_time": None, "checkpoint_manager_duration_secs": None}
    part = {"checkpointer_start_time": T0 + 50, "checkpointer_duration_secs": 2.0}
    whole_time = {"checkpoint_manager_start_time": T0 + 60, "checkpoint_manager_duration_secs": 4.0}
    entries += [
        entry(event_type="restore", step=0, **nothing, **part),
        entry(event_type="emergency_restore", step=0, **whole_time),
        entry(event_type="restore", step=0, **nothing),
        entry(event_type="save", step=4, checkpoint_manager_blocking_start_time=T0 + 150),
        entry(event_type="delete", step=4, **whole_time),
    ]
    (run,) = read(tmp_path, lines(entries))
    assert seconds(run)["checkpoint_restore"] == 6.0
    said = "\n".join(run.warnings)
    assert "a restore that does not say when it was" in said
    assert "a save that does not say when it was" in said
    assert "3 entry at lines are left out" in said


def test_counts_of_slices_are_no_complaint_and_fewer_than_there_are_is_said(tmp_path):
    entries, _ = attempt(T0, range(10), end=True)

    def slices(active, total=4):
        return entry(active_slices=active, total_slices=total, elastic_slice_counts_timestamp=T0 + 200)

    (run,) = read(tmp_path, lines([*entries, slices(0), slices(4)]))
    assert [text for text in run.warnings if "slices" in text or "left out" in text] == []
    (run,) = read(tmp_path, lines([*entries, slices(3), slices(2), slices(None)]))
    (warning,) = [text for text in run.warnings if "slices" in text or "left out" in text]
    assert "2 entries tell of fewer slices at work than there are, of 2 of 4 or more: all devices" in warning
    assert seconds(run) == seconds(read(tmp_path, lines(entries))[0])


def test_every_job_name_is_a_run_of_its_own(tmp_path):
    one, _ = attempt(T0, range(5), end=True)
    other, _ = attempt(T0, range(7), end=True, job="b\x1b[31mad")
    runs = read(tmp_path, lines(one + other))
    assert [(run.name, account(run).steps.executed) for run in runs] == [("bad", 7), ("job", 5)]


def test_the_last_step_of_a_job_that_did_not_end_is_not_counted(tmp_path):
    entries, _ = attempt(T0, range(10))
    (run,) = read(tmp_path, lines(entries))
    assert account(run).steps.executed == 9
    assert any("did not close" in warning for warning in account(run).warnings)


def test_what_is_missing_or_odd_is_said(tmp_path):
    entries, at = attempt(T0, [0, 1, 2, 7, 8], end=True)
    odd = [
        entry(job_end_time=-5.0),
        entry(step_count=1.5, step_start_time=T0 + 1),
        entry(rolled=3),
        {"textPayload": "hello"},
        entry(tpu_init_start_time="soon"),
        entry(step_count=4, step_start_time=4e9),
    ]
    (run,) = read(tmp_path, lines(entries + odd) + b'{"jsonPayload": {"job_na')
    said = "\n".join(run.warnings)
    assert "4 steps are not logged" in said
    for words in (
        "is no whole number",
        "says nothing that is read",
        "is out of range",
        "truncated",
        "none of ml-goodput",
    ):
        assert words in said
    assert sum(seconds(run).values()) == pytest.approx(at - T0)


def test_a_missing_job_start_is_said(tmp_path):
    entries, _ = attempt(T0, range(6), end=True)
    (run,) = read(tmp_path, lines(entries[1:]))
    assert any("no job_start_time" in warning for warning in run.warnings)
    later, _ = attempt(T0 + 1000, range(6, 9), end=True)
    (run,) = read(tmp_path, lines(entries[1:] + later))
    assert len(run.processes) == 2
    assert any("before the first job_start_time" in warning for warning in run.warnings)


def test_damage_in_an_array_loses_only_what_it_touches(tmp_path):
    entries, _ = attempt(T0, range(10), end=True)
    text = json.dumps(entries, indent=2)
    broken = text.replace('"step_count": 4', '"step_count" 4')
    (run,) = read(tmp_path, broken.encode() + b"[" * 9999)
    assert account(run).steps.executed == 9
    assert any("malformed" in warning for warning in run.warnings)
    assert account(read(tmp_path, text[: len(text) // 2].encode())[0]).steps.executed > 0


def test_prose_and_other_entries_are_not_recognised(tmp_path):
    path = tmp_path / "x"
    for data in (b"job_name and job_start_time", b'{"job_name": "x"}', b"[]", b'{"a": 1}\n', b"\0" * 99, b"{" * 9999):
        assert GoogleGoodput().recognise(path, data)
    path.write_bytes(b'{"jsonPayload": {"job_name": "x", "other": 1}}\n')
    with pytest.raises(SourceError, match="no entry of ml-goodput-measurement"):
        GoogleGoodput().load(path, Asked())


def test_a_gzip_that_is_cut_is_said(tmp_path):
    entries, _ = attempt(T0, range(3000), end=True)
    packed = gzip.compress(lines(entries))
    (run,) = read(tmp_path, packed[: len(packed) // 2])
    assert 0 < account(run).steps.executed < 3000
    assert any("cut or damaged" in warning for warning in run.warnings)


def test_a_number_of_too_many_digits_is_left_out_and_reading_goes_on(tmp_path):
    entries, _ = attempt(T0, range(10), end=True)
    text = json.dumps(entries, indent=2).replace('"step_count": 4', '"step_count": ' + "1" * 5000)
    (run,) = read(tmp_path, text.encode())
    assert account(run).steps.executed == 9
    assert any("malformed" in warning for warning in run.warnings)


@pytest.mark.parametrize("inside", ['{"a":[\n', '{"a":[{"b":1},\n'])
def test_entries_inside_each_other_are_not_read_over_and_over(tmp_path, monkeypatch, inside):
    monkeypatch.setattr(again, "_FREE", 1000)
    entries, _ = attempt(T0, range(10))
    text = json.dumps(entries)[:-1] + ",\n" + inside * 5000 + "@,\n" + json.dumps(entry(job_end_time=T0 + 300)) + "]"
    (run,) = read(tmp_path, text.encode())
    assert account(run).steps.executed == 10
    assert run.processes[0].events[-1].reason == "finished"
    assert any("left out with all that begins inside it" in warning for warning in run.warnings)


def test_each_attempt_is_asked_only_for_its_own_kinds_of_events(tmp_path, monkeypatch):
    asked = []
    pair = goodput.pair
    monkeypatch.setattr(goodput, "pair", lambda *both: asked.append(both) or pair(*both))
    entries = []
    for number in range(50):
        begin = T0 + 1000 * number
        entries.append(entry(job_start_time=begin))
        for side, at in (("start", 10), ("end", 15 + number), ("end", 900)):
            name = f"custom_badput_event_{side}_time"
            entries.append(entry(custom_badput_event_type=f"kind {number}", **{name: begin + at}))
    random.Random(1).shuffle(entries)
    (run,) = read(tmp_path, lines(entries))
    spans = [[event for event in process.events if getattr(event, "category", "")] for process in run.processes]
    assert [[span.category for span in some] for some in spans] == [[f"custom:kind {n}"] for n in range(50)]
    assert [(some[0].end - some[0].start) // 10**9 for some in spans] == [5 + n for n in range(50)]
    assert len(asked) < 50 * 10


def test_warnings_of_many_attempts_are_counted(tmp_path):
    entries = []
    for number in range(150):
        entries.append(entry(job_start_time=T0 + 100 * number))
        entries.append(entry(custom_badput_event_type="x", custom_badput_event_end_time=T0 + 100 * number + 9))
    (run,) = read(tmp_path, lines(entries))
    assert len(run.warnings) == 101
    assert run.warnings[-1].endswith("50 more warnings are not shown")


def test_what_is_said_of_one_run_is_not_said_of_another(tmp_path):
    lone = entry("one", custom_badput_event_type="x", custom_badput_event_end_time=T0 + 9)
    entries = [entry("one", job_start_time=T0), lone, *attempt(T0, range(5), job="two")[0]]
    one, two = read(tmp_path, lines(entries))
    assert [len(one.warnings), len(two.warnings)] == [1, 0]
