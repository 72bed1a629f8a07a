"""What saves that block for a minute cost a job of 16,384 GPUs, failing as often as Llama 3 405B did."""

from headway.model import Scenarios, best_interval, efficiency

PRICE, DAYS = 2.0, 54  # USD for one GPU for one hour, assumed; the days that were published


def main() -> None:
    """Print the best interval and what it keeps, by the time that a save blocks."""
    job = Scenarios.Llama3_405BFailures16K
    mtbf, restart = job.result.mtbf, "5 min"
    held_hours = job.n_devices * DAYS * 24
    print(f"{job.n_devices:,.0f} GPUs, a failure every {mtbf:.2f~P}, {restart} to restart")
    for save in ("1 s", "10 s", "30 s", "60 s"):
        interval = best_interval(save, mtbf)
        kept = efficiency(interval, save, mtbf, restart)
        lost = (1 - kept) * held_hours * PRICE / 1e6
        verdict = "" if kept > 0.9 else "   not the 90 % that was published"
        print(
            f"  save {save:>4} every {interval.to('min').magnitude:4.1f} min: {kept:6.1%}, {lost:3.1f} M USD{verdict}"
        )


if __name__ == "__main__":
    main()
