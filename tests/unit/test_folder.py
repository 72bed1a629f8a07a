"""A folder of logs of others: what is read, what is put together, and what is left aside."""

import gzip
import json
import os
import struct
import tarfile

import pytest

from headway import account
from headway.errors import SourceError
from headway.sources import load, load_all
from headway.sources.tensorboard.tfrecord import checksum


def mllog(seconds, status="success"):
    keys = ["init_start", "run_start", "block_start", "block_stop", "run_stop"]
    lines = [
        {"key": key, "time_ms": 1_700_000_000_000 + 1000 * (seconds + n), "metadata": {"status": status}}
        for n, key in enumerate(keys)
    ]
    return "".join(f":::MLLOG {json.dumps(line)}\n" for line in lines)


def test_each_file_is_read_and_what_nobody_knows_is_said(tmp_path):
    (tmp_path / "result_0.txt").write_text(mllog(0))
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "result_1.txt").write_text(mllog(100))
    (tmp_path / "notes.md").write_text("what we did\n")
    (tmp_path / "empty.log").write_text("")
    (tmp_path / ".hidden").write_text(mllog(0))
    first, second = load(tmp_path)
    assert [run.name for run in (first, second)] == ["result_0", "result_1"]
    (said,) = [text for run in (first, second) for text in run.warnings if "left aside" in text]
    assert "2 files" in said
    assert "notes.md (no source knows it)" in said
    assert "empty.log (it is empty)" in said


def test_links_out_of_the_folder_are_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(mllog(0))
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "log.txt").write_text(mllog(0))
    (inside / "folder").symlink_to(outside)
    (inside / "file.txt").symlink_to(outside / "secret.txt")
    assert [run.path for run in load(inside)] == [str(inside / "log.txt")]


def test_a_folder_of_nothing_says_what_was_tried(tmp_path):
    (tmp_path / "a.txt").write_text("prose\n")
    with pytest.raises(SourceError, match=r"1 file of .* left aside: a.txt \(no source knows it\).*\[no-runs\]"):
        load(tmp_path)


def test_a_packed_log_is_read_and_a_torn_one_says_so(tmp_path):
    packed = gzip.compress(mllog(0).encode() * 50)
    (tmp_path / "log.gz").write_bytes(packed)
    assert [run.source for run in load(tmp_path / "log.gz")] == ["mlperf"]
    (tmp_path / "torn.gz").write_bytes(packed[:-20])
    with pytest.raises(SourceError, match=r"torn or damaged after \d+ bytes"):
        load(tmp_path / "torn.gz")


def test_paths_keep_their_order(tmp_path):
    for name, seconds in (("b", 0), ("a", 50), ("c", 20)):
        (tmp_path / name).write_text(mllog(seconds))
    assert [run.name for run in load_all([tmp_path / name for name in "bac"])] == ["b", "a", "c"]


def titan(rank, tmp_path, name):
    lines = [
        f"[rank{rank}]:[titan] 2025-03-04 10:00:{5 + n:02d},000 - root - INFO - step: {n + 1}  loss: 2.0  "
        "memory: 1.00GiB(1.00%)  tps: 1,000  tflops: 100.00  mfu: 40.00%"
        for n in range(9)
    ]
    mesh = "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1, ep=1, etp=1"
    head = f"[rank{rank}]:[titan] 2025-03-04 10:00:04,000 - root - INFO - {mesh}"
    (tmp_path / name).write_text("\n".join([head, *lines]) + "\n")


def test_ranks_that_tell_the_same_job_count_once(tmp_path):
    titan(0, tmp_path, "rank_0.log")
    titan(1, tmp_path, "rank_1.log")
    (run,) = load(tmp_path)
    assert run.processes[0].open.devices == 8
    assert any("rank_1.log" in text for text in run.warnings)


def state(folder, steps, seconds=(3.0,)):
    folder.mkdir(parents=True, exist_ok=True)
    history = [{"step": step, "epoch": 1.0, "loss": 2.0} for step in range(10, steps + 1, 10)]
    history += [{"step": 10 * n + 10, "epoch": 1.0, "eval_loss": 2.0, "eval_runtime": s} for n, s in enumerate(seconds)]
    history.sort(key=lambda entry: entry["step"])
    told = {"global_step": steps, "max_steps": 60, "logging_steps": 10, "log_history": history}
    (folder / "trainer_state.json").write_text(json.dumps(told))


def test_the_states_of_one_training_count_once(tmp_path):
    out = tmp_path / "out"
    state(out / "checkpoint-20", 20, (3.0,))
    state(out / "checkpoint-40", 40, (3.0, 2.5))
    state(out / "checkpoint-60", 60, (3.0, 2.5, 2.25))
    state(tmp_path / "another", 40, (3.5, 2.0))
    one, other = sorted(load(tmp_path), key=lambda run: run.path)
    assert [len(run.processes[0].rows) for run in (one, other)] == [40, 60]
    (said,) = [text for text in other.warnings if "left out" in text]
    assert "earlier state" in said
    assert "checkpoint-20" in said
    assert "and 1 more" in said


def test_the_lines_that_a_training_logged_count_and_not_its_states_beside_them(tmp_path):
    out = tmp_path / "out"
    state(out / "checkpoint-40", 40)
    state(out, 60, (3.0, 2.5))
    told, elapsed = [], 0
    for n in range(10, 61, 10):
        elapsed += 5
        line = {"current_steps": n, "total_steps": 60, "epoch": n / 60}
        told.append(line | {"loss": 2.0, "lr": 1e-4, "elapsed_time": f"0:00:{elapsed:02d}"})
        if n < 30:  # two evaluations
            elapsed += 3
            told.append(line | {"eval_loss": 2.0, "elapsed_time": f"0:00:{elapsed:02d}"})
    (out / "trainer_log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    (run,) = load(tmp_path)
    assert (run.source, run.name, sum(len(process.rows) for process in run.processes)) == ("trainerlog", "out", 60)
    assert any("has no clock" in text and "trainer_state.json" in text for text in run.warnings)
    state(out, 60, (30.0, 25.0, 20.0))  # another training, whatever the number of its steps
    assert {one.source for one in load(tmp_path)} == {"hftrainer", "trainerlog"}
    state(out, 60, (3.0, 2.5))
    state(tmp_path / "another", 60, (3.5, 2.0))
    assert [one.source for one in load(tmp_path)] == ["hftrainer", "trainerlog"]


def test_a_state_that_began_anew_in_the_same_folder_is_a_training_of_its_own(tmp_path):
    state(tmp_path / "checkpoint-20", 20, (3.0,))
    state(tmp_path / "checkpoint-40", 40, (4.0, 2.5))
    assert len(load(tmp_path)) == 2


def test_a_file_that_is_there_twice_counts_once(tmp_path):
    (tmp_path / "a.txt").write_text(mllog(0))
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(mllog(0).encode()))
    (tmp_path / "b.txt").write_text(mllog(50))
    one, other = load(tmp_path)
    assert [one.path, other.path] == [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    assert next(text for text in one.warnings if "left out" in text).endswith(f"{tmp_path / 'a.txt.gz'}")


def test_logs_of_steps_that_all_took_the_same_are_no_copies(tmp_path):
    for name, loss in (("one", 2.0), ("two", 3.0)):
        (tmp_path / f"{name}.log").write_text(
            "".join(f"iter {n}: loss {loss}, time 100.00ms, mfu 40.00%\n" for n in range(9))
        )
    assert len(load(tmp_path)) == 2


def test_a_folder_of_files_that_cannot_be_used_says_why(tmp_path):
    events = [{"ph": "X", "name": "aten::mm", "cat": "cpu_op", "ts": n, "dur": 1, "pid": 1, "tid": 1} for n in range(9)]
    (tmp_path / "vm.pt.trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    (tmp_path / "notes.md").write_text("what we did\n")
    with pytest.raises(SourceError, match=r"vm.pt.trace.json \(.*none is of a device.*notes.md.*ProfilerActivity"):
        load(tmp_path)


SACCT = "JobID|State|Submit|Start|End|AllocTRES"


def sacct(number, day, hours, devices=8):
    begin = f"2024-01-{day:02d}T00:00:00"
    return (
        f"{number}|COMPLETED|{begin}|{begin}|2024-01-{day + hours // 24:02d}T{hours % 24:02d}:00:00|gres/gpu={devices}"
    )


def written(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, ""]))


def test_a_file_of_a_pool_that_cannot_be_used_leaves_the_others_one_pool(tmp_path):
    written(tmp_path / "jan.txt", SACCT, sacct(1, 30, 30), sacct(2, 20, 24))
    written(tmp_path / "late.txt", SACCT, sacct(1, 30, 30), sacct(3, 10, 5))
    written(tmp_path / "users.txt", "JobID|User|Account", "1|u|a")
    (pool,) = load(tmp_path)
    assert len(pool.jobs) == 3
    assert any("users.txt" in text and "left aside" in text for text in pool.warnings)


def test_folders_that_tell_the_same_jobs_are_one_pool_and_others_are_not(tmp_path):
    written(tmp_path / "jan" / "sacct.txt", SACCT, sacct(1, 20, 30), sacct(2, 10, 24))
    written(tmp_path / "feb" / "sacct.txt", SACCT, sacct(1, 20, 30), sacct(3, 11, 5))
    written(tmp_path / "elsewhere" / "sacct.txt", SACCT, sacct(1, 21, 30))
    one, other = sorted(load(tmp_path), key=lambda pool: len(pool.jobs))
    assert (len(one.jobs), len(other.jobs)) == (1, 3)


def test_copies_of_a_table_count_once(tmp_path):
    rows = ["job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"]
    rows += [
        f"{n},u,v,8,6,1,COMPLETED,2020-01-01 00:00:00,2020-01-01 00:00:00,2020-01-01 0{n}:00:00,1,0"
        for n in range(1, 9)
    ]
    written(tmp_path / "jobs.csv", *rows)
    written(tmp_path / "backup" / "jobs.csv", *rows)
    (tmp_path / "jobs.csv.gz").write_bytes(gzip.compress((tmp_path / "jobs.csv").read_bytes()))
    (pool,) = load(tmp_path)
    assert len(pool.jobs) == 8
    (said,) = [text for text in pool.warnings if "left out" in text]
    assert "tells the same to the nanosecond" in said
    assert "and 1 more" in said


def test_equal_files_of_nodes_count_in_each_folder_and_other_jobs_are_no_reason_to_join(tmp_path):
    nodes = "HOSTNAMES|STATE|GRES|TIMESTAMP|PARTITION\nn1|idle|gpu:h100:8|Unknown|p\n"
    for month, gpus in (("03", 4), ("04", 8)):
        folder = tmp_path / month
        folder.mkdir()
        job = f"7|ana|COMPLETED|2024-{month}-01T00:00:00|2024-{month}-01T01:00:00|gres/gpu={gpus}"
        (folder / "sacct.txt").write_text(f"JobID|User|State|Start|End|AllocTRES\n{job}\n")
        (folder / "sinfo.txt").write_text(nodes)
    for paths in ([tmp_path], sorted(tmp_path.glob("*/*"))):
        assert [(len(pool.jobs), pool.devices) for pool in load_all(paths)] == [(1, 8), (1, 8)]


def test_a_sweep_that_was_begun_at_once_is_several_trainings(tmp_path):
    """The same steps of about the same length: only ranks of one job end each of them together."""
    for number in range(1, 4):
        at, lines = 12 * number, [" using world size: 8"]
        for step in range(1, 41):
            took_ms = 10_000 + 37 * number * (step % 5 - 2)
            at += took_ms / 1000
            when = f"2025-03-04 10:{int(at) // 60:02d}:{at % 60:06.3f}"
            told = f"consumed samples: 8 | elapsed time per iteration (ms): {took_ms} |"
            lines.append(f" [{when}] iteration {step:8d}/ 40 | {told}")
        written(tmp_path / f"run{number}.log", *lines)
    assert [run.name for run in load(tmp_path)] == ["run1", "run2", "run3"]


def test_what_is_passed_over_is_said(tmp_path, monkeypatch):
    written(tmp_path / "a.txt", mllog(0))
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    os.mkfifo(tmp_path / "pipe")
    written(tmp_path.joinpath(*"0123456789") / "deep.txt", mllog(50))
    (run,) = load(tmp_path)
    (said,) = [text for text in run.warnings if "left aside" in text]
    assert "link.txt (a link, which is not followed)" in said
    assert "pipe (no file)" in said
    assert "0/1/2/3/4/5/6/7/8 (more than 8 folders deep)" in said
    monkeypatch.setattr("headway.sources.folder.MAX_FILES", 1)
    written(tmp_path / "b.txt", mllog(90))
    (run,) = load(tmp_path)
    assert any("beyond the first 1 files" in text for text in run.warnings)


def test_an_earlier_copy_of_a_log_counts_once(tmp_path):
    lines = [f"iter {n}: loss 2.0, time {100 + n * 7 % 13}.00ms, mfu 40.00%" for n in range(90)]
    written(tmp_path / "train.log", *lines)
    written(tmp_path / "train.log.1", *lines[:60])
    (run,) = load(tmp_path)
    assert len(run.processes[0].rows) == 90
    assert any("train.log.1" in text for text in run.warnings)


def test_a_job_that_failed_before_it_saved_and_began_again_is_one_run(tmp_path):
    def log(first_minute, n, *ends):
        told = "consumed samples: 8 | elapsed time per iteration (ms): 10000.0 | lm loss: 2.0E+00 |"
        times = [f"2024-01-02 03:{first_minute + k // 6:02d}:{k % 6 * 10:02d}" for k in range(n)]
        return [*(f" [{at}] iteration {k:8d}/ 99 | {told}" for k, at in enumerate(times, 1)), *ends]

    written(tmp_path / "slurm-100.out", *log(1, 35, "Traceback (most recent call last):"))
    written(tmp_path / "slurm-101.out", *log(20, 100))
    (run,) = load(tmp_path)
    assert account(run).steps.retained == 100
    assert account(run).steps.reworked == 35


@pytest.mark.parametrize("names", [("lr1e-3.log", "lr1e-4.log"), ("a/slurm-100.out", "b/slurm-101.out")])
def test_experiments_are_no_attempts_of_each_other(names, tmp_path):
    for hour, name in enumerate(names, 3):
        told = "consumed samples: 8 | elapsed time per iteration (ms): 10000.0 | lm loss: 2.0E+00 |"
        lines = [f" [2024-01-02 {hour:02d}:00:{n}0] iteration {n:8d}/ 99 | {told}" for n in range(1, 6)]
        (tmp_path / name).parent.mkdir(exist_ok=True)
        written(tmp_path / name, *lines, "Traceback (most recent call last):")
    assert len(load(tmp_path)) == 2


def test_runs_of_one_name_in_several_folders_are_told_apart(tmp_path):
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "result.txt").write_text(mllog(100 * ord(folder)))
    assert [run.name for run in load(tmp_path)] == ["result (a)", "result (b)"]


def test_a_source_that_fails_loses_no_other_file(tmp_path, monkeypatch):
    (tmp_path / "result_0.txt").write_text(mllog(0))
    state(tmp_path / "out", 20)

    def broken(self, path, asked):
        raise TypeError("no\x1b[2J string")

    monkeypatch.setattr("headway.sources.hftrainer.source.HFTrainer.load", broken)
    (run,) = load(tmp_path)
    assert run.source == "mlperf"
    assert any("hftrainer failed, which is a defect of it: TypeError: no string" in text for text in run.warnings)


def test_an_archive_of_logs_is_no_log(tmp_path):
    (tmp_path / "result_0.txt").write_text(mllog(0))
    for name, mode in (("logs.tar", "w"), ("logs.tgz", "w:gz")):
        with tarfile.open(tmp_path / name, mode) as archive:
            archive.add(tmp_path / "result_0.txt", "result_0.txt")
        with pytest.raises(SourceError, match=r"an archive of files.*Unpack it first.*\[archive\]"):
            load(tmp_path / name)
    (run,) = load(tmp_path)
    assert any("logs.tar, logs.tgz" in text for text in run.warnings)


def test_a_packed_log_with_much_before_its_first_line_is_known(tmp_path):
    (tmp_path / "log.gz").write_bytes(gzip.compress(b"+ a line of the shell\n" * 9000 + mllog(0).encode()))
    assert [run.source for run in load(tmp_path / "log.gz")] == ["mlperf"]


def events(path, points, begin=1_704_164_700, tag="train/loss", value=2.5):
    """Write scalars of a training as TensorBoard does, by step and seconds from its beginning."""

    def field(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    def record(wall, more):
        body = b"\x09" + struct.pack("<d", wall) + more
        length = struct.pack("<Q", len(body))
        return length + struct.pack("<I", checksum(length)) + body + struct.pack("<I", checksum(body))

    told = [record(begin, field(3, b"brain.Event:2"))]
    for step, seconds in points:
        point = field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
        told.append(record(begin + seconds, bytes([0x10, step]) + field(5, field(1, point))))
    path.parent.mkdir(parents=True, exist_ok=True)
    (path / "events.out.tfevents.1.vm.2.0" if path.is_dir() else path).write_bytes(b"".join(told))


def test_tensorboards_files_of_a_training_that_a_log_tells_count_once(tmp_path):
    lines = [
        f"[titan] 2024-01-02 03:{5 + n // 60:02d}:{n % 60:02d},{n:03d} - root - INFO - step: {n + 1}  loss: 2.0  "
        "memory: 1.00GiB(1.00%)  tps: 1,000  tflops: 100.00  mfu: 40.00%"
        for n in range(100)
    ]
    written(tmp_path / "train.log", *lines)
    events(tmp_path / "tb" / "run" / "events.out.tfevents.7.vm.1.0", [(n + 1, n + n / 1000) for n in range(100)])
    events(tmp_path / "other" / "events.out.tfevents.8.vm.1.0", [(n + 1, n * 9 + n / 7) for n in range(100)])
    other, one = load(tmp_path)
    assert (one.source, other.source, other.name) == ("torchtitan", "tensorboard", "other")
    assert any("tells the same training" in text and "tb/run" in text for text in one.warnings)
    for hour in (3, 7):  # other trainings that took as long, a whole number of zones away
        folder = tmp_path / "tb" / f"before{hour}"
        events(folder / "events.out.tfevents.9.vm.1.0", [(n + 1, n + n / 1000 - 3600 * hour) for n in range(100)])
    assert sorted(run.name for run in load(tmp_path)) == ["before3", "before7", "other", "train"]


def test_tensorboards_files_of_parts_of_a_training_count_once(tmp_path):
    events(tmp_path / "logs" / "train" / "events.out.tfevents.7.vm.1.0", [(n, n + n / 100) for n in range(1, 60)])
    events(
        tmp_path / "logs" / "validation" / "events.out.tfevents.7.vm.1.1", [(n, n + n / 99) for n in range(9, 60, 9)]
    )
    events(
        tmp_path / "logs" / "train" / "loss_a" / "events.out.tfevents.7.vm.1.2", [(n, n + n / 98) for n in range(1, 59)]
    )
    (run,) = load(tmp_path)
    assert (run.name, len(run.processes[0].rows)) == ("train", 59)


def test_trainings_at_the_same_time_in_folders_of_their_own_are_several(tmp_path):
    for name in ("a", "b"):
        points = [(n, n + n / (100 + ord(name))) for n in range(1, 60)]
        events(tmp_path / "sweep" / name / "events.out.tfevents.7.vm.1.0", points)
    assert len(load(tmp_path)) == 2


def test_evaluations_that_were_written_to_a_file_of_their_own_belong_to_the_training_of_their_folder(tmp_path):
    home = tmp_path / "runs" / "a"
    events(home / "events.out.tfevents.7.vm.5.0", [(n, n * 10 + n / 100) for n in range(1, 60)])
    events(home / "events.out.tfevents.8.vm.5.1", [(59, 640)], tag="eval/runtime", value=30.0)
    (run,) = load(tmp_path)
    ledger = account(run)
    assert (ledger.attempts, ledger.steps.executed, ledger.seconds["evaluation"]) == (1, 59, 30.0)
    assert "rework" not in ledger.seconds
    assert "recovery" not in ledger.seconds


def test_trainings_of_one_file_are_several_though_they_took_the_same(tmp_path):
    told = [f"step:{n}/6 train_loss:3.0 train_time:{100 * n + n * n}ms step_avg:100.00ms" for n in range(1, 7)]
    (tmp_path / "driver.log").write_text("\n".join(told * 3) + "\n")
    for path in (tmp_path, tmp_path / "driver.log"):
        assert [sum(len(process.rows) for process in run.processes) for run in load(path)] == [6, 6, 6]


def test_what_nemo_printed_beside_the_lines_of_dllogger_counts_once(tmp_path):
    data = '{"global_step": %d, "consumed_samples": 8.0, "train_step_timing in s": 2.0, "epoch": 0}'
    lines = [
        f'DLLL {{"timestamp": "{1740000000 + 2 * n}.5", "elapsedtime": "{2 * n}.5", "type": "LOG", "step": {n}, '
        f'"data": {data % n}}}'
        for n in range(10)
    ]
    printed = [
        f"Training epoch 0, iteration {n}/9 | lr: 1e-05 | global_step: {n} | train_step_timing in s: 2.0"
        for n in range(10)
    ]
    (tmp_path / "dllogger.json").write_text("\n".join(lines) + "\n")
    (tmp_path / "log.out").write_text("\n".join(printed) + "\n")
    (run,) = load(tmp_path)
    assert run.source == "dllogger"
    assert any("tells the same training" in text and "log.out" in text for text in run.warnings)


def test_trainings_of_mlperf_that_ran_beside_each_other_are_several(tmp_path):
    """HPC's weak scaling trains many models at once, each of which tells about the same at about the same time."""
    for number in (1, 10):
        begun = 1_700_000_000_000 + number
        lines = [{"key": "init_start", "time_ms": begun}, {"key": "run_start", "time_ms": begun + 100}]
        for epoch in range(4):
            times = [begun + 1000 * (epoch + 1), begun + 1000 * (epoch + 2) - 2 * number]
            lines += [
                {"key": f"epoch_{what}", "time_ms": at, "metadata": {"epoch_num": epoch}}
                for what, at in zip(("start", "stop"), times, strict=True)
            ]
        lines += [{"key": "run_stop", "time_ms": begun + 6000, "metadata": {"status": "success"}}]
        text = "".join(f":::MLLOG {json.dumps(line)}\n" for line in lines)
        for name in (f"results/result_{number}.txt", f"ranks/rank_{number}.log"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
    assert [run.name for run in load(tmp_path / "results", devices=8)] == ["result_1", "result_10"]
    (run,) = load(tmp_path / "ranks", devices=8)
    assert any("tells the same job" in text for text in run.warnings)


def test_power_logs_where_a_training_looks_for_its_own_are_not_left_aside(tmp_path):
    (tmp_path / "result_0.txt").write_text(mllog(0))
    power = tmp_path / "power" / "result_0" / "node_0.txt"
    power.parent.mkdir(parents=True)
    readings = [
        {"key": "power_reading", "value": 100.0, "time_ms": 1_700_000_000_000 + 500 * n, "metadata": {}}
        for n in range(9)
    ]
    power.write_text("".join(f":::MLLOG {json.dumps(reading)}\n" for reading in readings))
    (run,) = load(tmp_path)
    assert run.energy_j == pytest.approx(300.0)  # from run_start to run_stop
    assert not [text for text in run.warnings if "left aside" in text]


def test_what_lies_in_a_folder_that_is_given_too_counts_once(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "result_0.txt").write_text(mllog(0))
    (tmp_path / "result_1.txt").write_text(mllog(100))
    paths = [tmp_path / "a", tmp_path / "a" / "result_0.txt", tmp_path / "a" / ".." / "a", tmp_path / "result_1.txt"]
    assert [run.name for run in load_all(paths)] == ["result_0", "result_1"]
