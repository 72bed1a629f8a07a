"""Results of MLPerf Storage: what waited by utilisation, checkpoints and evaluations beside it, and what is unknown."""

import json
import os

import pytest

from headway.errors import SourceError
from headway.ledger.account import account
from headway.sources import files, load
from headway.sources.asked import Asked
from headway.sources.mlperfstorage import MLPerfStorage

DAY = "2024-01-01T10:"


def span(begin, end, **parts):
    return {"start": DAY + begin, **parts, "end": DAY + end, "duration": "9"}


EPOCHS = {
    "1": span("00:10", "00:51", block1=span("00:10", "00:30"), block2=span("00:30", "00:50")),
    "2": span(
        "00:51",
        "01:40",
        block1=span("00:51", "01:21.500000"),
        ckpt1=span("01:22", "01:27"),
        eval=span("01:28", "01:38"),
    ),
}


def summary(shares=(90.0, 80.0), **more):
    metric = {"train_au_percentage": list(shares), "train_throughput_samples_per_second": [7.0, 7.5]}
    base = {"num_accelerators": 4, "hostname": "h", "metric": metric, "start": DAY + "00:00", "end": DAY + "01:41"}
    return {**base, **more}


def write(folder, text, epochs=None):
    folder.mkdir(exist_ok=True)
    (folder / "summary.json").write_text(text if isinstance(text, str) else json.dumps(text, indent=4))
    if epochs is not None:
        (folder / "per_epoch_stats.json").write_text(epochs if isinstance(epochs, str) else json.dumps(epochs))
    return folder / "summary.json"


def read(path, devices=None):
    if path.is_dir():
        (run,) = load(path, devices=devices)
        return run, account(run)
    assert MLPerfStorage().recognise(path, files.head(path)) is None
    (run,) = MLPerfStorage().load(path, Asked(devices=devices))
    return run, account(run)


def test_blocks_wait_what_utilisation_leaves(tmp_path):
    path = write(tmp_path / "unet3d", summary(), EPOCHS)
    run, ledger = read(path)
    assert {name: amount / 4 for name, amount in ledger.seconds.items()} == pytest.approx(
        {
            "productive": 40 * 0.9 + 30.5 * 0.8,
            "input_wait": 40 * 0.1 + 30.5 * 0.2,
            "startup": 10.0,
            "checkpoint_save": 5.0,
            "evaluation": 10.0,
            "unaccounted": 1.0,
            "shutdown": 4.5,
        }
    )
    assert run.name == "unet3d, 2024-01-01 10:00:00"
    assert ledger.runtime == pytest.approx((36 + 24.4) / 101)
    assert ledger.steps.executed == 3
    said = "\n".join(run.warnings)
    assert "leaves out the first and last steps" in said
    assert "simulated" in said
    assert "read as UTC" in said


def test_its_folder_says_the_same(tmp_path):
    path = write(tmp_path / "unet3d", summary(), EPOCHS)
    assert read(path.parent)[1].seconds == read(path)[1].seconds


def test_without_the_times_of_the_epochs_r_is_unknown(tmp_path):
    run, ledger = read(write(tmp_path / "a", summary()))
    assert {name: amount / 4 for name, amount in ledger.seconds.items()} == pytest.approx(
        {"productive": 101 * 0.85, "input_wait": 101 * 0.15}
    )
    assert ledger.runtime is None
    assert "per_epoch_stats.json" in run.unknown["R"]


def test_times_of_epochs_that_are_a_link_or_a_pipe_are_left_out_and_said(tmp_path):
    path = write(tmp_path / "d", summary())
    (tmp_path / "outside.json").write_text(json.dumps(EPOCHS))
    beside = tmp_path / "d" / "per_epoch_stats.json"
    beside.symlink_to(tmp_path / "outside.json")
    for place in (path, path.parent):
        run, ledger = read(place)
        assert ledger.unknown["R"].startswith(
            "per_epoch_stats.json beside it is left out: it is a link, which is not followed: utilisation"
        )
        assert not any("neither" in warning for warning in run.warnings)
    beside.unlink()
    os.mkfifo(beside)
    run, ledger = read(path)
    assert "per_epoch_stats.json beside it is left out: it is a pipe, not a file" in ledger.unknown["R"]
    (tmp_path / "d" / "0_per_epoch_stats.json").write_text(json.dumps(EPOCHS))
    run, ledger = read(path)
    assert not ledger.unknown
    assert "per_epoch_stats.json beside it is left out: it is a pipe, not a file" in run.warnings


def test_a_summary_that_is_a_link_is_read_with_what_lies_beside_the_link(tmp_path):
    path = write(tmp_path / "d", summary(), EPOCHS)
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    assert not read(path)[1].unknown


@pytest.mark.parametrize("shares", [(), (90.0,), (90.0, None), (90.0, 180.0), (90.0, 80.0, 70.0), (90.0, True)])
def test_utilisation_of_other_epochs_leaves_r_unknown(tmp_path, shares):
    run, ledger = read(write(tmp_path / "a", summary(shares), EPOCHS))
    assert ledger.runtime is None
    assert run.unknown["R"]


def test_a_mean_alone_counts_and_one_that_contradicts_is_said(tmp_path):
    _, ledger = read(write(tmp_path / "a", summary(metric={"train_au_mean_percentage": 75.0})))
    assert ledger.seconds["input_wait"] / 4 == pytest.approx(101 * 0.25)
    odd = summary()
    odd["metric"]["train_au_mean_percentage"] = 50.0
    run, _ = read(write(tmp_path / "b", odd, EPOCHS))
    assert any("the epochs count" in warning for warning in run.warnings)


def test_devices(tmp_path):
    path = write(tmp_path / "a", summary(), EPOCHS)
    assert read(path, devices=7)[1].devices == 7
    run, ledger = read(write(tmp_path / "b", summary(num_accelerators="many"), EPOCHS))
    assert ledger.devices == 1
    assert any("num_accelerators is no number" in warning for warning in run.warnings)


def test_odd_epochs_are_left_out_and_said(tmp_path):
    odd = {
        **EPOCHS,
        "x": {},
        "3": span("01:39", "01:20"),
        "4": span("05:00", "06:00"),
        "5": {"block1": {"start": "soon", "end": 5}},
    }
    run, ledger = read(write(tmp_path / "a", summary(), odd))
    said = "\n".join(run.warnings)
    assert ledger.steps.executed == 3
    for words in ("x is no epoch", "1 blocks lie outside", "block1 of epoch 5 has no start and end", "of 2 epochs"):
        assert words in said


def test_a_zone_and_missing_times(tmp_path):
    zoned = summary(start="2024-01-01T12:00:00+02:00", end=DAY + "01:41+00:00")
    run, ledger = read(write(tmp_path / "a", zoned, EPOCHS))
    assert sum(ledger.seconds.values()) / 4 == pytest.approx(101)
    assert not any("name no zone" in warning for warning in run.warnings)
    run, ledger = read(write(tmp_path / "b", summary(start=None, end=None), EPOCHS))
    assert sum(ledger.seconds.values()) / 4 == pytest.approx(88)
    assert any("no start" in warning for warning in run.warnings)


def test_a_file_that_is_too_large_is_none(tmp_path):
    path = write(tmp_path / "run", json.dumps(summary()) + " " * (16 << 20))
    with pytest.raises(SourceError, match="larger than 16 MiB"):
        MLPerfStorage().load(path, Asked())


def test_damage(tmp_path):
    text = json.dumps(summary())
    run, _ = read(write(tmp_path / "a", "\ufeff" + text + "[[[", EPOCHS))
    assert any("what follows" in warning for warning in run.warnings)
    run, _ = read(write(tmp_path / "b", text, "{"))
    assert any("stats.json beside it is left out: its JSON" in warning for warning in run.warnings)
    for broken in (text[:-9], json.dumps(summary(metric={})), json.dumps(summary(end="x"))):
        path = write(tmp_path / "c", broken)
        with pytest.raises(SourceError, match=r"\[no-runs\]"):
            MLPerfStorage().load(path, Asked())
    for head in (b"", b"num_accelerators metric", b"[1]", b'{"num_accelerators": 4}'):
        assert MLPerfStorage().recognise(path, head)


def test_runs_of_one_host_and_model_are_told_apart(tmp_path):
    for number, day in enumerate(("2023-08-04", "2023-08-05")):
        folder = tmp_path / f"run{number}" / "host7"
        folder.parent.mkdir()
        text = json.dumps(summary(model="bert")).replace("2024-01-01", day)
        write(folder, text, json.loads(json.dumps(EPOCHS).replace("2024-01-01", day)))
    assert [run.name for run in load(tmp_path)] == ["bert, 2023-08-04 10:00:00", "bert, 2023-08-05 10:00:00"]


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"workload": "unet3d_h100", "model": "unet3d"}, "unet3d_h100, 2024-01-01 10:00:00"),
        ({"workload": 3, "model": " \x07"}, "d, 2024-01-01 10:00:00"),
        ({"start": "soon", "model": "bert"}, "bert"),
    ],
)
def test_a_run_is_called_after_its_workload_or_model_or_folder(tmp_path, more, name):
    folder = tmp_path / "d"
    write(folder, summary(**more), EPOCHS)
    (run,) = MLPerfStorage().load(folder / "summary.json", Asked())
    assert run.name == name


def test_the_epochs_of_rank_0_are_found_alone_and_in_a_folder(tmp_path):
    path = write(tmp_path / "a", summary(), EPOCHS)
    expected = read(path)[1]
    path.with_name("per_epoch_stats.json").rename(path.with_name("0_per_epoch_stats.json"))
    (run,) = load(path.parent)
    assert account(run).seconds == read(path)[1].seconds == expected.seconds
    assert not any("left aside" in warning for warning in run.warnings)


def test_saves_and_restores_are_read_by_their_newer_names(tmp_path):
    epochs = {
        "1": span("00:10", "00:50", load_ckpt1=span("00:10", "00:15"), block1=span("00:20", "00:40"),
                  save_ckpt1=span("00:40", "00:50")),
        "2": span("00:50", "01:20", block1=span("00:50", "01:10"), save_ckpt1=span("01:10", "01:20")),
    }  # fmt: skip
    _, ledger = read(write(tmp_path / "a", summary(), epochs))
    assert {name: amount / 4 for name, amount in ledger.seconds.items()} == pytest.approx(
        {
            "productive": 20 * 0.9 + 20 * 0.8,
            "input_wait": 20 * 0.1 + 20 * 0.2,
            "startup": 15.0,
            "checkpoint_restore": 5.0,
            "checkpoint_save": 20.0,
            "shutdown": 21.0,
        }
    )


def test_a_checkpointing_workload_is_no_training(tmp_path):
    epochs = {"1": span("00:10", "00:50", save_ckpt1=span("00:10", "00:30"), save_ckpt2=span("00:35", "00:50"))}
    metric = {"save_checkpoint_duration_mean_seconds": 20.0, "checkpoint_size_GB": 104.0}
    for n, beside in enumerate((None, epochs)):
        with pytest.raises(SourceError, match=r"checkpointing workload, which trains nothing.*\[no-runs\]"):
            read(write(tmp_path / f"{n}", summary(metric=metric), beside))
    with pytest.raises(SourceError, match="says nothing of a training"):
        read(write(tmp_path / "c", summary(metric={}), epochs))


def test_a_run_without_a_model_is_called_as_its_folders_are(tmp_path):
    folder = tmp_path / "training" / "unet3d" / "run" / "20240101_100000"
    folder.parent.mkdir(parents=True)
    (run,) = MLPerfStorage().load(write(folder, summary(), EPOCHS), Asked())
    assert run.name == "unet3d, 2024-01-01 10:00:00"
