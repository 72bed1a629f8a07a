"""MLPerf logs: the traps of their writers, and real ones with their reference values."""

import json
import random
from pathlib import Path

import pytest

from headway.errors import SourceError
from headway.events import Close, Saved, Span
from headway.ledger.account import account
from headway.sources import load
from headway.sources.mllog import time_ns

REAL = Path(__file__).parents[3] / "shared" / "data" / "mlperf"
# file, devices, init, run, eval [s]: None where no intervals are logged; whether it was aborted
TABLE = [
    ("amd_mi300x_llama2_70b_lora", 8, 1019.885, 2035.848, 214.995, False),
    ("nvidia_gb200x5120_llama31_405b", 5120, 492.689, 640.428, 11.485, False),
    ("intel_gaudi2x1024_gpt3", 1024, 433.558, 4034.927, 467.328, False),
    ("google_v5p512_gpt3", 512, 119.051, 6887.633, None, False),
    ("juniper_a100x64_llama2_70b_lora", 64, 2.699, 4765.812, None, False),
    ("nvidia_h100x64_bert_aborted", 64, 44.657, 60.212, None, True),
    ("quanta_h200x8_retinanet", 8, 132.312, 2042.394, 148.759, False),
    ("clemson_a100x36_deepcam", 36, 98.154, 2972.276, 141.711, False),
    ("uflorida_b200x256_llama31_405b", 256, 470.334, 14151.864, 286.888, False),
]
MS = 10**6


def entry(ms, key, value=None, **metadata):
    return f":::MLLOG {json.dumps({'key': key, 'time_ms': ms, 'value': value, 'metadata': metadata})}"


def run_of(*marks, status="success", begin=1000):
    lines = [entry(begin, "init_start"), entry(begin + 1000, "run_start"), *marks]
    return [*lines, entry(begin + 9000, "run_stop", status=status)]


BLOCKS = [entry(2000, "block_start"), entry(5000, "block_stop"), entry(5000, "eval_start"), entry(6000, "eval_stop")]


def read(tmp_path, lines, **options):
    path = tmp_path / "result.txt"
    path.write_text("\n".join(lines) + "\n")
    return load(path, **options)


def facts(run):
    """Return everything a ledger can see of a run of one process."""
    (process,) = run.processes
    times = list(zip(process.rows.start.tolist(), process.rows.end.tolist(), strict=True))
    return process.open, sorted(map(repr, process.events)), times


@pytest.mark.parametrize(("name", "devices", "init", "run", "evaluation", "aborted"), TABLE)
def test_real_logs_yield_their_reference_values(name, devices, init, run, evaluation, aborted):
    path = REAL / f"{name}.txt"
    if not path.exists():
        pytest.skip("the real logs are not here")
    (found,) = load(path, devices=devices)
    ledger = account(found)
    seconds = {category: amount / devices for category, amount in ledger.seconds.items()}
    assert sum(seconds.values()) == pytest.approx(init + run, abs=1e-3)
    assert seconds["startup"] == pytest.approx(init, abs=1e-3)
    assert seconds.get("evaluation") == (None if evaluation is None else pytest.approx(evaluation, abs=1e-3))
    assert any("evaluation" in text for text in ledger.warnings) == (evaluation is None)
    assert ("productive" not in seconds) == aborted


@pytest.mark.parametrize(("name", "devices"), [("nvidia_h100x64_bert_aborted", 64), ("clemson_a100x36_deepcam", 36)])
def test_devices_that_a_real_log_names_are_taken(name, devices):
    path = REAL / f"{name}.txt"
    if not path.exists():
        pytest.skip("the real logs are not here")
    (found,) = load(path)
    assert found.processes[0].open.devices == devices
    assert not any("--devices" in text for text in found.warnings)


def test_blocks_are_steps_and_evaluations_spans(tmp_path):
    (run,) = read(tmp_path, run_of(*BLOCKS), devices=8)
    opened, events, steps = facts(run)
    assert (opened.wall_ns, opened.mono_ns, opened.rows, opened.devices) == (1000 * MS, 1000 * MS, "block", 8)
    assert steps == [(2000 * MS, 5000 * MS)]
    assert events == sorted(
        map(
            repr, [Span(category="evaluation", start=5000 * MS, end=6000 * MS), Close(at=10000 * MS, reason="finished")]
        )
    )
    assert (list(run.warnings), list(run.processes[0].warnings)) == ([], [])


def test_shuffled_and_repeated_lines_change_nothing(tmp_path):
    again = [entry(6000, "block_start"), entry(6000, "block_stop"), entry(7000, "eval_start"), entry(7000, "eval_stop")]
    lines = run_of(*BLOCKS, *again, entry(1500, "init_start"))
    expected = facts(read(tmp_path, lines)[0])
    for seed in range(20):
        mixed = lines + random.Random(seed).choices(lines, k=5)
        random.Random(seed).shuffle(mixed)
        assert facts(read(tmp_path, mixed)[0]) == expected


@pytest.mark.parametrize("dress", ["  2: {}", "\x1b[32m{}\x1b[0m", "{}   ", "+ srun true; {} # done", "{0}{0}"])
def test_records_are_found_anywhere_in_a_line(tmp_path, dress):
    plain = run_of(*BLOCKS)
    noise = ["+ set -e", "", "Traceback:", ":::SYSJSON nothing"]
    assert facts(read(tmp_path, [*noise, *map(dress.format, plain)])[0]) == facts(read(tmp_path, plain)[0])


@pytest.mark.parametrize("times", [1, 2])
def test_lines_in_strings_of_json_say_the_same(tmp_path, times):
    plain = [':::SYSJSON {"number_of_nodes": "8", "accelerators_per_node": "4"}', *run_of(*BLOCKS)]
    lines = [*plain, entry(1200, "submission_org", 'A "quoted" \\ name')]
    (expected,) = read(tmp_path, lines)
    for _ in range(times):
        lines = [json.dumps({"log": f"{line}\n", "stream": "stdout"}) for line in lines]
    (run,) = read(tmp_path, lines)
    assert (run.name, facts(run), run.warnings) == (expected.name, facts(expected), expected.warnings)
    (run,) = read(tmp_path, [*lines, lines[1][:70]])
    assert facts(run) == facts(expected)
    assert any("no record, passed over" in text for text in run.warnings)


@pytest.mark.parametrize("odd", ['"value": NaN', r'"value": "\ud800"', '"value": 1e999', '"time_ms2": 1, "value": "{"'])
def test_records_that_are_written_oddly_say_the_same(tmp_path, odd):
    (plain,) = read(tmp_path, run_of(*BLOCKS))
    (run,) = read(tmp_path, [line.replace('"value": null', odd) for line in run_of(*BLOCKS)])
    assert (facts(run), run.warnings) == (facts(plain), plain.warnings)


def test_of_what_is_said_twice_the_first_in_time_counts(tmp_path):
    said = [
        entry(1300, "submission_org", "Late"),
        entry(1200, "submission_org", "Early"),
        entry(1100, "number_of_nodes"),
    ]
    more = [entry(1500, "submission_benchmark", "b"), entry(1400, "submission_benchmark", "PLACEHOLDER")]
    (run,) = read(tmp_path, run_of(*said, *more, entry(1600, "number_of_nodes", 2), entry(1600, "number_of_ranks", 8)))
    assert (run.name, run.processes[0].open.devices) == ("b · Early", 8)


def test_the_first_block_may_have_no_start(tmp_path):
    marks = [entry(4000, "block_stop"), entry(4000, "block_start"), entry(7000, "block_stop")]
    (run,) = read(tmp_path, run_of(*marks))
    assert facts(run)[2] == [(2000 * MS, 4000 * MS), (4000 * MS, 7000 * MS)]


def test_epochs_are_steps_where_there_are_no_blocks(tmp_path):
    (run,) = read(tmp_path, run_of(entry(2500, "epoch_start"), entry(7000, "epoch_stop")))
    _, events, steps = facts(run)
    assert steps == [(2500 * MS, 7000 * MS)]
    assert repr(Span(category="unaccounted", start=2000 * MS, end=2500 * MS)) in events


def test_the_run_is_a_step_where_there_is_neither(tmp_path):
    (run,) = read(tmp_path, run_of())
    assert facts(run)[2] == [(2000 * MS, 10000 * MS)]
    assert any("neither blocks nor epochs" in text for text in run.processes[0].warnings)


def test_an_evaluation_may_overlap_the_next_epoch(tmp_path):
    marks = [entry(2000, "epoch_start"), entry(4000, "epoch_stop"), entry(4000, "eval_start")]
    marks += [entry(4500, "epoch_start"), entry(5000, "eval_stop"), entry(10000, "epoch_stop")]
    ledger = account(read(tmp_path, run_of(*marks))[0])
    assert ledger.seconds == {"startup": 1.0, "productive": 7.0, "evaluation": 1.0}
    assert not any("beside" in text for text in ledger.warnings)


def test_evaluations_inside_which_whole_blocks_lie_take_nothing_of_them(tmp_path):
    marks = [mark for n in range(6) for mark in block(n, 2000 + n * 1000, 2900 + n * 1000)]
    evals = [mark for n in (0, 2, 4) for mark in block(n, 2950 + n * 1000, None, "eval")]
    stops = [entry(5100, "eval_stop", epoch_num=0), entry(7300, "eval_stop", epoch_num=2)]
    (run,) = read(tmp_path, run_of(*marks, *evals, *stops))
    assert account(run).seconds == pytest.approx(
        {"startup": 1.0, "productive": 5.4, "unaccounted": 0.05, "evaluation": 5 * 0.1 - 0.05 + 2.1}
    )
    assert any("beside the training: for 4.5 s" in text for text in run.processes[0].warnings)


def test_an_evaluation_that_begins_in_a_block_and_holds_a_whole_one_takes_nothing_of_either(tmp_path):
    marks = [*block(1, 2000, 4000), *block(2, 4500, 5000), *block(3, 5500, 9000), *block(1, 3000, 6000, "eval")]
    assert account(read(tmp_path, run_of(*marks))[0]).seconds == {
        "startup": 1.0, "productive": 6.0, "evaluation": 1.0, "shutdown": 1.0,
    }  # fmt: skip


def test_an_evaluation_without_a_stop_reaches_to_the_end(tmp_path):
    (run,) = read(tmp_path, run_of(*BLOCKS[:2], entry(8000, "eval_start")))
    assert repr(Span(category="evaluation", start=8000 * MS, end=10000 * MS)) in facts(run)[1]
    assert any("no eval_stop" in text for text in run.processes[0].warnings)


@pytest.mark.parametrize(
    ("results", "where"),
    [
        ([], "and inside the blocks"),
        ([1500, 4000, 5000, 5001, 8999, 9010], "and inside the blocks"),
        ([5500], "and between the blocks: 500 ms from"),
        ([4000, 5800, 5900, 9700], "and between the blocks: 1.6 s from"),
        ([9500, 10500], "and between the blocks: 500 ms from"),
    ],
)
@pytest.mark.parametrize("key", ["eval_accuracy", "eval_error"])
def test_evaluation_that_is_not_logged_is_unknown(tmp_path, results, where, key):
    blocks = [*block(1, 2000, 5000), *block(2, 6000, 9000)]
    (run,) = read(tmp_path, run_of(*blocks, *(entry(at, key, 0.5) for at in results)))
    (said,) = [text for text in run.processes[0].warnings if "evaluation time is not logged" in text]
    assert where in said
    assert "evaluation" not in account(run).seconds


@pytest.mark.parametrize("status", ["aborted", "failed", "\x1b[31mabort"])
def test_a_run_that_did_not_succeed_retains_nothing(tmp_path, status):
    (run,) = read(tmp_path, run_of(*BLOCKS, status=status))
    (process,) = run.processes
    assert Saved(step=-1, at=1000 * MS) in process.events
    assert Close(at=10000 * MS, reason="failed") in process.events
    assert any("nothing of it is retained" in text and "\x1b" not in text for text in process.warnings)
    assert account(run).seconds == {"startup": 1.0, "rework": 3.0, "evaluation": 1.0, "shutdown": 4.0}


def test_the_last_run_stop_counts(tmp_path):
    (run,) = read(tmp_path, [*run_of(*BLOCKS), entry(10500, "run_stop", status="success")])
    assert Close(at=10500 * MS, reason="finished") in run.processes[0].events


def test_a_cut_log_ends_with_its_last_line(tmp_path):
    (run,) = read(tmp_path, [*run_of(*BLOCKS)[:-1], entry(7000, "block_start"), entry(8000, "train_loss", 1.0)])
    (process,) = run.processes
    assert not any(isinstance(event, Close) for event in process.events)
    assert any("run_stop is not logged" in text for text in process.warnings)
    assert facts(run)[2] == [(2000 * MS, 5000 * MS), (7000 * MS, 8000 * MS)]
    assert account(run).held_ns == 7000 * MS


def test_a_log_cut_in_the_startup_is_startup(tmp_path):
    (run,) = read(tmp_path, [entry(1000, "init_start"), entry(3000, "seed", 1)])
    assert account(run).seconds == {"startup": 2.0}


def test_without_init_start_the_startup_is_unknown(tmp_path):
    (run,) = read(tmp_path, run_of(*BLOCKS)[1:])
    assert facts(run)[0].wall_ns == 2000 * MS
    assert any("startup" in text and "unknown" in text for text in run.processes[0].warnings)


def test_several_runs_in_a_file_are_several_runs(tmp_path):
    name = entry(900, "submission_benchmark", "bert"), entry(900, "submission_org", "Org")
    runs = read(tmp_path, [*name, *run_of(*BLOCKS), *run_of(begin=20_000)])
    assert [run.name for run in runs] == ["bert · Org #1", "bert · Org #2"]
    assert [run.processes[0].open.wall_ns for run in runs] == [1000 * MS, 20_000 * MS]


def test_a_restart_inside_a_log_is_an_attempt(tmp_path):
    (run,) = read(tmp_path, [*run_of(*BLOCKS)[:-1], *run_of(begin=20_000)])
    assert [process.open.attempt for process in run.processes] == ["a000", "a001"]
    assert any("2 attempts" in text for text in run.warnings)
    assert account(run).seconds["rework"] == 3.0


def test_an_attempt_that_was_begun_again_is_not_called_a_cut_log(tmp_path):
    first = [entry(1000, "init_start"), entry(2000, "run_start"), *BLOCKS]
    (run,) = read(tmp_path, [*first, *run_of(entry(12000, "block_start"), entry(15000, "block_stop"), begin=11000)])
    one, two = run.processes
    assert "it ended without run_stop, and was begun again: it ends with its last line" in one.warnings
    assert not any("run_stop" in text for text in two.warnings)
    (run,) = read(tmp_path, [*first, *run_of(entry(12000, "block_start"), begin=11000)[:-1]])
    assert [any("the log was cut" in text for text in process.warnings) for process in run.processes] == [False, True]


def test_placeholders_are_no_names(tmp_path):
    names = [entry(900, "submission_benchmark", "bert"), entry(900, "submission_org", "SUBMISSION_ORG_PLACEHOLDER")]
    assert read(tmp_path, [*names, *run_of()])[0].name == "bert · result"


def test_devices_come_from_the_system_line(tmp_path):
    system = ':::SYSJSON {"number_of_nodes": "8", "accelerators_per_node": "4", "accelerator_model_name": "X"}'
    opened = read(tmp_path, [system, *run_of()])[0].processes[0].open
    assert (opened.devices, opened.accelerator) == (32, "X")
    (run,) = read(tmp_path, run_of())
    assert any("--devices" in text for text in run.warnings)


@pytest.mark.parametrize(
    "value", ["-5", "1e400", "NaN", "1" * 50, "1" * 5000, "true", "null", '"soon"', "[]", "-0.5", '"NaN"', "Infinity"]
)
def test_odd_times_are_a_warning_with_the_line(tmp_path, value):
    odd = ':::MLLOG {"key": "block_start", "time_ms": ' + value + ', "metadata": {}}'
    (run,) = read(tmp_path, [*run_of(*BLOCKS), odd])
    assert facts(run) == facts(read(tmp_path, run_of(*BLOCKS))[0])
    assert any("line 8 is no record, passed over" in text for text in run.warnings)


@pytest.mark.parametrize(
    "odd",
    [":::MLLOG", ":::MLLOG {", ":::MLLOG []", ":::MLLOG {}", ':::MLLOG {"key": 1}', ":::MLLOG " + '{"a":' * 99999],
)
def test_odd_lines_are_a_warning(tmp_path, odd):
    (run,) = read(tmp_path, [odd, *run_of(*BLOCKS)])
    assert len(facts(run)[2]) == 1
    assert any("line 1 is no record, passed over" in text for text in run.warnings)


def test_a_record_without_metadata_counts(tmp_path):
    (run,) = read(tmp_path, [*run_of(*BLOCKS)[:-1], ':::MLLOG {"key": "run_stop", "time_ms": "10000"}'])
    assert Close(at=10000 * MS, reason="finished") in run.processes[0].events
    assert any("without metadata" in text for text in run.warnings)
    assert any("no status" in text for text in run.processes[0].warnings)


def test_times_may_be_fractions_and_digits():
    assert time_ns(1755476345692.5) == 1755476345692500000
    assert time_ns("1755476345692.5") == 1755476345692500000


def test_a_log_in_which_no_run_begins_is_an_error(tmp_path):
    with pytest.raises(SourceError, match=r"\[no-runs\]"):
        read(tmp_path, [entry(1, "seed", 5)])


def test_the_mark_may_come_after_much_else(tmp_path):
    (run,) = read(tmp_path, ["shell " * 10] * 100_000 + run_of())
    assert run.source == "mlperf"


def block(number, began, ended=None, kind="block"):
    key = "first_epoch_num" if kind == "block" else "epoch_num"
    marks = [entry(began, f"{kind}_start", **{key: number})]
    return [*marks, *([] if ended is None else [entry(ended, f"{kind}_stop", **{key: number})])]


def test_blocks_that_overlap_belong_together_by_the_number_of_their_epoch(tmp_path):
    marks = [*block(1, 2000, 5000), *block(2, 4000, 7000), *block(3, 6500, 9000), *block(4, 8000)]
    for seed in range(9):
        random.Random(seed).shuffle(marks)
        _, _, steps = facts(read(tmp_path, run_of(*marks, *marks[:seed]))[0])
        assert steps == [
            (begin * MS, end * MS) for begin, end in [(2000, 4000), (4000, 6500), (6500, 8000), (8000, 10000)]
        ]


def test_evaluations_that_run_behind_the_training_are_counted_whole(tmp_path):
    marks = [*block(1, 2000, 6000), *block(2, 4000, 9000)]
    evals = [*block(1, 4500, 6000, "eval"), *block(2, 5500, 8000, "eval")]
    (run,) = read(tmp_path, run_of(*marks, *evals))
    assert account(run).seconds == {"startup": 1.0, "productive": 3.5, "evaluation": 3.5, "shutdown": 1.0}


def test_numbers_that_do_not_tell_what_belongs_together_are_not_used(tmp_path):
    one = [entry(2000, "block_start", first_epoch_num=0), entry(2500, "block_start", first_epoch_num=1)]
    stops = [entry(5000, "block_stop", first_epoch_num=7), entry(6000, "block_stop", first_epoch_num=9)]
    assert facts(read(tmp_path, run_of(*one, *stops))[0])[2] == [(2000 * MS, 5000 * MS)]
    again = [*block(0, 2000, 3000), *block(0, 4000, 6000), *block(0, 5000)]
    assert facts(read(tmp_path, run_of(*again))[0])[2] == [(2000 * MS, 3000 * MS), (4000 * MS, 6000 * MS)]


def test_evaluations_that_each_rank_tells_are_no_evaluations_without_a_start(tmp_path):
    ranks = [*BLOCKS, *(entry(5000 + n, "eval_start") for n in (4, 9)), *(entry(6000 + n, "eval_stop") for n in (3, 8))]
    (run,) = read(tmp_path, run_of(*ranks))
    assert account(run).seconds["evaluation"] == 1.0
    assert not run.processes[0].warnings
    (run,) = read(tmp_path, run_of(*ranks, entry(8000, "eval_stop")))
    assert any("1 eval_stop without eval_start" in text for text in run.processes[0].warnings)


def test_what_is_staged_inside_the_run_has_its_name(tmp_path):
    marks = [entry(2000, "staging_start"), entry(3000, "staging_stop"), entry(4000, "epoch_start")]
    ledger = account(read(tmp_path, run_of(*marks, entry(9000, "epoch_stop")))[0])
    assert ledger.seconds == {
        "startup": 1.0, "productive": 5.0, "custom:staging": 1.0, "unaccounted": 1.0, "shutdown": 1.0,
    }  # fmt: skip


def older(line):
    found = json.loads(line.partition(" ")[2])
    said = json.dumps({"value": found["value"], "metadata": found["metadata"]})
    return f":::MLL {found['time_ms'] / 1000:.3f} {found['key']}: {said}"


def test_lines_of_version_0_6_say_the_same(tmp_path):
    names = [entry(0, "submission_benchmark", "transformer"), entry(0, "submission_org", "org")]
    lines = [*names, *run_of(*block(1, 2000, 5000), *block(2, 4000, 7000), *BLOCKS[2:], status="aborted")]
    (run,) = read(tmp_path, list(map(older, lines)))
    (same,) = read(tmp_path, lines)
    assert (run.name, facts(run), run.warnings) == (same.name, facts(same), same.warnings)


def v05(at, said, where="(/a b/train.py:5)"):
    return f"RAW_:::MLPv0.5.0 gnmt {at:.9f} {where} {said}"


def test_lines_of_version_0_5(tmp_path):
    lines = [
        v05(900, "run_clear_caches", "(<string>:1)"),
        v05(1000, "run_start"),
        v05(1001.5, "train_epoch: 0"),
        v05(1002, 'model_hp_bias: {"dtype": "fp32"}'),
        v05(1010, "eval_start"),
        v05(1012, "eval_stop: 0"),
        v05(1012, "train_epoch: 1"),
        v05(1030.000000001, 'run_stop: {"success": true}'),
        v05(1031, "run_final"),
    ]
    (run,) = read(tmp_path, lines)
    opened, events, steps = facts(run)
    assert (run.name, opened.wall_ns) == ("gnmt · result", 1000 * 10**9)
    assert steps == [(1001_500 * MS, 1012_000 * MS), (1012_000 * MS, 1030_000 * MS + 1)]
    assert repr(Span(category="evaluation", start=1010 * 10**9, end=1012 * 10**9)) in events
    assert repr(Close(at=1030 * 10**9 + 1, reason="finished")) in events
    (run,) = read(tmp_path, [line.replace("true", "false") for line in lines])
    assert any("status 'aborted'" in text for text in run.processes[0].warnings)


@pytest.mark.parametrize(
    "odd",
    [
        ":::MLL 1.5 seed",
        ":::MLL 1.5 seed: 5",
        ":::MLL 9999999999999 seed: {}",
        ":::MLL 999999999999 seed: {}",
        ":::MLPv0.5.0 gnmt soon (a:1) run_start",
        ":::MLPv0.5.0 gnmt 1.5 run_start",
    ],
)
def test_odd_lines_of_older_versions_are_a_warning(tmp_path, odd):
    (run,) = read(tmp_path, [odd, *run_of(*BLOCKS)])
    assert len(facts(run)[2]) == 1
    assert any("line 1 is no record, passed over" in text for text in run.warnings)


@pytest.mark.parametrize(("stop", "unaccounted"), [(5000, None), (4900, 0.1)])
def test_staging_that_fills_the_time_up_to_the_first_epoch_is_staging(tmp_path, stop, unaccounted):
    marks = [entry(2000, "staging_start"), entry(stop, "staging_stop")]
    marks += [entry(5000, "epoch_start"), entry(10000, "epoch_stop")]
    seconds = account(read(tmp_path, run_of(*marks))[0]).seconds
    assert (seconds["custom:staging"], seconds.get("unaccounted")) == ((stop - 2000) / 1000, unaccounted)


@pytest.mark.parametrize("is_record", [True, False])
def test_several_trainings_at_one_time_in_a_file_are_said(tmp_path, is_record):
    def lines(number, begin=1000):
        if is_record:
            return run_of(entry(begin + 100, "instance_id", number), begin=begin)
        own = [entry(begin - 100, "cache_clear"), *run_of(begin=begin)]
        return [line.replace('"metadata": {', f'"metadata": {{"instance_id": {number}, "lineno": 5, ') for line in own]

    def said(*given):
        runs = read(tmp_path, [line.replace(", }", "}") for line in given])
        return [[text for text in run.warnings if "instances" in text] for run in runs]

    assert said(*lines(0), *lines(0)) == [[]]
    assert said(*lines(0), *lines(9, begin=20_000)) == [[], []]
    (((text,)),) = said(*lines(0), *lines(9))
    assert "lines of 2 instances, trainings of their own, are in it" in text
