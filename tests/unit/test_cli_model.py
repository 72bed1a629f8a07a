"""`headway model`: its screens at 80 columns, its JSON, and one clear line where something cannot be done."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from headway.cli.main import cli, main
from headway.cli.model import MODEL_COMMANDS
from headway.model import Scenarios
from headway.report.chart import legend, stack
from headway.report.glyphs import Glyphs
from headway.report.sheet import Sheet, dump

from unit.logged import log as log_of

GOLDEN = Path(__file__).parents[1] / "golden"
S = 10**9
RUN = "Llama2_70BRuntimeGoodput128"


@pytest.fixture
def log(tmp_path):
    """Two attempts on 2 devices: 10 steps of 1 s, 20 s of nothing, 10 steps more; a save of 500 ms after each 4."""
    for attempt, first, begin in (("a0", 0, 0), ("a1", 8, 30)):
        folder = tmp_path / "r1" / f"{attempt}-r0"
        folder.mkdir(parents=True)
        lines = [{
            "kind": "open", "schema": 1, "run": "r1", "attempt": attempt,
            "wall_ns": (1_700_000_000 + begin) * S, "mono_ns": 0, "devices": 2,
        }]  # fmt: skip
        for n in range(10):
            start = n * S + 10**8
            lines.append({"kind": "step", "step": first + n, "start": start, "end": (n + 1) * S,
                          "phases": {"source": S // 10}})  # fmt: skip
            if n % 4 == 3:
                lines.append({"kind": "span", "category": "checkpoint_save", "start": start, "end": start + S // 2})
                lines.append({"kind": "saved", "step": first + n, "at": (n + 1) * S})
        lines += [{"kind": "close", "at": 10 * S, "reason": "finished" if attempt == "a1" else "failed"}]
        (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(tmp_path / "r1")


def shown(*arguments):
    result = CliRunner().invoke(cli, ["model", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def strict(text):
    def refuse(constant):
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


SCREENS = {
    "show_runtime": ["show", RUN, "--price", "2 USD/h"],
    "show_goodput": ["show", "llama3_405bgoodput16k"],
    "show_failures": ["show", "MetaRSC1Failures"],
    "show_unknown": ["show", "MegaScaleProductionRun"],
    "solve": ["solve", "--scheduling", 0.65, "--runtime", 0.904, "--program", 0.48, "--ceiling", "S=0.8",
              "--price", "2 USD/h", "--devices", 512],
    "interval": ["interval", "--save", "30 s", "--mtbf", "4 h"],
    "interval_hopeless": ["interval", "--save", "30 min", "--mtbf", "10 min"],
    "sweep": ["sweep", RUN],
    "sweep_plot": ["sweep", "MetaRSC1Failures", "--save", "30 s", "--restart", "5 min", "--plot"],
    "simulate": ["simulate", "Llama3_405BFailures16K", "--save", "60 s", "--restart", "5 min", "--work", "20 d"],
}  # fmt: skip


def fits(got):
    assert all(len(line) <= 80 and line == line.rstrip() for line in got.splitlines())


def held_to(name, got):
    golden = GOLDEN / f"model_{name}.txt"
    if not golden.exists() or golden.read_text() != got:
        golden.with_suffix(".failed").write_text(got)
    assert got == (golden.read_text() if golden.exists() else ""), f"see {golden.with_suffix('.failed')}"
    fits(got)


@pytest.fixture(autouse=True)
def _columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_as_it_was_agreed(name):
    held_to(name, shown(*SCREENS[name]))


def test_the_list_has_every_scenario_with_its_figure():
    got = shown("list")
    fits(got)
    lines = {line.split()[0]: line for line in got.splitlines() if line.startswith("  ")}
    assert not set(Scenarios.names()) - set(lines)
    assert "MPG 36.9 %" in lines["Llama3_405BGoodput16K"]
    assert "fails every 3.09 h on 16,384 devices" in lines["Llama3_405BFailures16K"]
    assert "S ?  R 90.0 %  P ?" in lines["MegaScaleProductionRun"]
    assert {item["name"] for item in strict(shown("list", "--json"))["scenarios"]} == set(Scenarios.names())


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_ascii_where_nothing_else_can_be_written(name, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["model", *map(str, SCREENS[name])]) == 0
    stream.flush()
    assert stream.buffer.getvalue().decode("ascii").count("\n") > 5


@pytest.mark.parametrize("name", SCREENS)
def test_json_is_one_strict_object(name):
    document = strict(shown(*SCREENS[name], "--json"))
    assert document["schema"] == 1


def test_every_command_has_a_screen_and_json(log):
    assert {words[0] for words in SCREENS.values()} | {"list", "whatif"} == set(MODEL_COMMANDS)
    assert strict(shown("whatif", log, "--json"))["schema"] == 1


def test_every_scenario_can_be_shown():
    for name in Scenarios.names():
        assert strict(shown("show", name, "--json"))["name"] == name
        assert "Source: " in shown("show", name)


def test_a_run_at_another_size(log):
    held_to("whatif", shown("whatif", log, "--devices", 16384, "--mtbf", "4 h", "--save", "30 s", "--price", "2 USD/h"))
    document = strict(shown("whatif", log, "--devices", 16384, "--mtbf", "4 h", "--save", "30 s", "--json"))
    assert document["run"] == "r1"
    assert document["fit"]["mtbf"]["n_failures"] == 1
    assert (document["then"]["devices"], document["then"]["mtbf"]["value_s"]) == (16384, 14400)
    assert document["given"] == {"save": 30, "mtbf": 14400}
    assert sum(document["then"]["shares"].values()) == pytest.approx(1)
    assert document["at_own_interval"] < document["then"]["runtime"]


def test_the_time_between_failures_falls_with_the_devices(log):
    def mtbf(*options):
        return strict(shown("whatif", log, *options, "--json"))["then"]["mtbf"]["value_s"]

    measured = mtbf()
    assert mtbf("--devices", 8) == pytest.approx(measured / 4)
    assert mtbf("--devices", 8, "--mtbf", "1 h") == 3600
    assert mtbf("--devices", 8, "--mtbf-per-device", "8 h") == 3600


def test_an_interval_is_held_where_it_is_given(log):
    document = strict(shown("whatif", log, "--interval", "7 s", "--json"))
    assert document["then"]["interval_s"] == 7
    assert document["at_own_interval"] is None
    assert "as given" in " ".join(shown("whatif", log, "--interval", "7 s").split())


def test_known_answers():
    assert strict(shown("interval", "--save", "5 min", "--mtbf", "24 h", "--json"))["interval_s"] / 60 == pytest.approx(
        116.69, abs=0.005
    )
    solved = strict(
        shown("solve", "--scheduling", 0.9, "--runtime", 0.9, "--program", 0.7, "--price", "4 USD/h", "--json")
    )
    assert solved["result"]["mpg"] == pytest.approx(0.567)
    assert solved["result"]["useful_rate"] == pytest.approx(7.055, abs=5e-4)
    swept = strict(shown("sweep", RUN, "--devices", "128,1024,16384", "--json"))["sweep"]
    assert [point["first_order"] for point in swept] == pytest.approx([0.903980, 0.893844, 0.817081], abs=1e-6)
    assert [point["exact"] for point in swept] == [False, False, True]
    exact = Scenarios.get(RUN).at(16384).result.exact_runtime_goodput
    assert [point["runtime"] for point in swept] == pytest.approx([0.903980, 0.893844, exact], abs=1e-6)


def test_a_sweep_says_which_sizes_are_exact_and_its_shares_are_the_whole():
    words = ["sweep", RUN, "--devices", "128:33554432:16"]
    swept = strict(shown(*words, "--json"))["sweep"]
    for point in swept:
        assert sum(point["shares"].values()) == pytest.approx(1)
        assert point["shares"]["productive"] == point["runtime"]
    assert [point["outcome"] for point in swept] == ["ok"] * 4 + ["no-progress"] * 2
    text = " ".join(shown(*words).split())
    assert "From 32,768 devices on by the exact form" in text
    assert "No progress at 8,388,608, 33,554,432 devices" in text
    one = shown("sweep", RUN, "--devices", "128")
    assert "runtime goodput R 90.4 %\n" in one
    assert "falls to" not in one
    assert "To first order: the exact form is within a point of it." in one


def test_a_run_that_would_make_no_progress_is_told_what_to_do(tmp_path):
    words = ["whatif", log_of(tmp_path, 9), "--mtbf", "2 s", "--save", "60 s"]
    text = " ".join(shown(*words).split())
    assert "no progress" in text.splitlines()[0]
    assert "No progress: a failure every 2.0 s, with a save of 60.0 s and a restart of 30.0 s" in text
    assert "Save faster or in the background, restart faster, or take fewer devices." in text
    assert "restart at once" not in text
    document = strict(shown(*words, "--json"))
    assert document["outcome"] == document["then"]["outcome"] == "no-progress"
    assert all(0 < lever["gain"] <= lever["loss"] <= 1 for lever in document["levers"])


def test_a_distance_between_saves_that_nobody_gave_is_not_given(tmp_path):
    words = ["whatif", log_of(tmp_path, 1, every=10**6), "--save", "4 s"]
    text = " ".join(shown(*words).split())
    assert "as given" not in text
    assert "the best (Daly's); the run's own is not known" in text
    assert "warning: saves not recorded" in text


def test_a_size_that_the_log_does_not_say_is_unknown(tmp_path):
    steps = [
        (0, "INTERVAL_START", "init_start"), (10_000, "INTERVAL_END", "init_stop"),
        (10_000, "INTERVAL_START", "run_start"), (110_000, "INTERVAL_END", "run_stop"),
    ]  # fmt: skip
    path = tmp_path / "result_0.txt"
    path.write_text("".join(
        ":::MLLOG " + json.dumps({"namespace": "", "time_ms": 1_700_000_000_000 + at, "event_type": kind, "key": key,
                                  "value": None, "metadata": {"file": "a.py", "lineno": 1}}) + "\n"
        for at, kind, key in steps
    ))  # fmt: skip
    words = ["whatif", str(path), "--mtbf", "4 h", "--save", "30 s", "--restart", "5 min", "--devices", "64"]
    text = " ".join(shown(*words).split())
    assert "on an unknown size (1 counted) as recorded" in text
    assert "warning: the number of devices is not in the log and 1 is counted" in text
    told = shown(*words, "--recorded-devices", "8")
    assert "unknown size" not in told
    assert "number of devices" not in told
    assert "on 8 as recorded" in told


def test_a_scenario_is_shown_at_its_own_price():
    name = "Llama2_70BSharedPoolGoodput128"
    text = " ".join(shown("show", name).split())
    assert "7.09 USD at 2.00 USD each" in text


def test_a_simulation_meets_the_exact_form_and_repeats_itself():
    words = ["simulate", "Llama3_405BFailures16K", "--save", "60 s", "--restart", "5 min", "--work", "20 d", "--json"]
    one, two, other = strict(shown(*words)), strict(shown(*words)), strict(shown(*words, "--seed", 1))
    assert one == two != other
    low, high = one["interval_95"]
    assert low - 0.0005 < one["exact"] < high + 0.0005
    assert one["quantiles"]["0.05"] < one["runtime"] < one["quantiles"]["0.95"]


@pytest.mark.parametrize(
    ("sizes", "found"),
    [("128:1024", [128, 256, 512, 1024]), ("128:1000", [128, 256, 512, 1000]), ("8:512:8", [8, 64, 512]),
     ("512, 8", [8, 512]), ("16_384", [16384])],
)  # fmt: skip
def test_sizes(sizes, found):
    swept = strict(shown("sweep", RUN, "--devices", sizes, "--json"))["sweep"]
    assert [point["devices"] for point in swept] == found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sweep", RUN, "--devices", "0:8"], "[bad-sizes]"),
        (["sweep", RUN, "--devices", "8:4"], "[bad-sizes]"),
        (["sweep", RUN, "--devices", "8:16:1"], "[bad-sizes]"),
        (["sweep", RUN, "--devices", "many"], "[bad-sizes]"),
        (["sweep", RUN, "--devices", "\u00b2"], "[bad-sizes]"),
        (["sweep", RUN, "--devices", "9" * 5000], "[bad-sizes]"),
        (["sweep", RUN, "--devices", ",".join(map(str, range(1, 300)))], "[bad-sizes]"),
        (["sweep", RUN, "--html", "/nowhere/at/all.html"], "[unwritable-file]"),
        (["sweep", "SharedPoolSchedulingSnapshot"], "[no-runtime-model]"),
        (["sweep", "MetaRSC1Failures"], 'Give --save "30 s"'),
        (["show", "Lama3_405BGoodput"], "Did you mean Llama3_405BGoodput16K?"),
        (["show", "x"], "[unknown-scenario]"),
        (["interval", "--save", "0 s", "--mtbf", "4 h"], "[bad-duration]"),
        (["interval", "--save", "30", "--mtbf", "4 h"], "[bad-duration]"),
        (["solve", "--scheduling", "0", "--runtime", "1", "--program", "1"], "[bad-factor]"),
        (["solve", "--scheduling", "1.1", "--runtime", "1", "--program", "1"], "[bad-factor]"),
        (["solve", "--scheduling", "nan", "--runtime", "1", "--program", "1"], "[bad-factor]"),
        (["solve", "--scheduling", "0.9", "--runtime", "1", "--program", "1", "--ceiling", "Q=1"], "[bad-ceiling]"),
        (["solve", "--scheduling", "0.9", "--runtime", "1", "--program", "1", "--ceiling", "S=high"], "[bad-ceiling]"),
        (["solve", "--scheduling", "0.9", "--runtime", "1", "--program", "1", "--ceiling", "S=0.8"], "[bad-ceiling]"),
        (["whatif", "/nowhere"], "[no-such-path]"),
    ],
)
def test_nonsense_is_one_clear_line(words, said, capsys):
    assert main(["model", *words]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert said in streams.err
    assert streams.err.startswith("headway: ")
    assert streams.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["intervall"], "Did you mean 'interval'?"),
        (["whatif", ".", "--mtbf", "1h", "--mtbf-per-device", "1h"], "not both"),
        (["simulate", RUN, "--replicas", "1"], "--replicas"),
        (["solve", "--scheduling", "1"], "--runtime"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(words, said, capsys):
    assert main(["model", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_run_that_tells_too_little_names_the_option(tmp_path, capsys):
    (tmp_path / "events.jsonl").write_text(
        '{"kind":"open","run":"a","attempt":"a0","wall_ns":0,"mono_ns":0}\n{"kind":"close","at":9000000000}\n'
    )
    assert main(["model", "whatif", str(tmp_path)]) == 2
    assert 'Give --mtbf "4 h". [unmeasured]' in capsys.readouterr().err


def test_several_runs_are_not_one(log, capsys):
    other = Path(log).parent / "r2" / "a0-r0"
    other.mkdir(parents=True)
    (other / "events.jsonl").write_text('{"kind":"open","run":"r2","attempt":"a0","wall_ns":0,"mono_ns":0}\n')
    assert main(["model", "whatif", str(Path(log).parent)]) == 2
    assert "it holds 2 runs" in capsys.readouterr().err


def test_a_chart_as_a_page(tmp_path):
    page = tmp_path / "sweep.html"
    assert f"Written: {page}" in shown("sweep", RUN, "--html", page).replace("\n  ", "")
    text = page.read_text()
    assert "plotly" in text
    assert "input_wait" in text
    assert "https://cdn" not in text.split("<body>")[0]


def test_without_plotly_it_says_how_to_get_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert main(["model", "sweep", RUN, "--html", str(tmp_path / "x.html")]) == 2
    assert 'pip install "headway[html]". [missing-extra]' in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_a_stack_fills_its_width_whatever_the_shares():
    glyphs = Glyphs.of("utf-8")
    for shares in ({"productive": 1.0}, {"rework": 1.0}, {"productive": 1 / 3, "rework": 1 / 3, "custom:x": 1 / 3}):
        assert len(stack(shares, glyphs, 20).plain) == 20
    assert legend([{"custom:x": 0.5}], glyphs) == ".=custom:x"


def test_what_is_no_number_is_null():
    assert strict(dump({"a": [float("nan"), (1.5,)], "b": {"c": float("inf")}, "d": "\udc80"})) == {
        "schema": 1, "a": [None, [1.5]], "b": {"c": None}, "d": "?",
    }  # fmt: skip


def test_nothing_from_a_log_steers_the_terminal():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    sheet = Sheet(stream, 80)
    sheet.title("[red]x\x1b[31m", "\x07")
    sheet.table(["a"], [["\x1b[2J"]])
    sheet.say("\r\x1b")
    stream.flush()
    assert not {"\x1b", "\x07", "\r"} & set(stream.buffer.getvalue().decode())


def test_the_report_and_the_interval_load_no_units(log):
    code = "import sys; from headway.cli.main import main; main({}); sys.exit('pint' in sys.modules)"
    interval = ["model", "interval", "--save", "30 s", "--mtbf", "4 h"]
    for words in (["report", log], ["report", log, "--json"], ["model", "whatif", log], interval):
        done = subprocess.run([sys.executable, "-c", code.format(words)], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
