"""`headway model simulate NAME`: a scenario with random failures, many times over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headway.cli.modeltext import TIME, json_option, put, saving_options, show_losses
from headway.report.sheet import Sheet
from headway.units import show_percent, show_seconds

if TYPE_CHECKING:
    from headway.model.simulation import Simulation


@click.command("simulate")
@click.argument("name", metavar="NAME")
@click.option(
    "--replicas", metavar="N", type=click.IntRange(2, 100_000), default=1000, show_default=True, help="How many times."
)
@click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0, show_default=True, help="Of the failures.")
@click.option(
    "--work", "work_s", metavar="TIME", type=TIME, help="Training that the job needs. Default: the scenario's window."
)
@click.option("--devices", metavar="N", type=click.IntRange(min=1), help="Take it to that size first.")
@saving_options
@json_option
def command(
    *,
    name: str,
    replicas: int,
    seed: int,
    work_s: float | None,
    devices: int | None,
    save: float | None,
    restart: float | None,
    as_json: bool,
) -> None:
    """Simulate a scenario with random failures.

    NAME is one of `headway model list` with a runtime model. Failures come at random; waits for
    data and preemptions are left out, so that the mean is held against the exact form.
    """
    from headway.cli.modelscenario import canonical, runtime_scenario
    from headway.model.renewal import split
    from headway.model.simulator import simulate

    name = canonical(name)
    scenario = runtime_scenario(name, save, restart)
    scenario = scenario if devices is None else scenario.at(devices)
    result = scenario.result
    times = {
        "work": result.window_s if work_s is None else work_s,
        "interval": result.interval_s,
        "save": result.write_s,
        "mtbf": result.mtbf_s,
        "restart": result.recovery_s,
    }
    done = simulate(**times, replicas=replicas, seed=seed)
    exact = split(times["interval"], times["save"], times["mtbf"], times["restart"]).kept
    held = sum(int(ns) for ns in done.replicas.held_ns)
    shares = {key: sum(int(x) for x in ns) / held for key, ns in done.replicas.amounts_ns.items()}
    document = {
        "name": name,
        "replicas": replicas,
        "seed": seed,
        "devices": int(scenario.n_devices),
        "times_s": times,
        "runtime": done.runtime_goodput,
        "interval_95": done.interval_95,
        "quantiles": {str(share): done.quantile(share) for share in (0.05, 0.5, 0.95)},
        "exact": exact,
        "shares": shares,
        "job_years": done.job_years,
        "outcome": done.outcome,
        "advice": done.advice,
    }
    put(document, lambda sheet: _draw(sheet, scenario, done, document), as_json=as_json)


def _draw(sheet: Sheet, scenario: Any, done: Simulation, document: dict[str, Any]) -> None:
    low, high = done.interval_95 or (done.runtime_goodput, done.runtime_goodput)
    sheet.title(
        f"{document['name']} on {document['devices']:,} devices, simulated {document['replicas']:,} times",
        f"runtime goodput R {show_percent(done.runtime_goodput)}   95 % interval of the mean "
        f"{100 * low:.2f} to {100 * high:.2f} %",
    )
    show_losses(sheet, {name: share for name, share in document["shares"].items() if share})
    times = {key: show_seconds(seconds) for key, seconds in document["times_s"].items()}
    exact = 100 * document["exact"]
    one, most = done.quantile(0.05), done.quantile(0.95)
    sheet.say(
        f"R is the share of the held time whose training is kept; the exact form gives {exact:.2f} %.",
        f"Luck alone: one job in twenty falls below {show_percent(one)}, one in twenty is above {show_percent(most)}.",
        f"{times['work']} of work, saved every {times['interval']} in {times['save']}, a failure every "
        f"{times['mtbf']}, a restart of {times['restart']}; {done.job_years:,.0f} job-years.",
        "Left out: waits for data and preemptions." if scenario.input_wait or scenario.preemption_rate else "",
        done.advice or "",
    )
    sheet.say("Next: --seed N for other luck, --devices N for another size; headway model show NAME for its levers.")
