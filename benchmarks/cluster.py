"""A model over stages against the same forward by hand, and against the whole model, on the CPUs of this machine.

By hand is what one would write on `torch.distributed` alone: receives posted ahead, a stage called,
its output sent on while the next part computes. Both use the same stages in the same processes, and
everything takes turns there; what is printed are medians of the turns' own ratios, with the interval
that holds them at 95 %. Each worker has its share of the cores as threads.

    python benchmarks/cluster.py [--turns 41] [--layers 12] [--stages 1 2 3]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import transformers

import headway
from headway.cluster.checkpoint import Checkpoint
from headway.cluster.cluster import Cluster
from headway.cluster.config import ClusterConfig, NodeConfig
from headway.cluster.pipeline import Pipeline
from headway.cluster.probe import NodeProbe
from headway.cluster.stage import Stage

BAR = 1.05
BATCH, LENGTH, VOCAB, HIDDEN = 4, 64, 8192, 768
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--turns", type=int, default=41)
    options.add_argument("--layers", type=int, default=12)
    options.add_argument("--stages", type=int, nargs="+", default=[1, 2, 3])
    given = options.parse_args()
    few = max(3, given.turns // 4)
    with tempfile.TemporaryDirectory() as folder:
        n_params = make_checkpoint(folder, given.layers)
        print(
            f"torch {torch.__version__}, {CORES} cores; {n_params / 1e6:.0f} M parameters, {given.layers} layers, fp32"
        )
        print(
            f"\nbatch {BATCH} x {LENGTH} tokens, 2 stages of {max(1, CORES // 2)} threads, medians of turns", flush=True
        )
        result = over(2, against_hand, folder, given.turns)
        over(2, against_whole, folder, few)
        print(f"\nbatch 8 x {LENGTH} tokens, tokens a second; in brackets over the whole model on all {CORES} cores")
        print(f"{'stages':8}" + "".join(f"{f'{parts} parts':>18}" for parts in (1, 2, 4, 8)), flush=True)
        for n_stages in given.stages:
            over(n_stages, throughput, folder, few)
        launch_time(folder)
    return int("MISSED" in result)


def make_checkpoint(folder: str, n_layers: int) -> int:
    """Write a Llama with random weights; return how many."""
    config = transformers.LlamaConfig(
        hidden_size=HIDDEN, intermediate_size=2048, num_hidden_layers=n_layers, num_attention_heads=12,
        num_key_value_heads=12, vocab_size=VOCAB, bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    return model.num_parameters()


def over(world: int, measure: Callable[..., str], folder: str, turns: int) -> str:
    """Have as many processes measure together; return what the last of them says."""
    context = multiprocessing.get_context("spawn")
    said = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as store:
        arguments = (world, measure, folder, turns, f"{store}/store", said)
        ranks = [context.Process(target=run_rank, args=(rank, *arguments), daemon=True) for rank in range(world)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
    if any(rank.exitcode for rank in ranks):
        sys.exit("a process failed")
    return said.get()


def run_rank(  # noqa: PLR0917 - what a process is started with
    rank: int, world: int, measure: Callable[..., str], folder: str, turns: int, store: str, said: Any
) -> None:
    threads = max(1, CORES // world)
    torch.set_num_threads(threads)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", store=dist.FileStore(store, world), rank=rank, world_size=world)
    checkpoint = Checkpoint.open(folder)
    cuts = [round(part * checkpoint.n_layers / world) for part in range(world + 1)]
    stage = Stage(checkpoint, range(cuts[rank], cuts[rank + 1]), "fp32")
    whole = Stage(checkpoint, range(checkpoint.n_layers), "fp32") if rank == world - 1 else None
    result = measure(Forwards(stage, Pipeline(stage), whole, threads), turns)
    if rank == world - 1:
        said.put(result)
    dist.destroy_process_group()


class Forwards:
    """The forwards of one rank that are compared; all ranks call the same in the same order."""

    def __init__(self, stage: Stage, pipeline: Pipeline, whole: Stage | None, threads: int) -> None:
        self.stage, self.pipeline, self.whole, self.threads = stage, pipeline, whole, threads
        self.rank, self.world = pipeline.rank, pipeline.world

    def headway(self, ids: torch.Tensor, parts: int) -> torch.Tensor | None:
        """Run the pipeline of a cluster."""
        return self.pipeline.forward(ids, *ids.shape, parts)

    def by_hand(self, ids: torch.Tensor, parts: int) -> torch.Tensor | None:
        """Run the same stages, receiving and sending by hand."""
        each, sends, out = ids.chunk(parts), [], []
        if self.rank:
            each = [torch.empty((*part.shape, HIDDEN)) for part in each]
            receives = [dist.irecv(part, self.rank - 1) for part in each]
        for number, part in enumerate(each):
            if self.rank:
                receives[number].wait()
            out.append(self.stage(part))
            if self.rank < self.world - 1:
                sends.append(dist.isend(out[-1], self.rank + 1))
        for send in sends:
            send.wait()
        return torch.cat(out) if self.rank == self.world - 1 else None

    def unsplit(self, ids: torch.Tensor, threads: int) -> torch.Tensor | None:
        """Run the whole model on the last rank, while the others sleep."""
        if self.whole is None:
            return None
        torch.set_num_threads(threads)
        logits = self.whole(ids)
        torch.set_num_threads(self.threads)
        return logits

    def take_turns(
        self, works: dict[str, tuple[Callable, torch.Tensor, int]], turns: int
    ) -> dict[str, list[list[float]]]:
        """Return by name what each turn took [ms]: by the last rank's clock, in processor time, and inside stages.

        The latter two are sums over all ranks.
        """
        took: dict[str, list[list[float]]] = {name: [] for name in works}
        for turn in range(-1, turns):  # the first is warm-up
            for name in list(works)[:: 1 if turn % 2 else -1]:
                work, ids, number = works[name]
                self.stage.begin(number if work != self.unsplit else 1)
                if self.whole is not None:
                    self.whole.begin(1)
                self.stage.compute_ns = 0
                dist.barrier()
                worked, began = time.process_time(), time.perf_counter()
                work(ids, number)
                ended = time.perf_counter()
                dist.barrier()
                sums = torch.tensor([time.process_time() - worked, self.stage.compute_ns / 1e9])
                dist.all_reduce(sums)
                if turn >= 0:
                    took[name].append([1e3 * one for one in (ended - began, *sums.tolist())])
        return took


def prompts(batch: int) -> torch.Tensor:
    return torch.randint(0, VOCAB, (batch, LENGTH), generator=torch.Generator().manual_seed(0))


def against_hand(forwards: Forwards, turns: int) -> str:
    """Compare the pipeline with the one by hand."""
    ids, works = prompts(BATCH), {}
    for parts in (1, 2, 4):
        logits = []
        for name, work in (("headway", forwards.headway), ("by hand", forwards.by_hand)):
            forwards.stage.begin(parts)
            logits.append(work(ids, parts))
            works[f"{name}, {parts} parts"] = work, ids, parts
        if logits[0] is not None and not torch.equal(*logits):
            sys.exit("both do not agree")
    took = forwards.take_turns(works, turns)
    if forwards.whole is None:
        return ""
    results = []
    for parts in (1, 2, 4):
        ours, hand = took[f"headway, {parts} parts"], took[f"by hand, {parts} parts"]
        show(f"headway / by hand, {parts} parts", ours, hand, 0)
        result = verdict(ours, hand, 0)
        show("  processor time", ours, hand, 1)
        if result == "not decided":
            result = f"not decided by these turns, by processor time {verdict(ours, hand, 1)}"
        print(f"  bar under {BAR:.2f} x: {result}", flush=True)
        results.append(result)
    return " ".join(results)


def against_whole(forwards: Forwards, turns: int) -> str:
    """Compare the pipeline with the whole model."""
    ids, works = prompts(BATCH), {}
    works |= {f"headway, {parts} parts": (forwards.headway, ids, parts) for parts in (1, 2, 4)}
    wholes = {f"whole, {threads} threads": (forwards.unsplit, ids, threads) for threads in sorted({1, CORES})}
    took = forwards.take_turns(works | wholes, turns)
    for whole in wholes if forwards.whole is not None else ():
        for name in works:
            show(f"{name} / {whole}", took[name], took[whole], 0)
        of_stages = [[inside] for _, _, inside in took["headway, 1 parts"]]
        show(f"relay, sum of stages / {whole}", of_stages, took[whole], 0)
    return ""


def throughput(forwards: Forwards, turns: int) -> str:
    """Print a line of tokens a second over parts of the batch."""
    ids = prompts(8)
    works: dict[str, Any] = {f"{parts}": (forwards.headway, ids, parts) for parts in (1, 2, 4, 8)}
    took = forwards.take_turns(works | {"whole": (forwards.unsplit, ids, CORES)}, turns)
    if forwards.whole is not None:
        cells = []
        for parts in works:
            rate = ids.numel() / statistics.median(ms for ms, _, _ in took[parts]) * 1e3
            cells.append(f"{rate:9.0f} ({spread(took['whole'], took[parts], 0)[0]:.2f} x)")
        print(f"{forwards.world:<8}" + "".join(f"{cell:>18}" for cell in cells), flush=True)
    return ""


def spread(ours: list[list[float]], theirs: list[list[float]], which: int) -> tuple[float, float, float]:
    """Return the median of the turns' ratios and its interval at 95 %, by order statistics."""
    ratios = sorted(one[which] / other[which] for one, other in zip(ours, theirs, strict=True))
    reach, middle = round(0.98 * len(ratios) ** 0.5), len(ratios) // 2
    return statistics.median(ratios), ratios[max(middle - reach, 0)], ratios[min(middle + reach, len(ratios) - 1)]


def show(name: str, ours: list[list[float]], theirs: list[list[float]], which: int) -> None:
    ratio, low, high = spread(ours, theirs, which)
    each = (statistics.median(one[which] for one in times) for times in (ours, theirs))
    print(f"{name:40}{ratio:8.3f} x ({low:.3f} to {high:.3f}){'{:9.1f} ms /{:9.1f} ms'.format(*each)}", flush=True)


def verdict(ours: list[list[float]], theirs: list[list[float]], which: int) -> str:
    _, low, high = spread(ours, theirs, which)
    return "met" if high < BAR else "MISSED" if low > BAR else "not decided"


def launch_time(folder: str) -> None:
    """Print where the time of launching two workers goes."""
    with tempfile.TemporaryDirectory() as logs:
        nodes = tuple(NodeConfig(addr=f"n{n}", precision="fp32") for n in range(2))
        heard: dict[str, float] = {}

        def watch(cluster: Cluster) -> None:
            for state in cluster.state():
                if state.doing != "starting":
                    heard.setdefault(state.addr, time.perf_counter())

        config = ClusterConfig(model=folder, reserve_ram_gb=0, log_dir=logs, nodes=nodes)
        with Cluster(config, watch) as cluster:
            probe = {"host": "here", "os": "", "ram_bytes": 10**11, "available_bytes": 10**11, "cores": CORES}
            cluster.plan({node.addr: NodeProbe(addr=node.addr, **probe) for node in nodes})
            began = time.perf_counter()
            reports = cluster.launch()
            whole = time.perf_counter() - began
            closing = time.perf_counter()
        closed = time.perf_counter() - closing
        booked = headway.account(headway.load(f"{logs}/{cluster.run}")).seconds
    build = max(report.build_ms for report in reports) / 1e3
    start, form = max(heard.values()) - began, booked["device_init"] / 2
    parts = {"start": start, "import": whole - start - build - form, "build": build, "form the group": form}
    told = ", ".join(f"{name} {seconds:.2f}" for name, seconds in parts.items())
    print(f"\nlaunch of 2 workers {whole:.2f} s: {told}; close {closed:.2f}")


if __name__ == "__main__":
    sys.exit(main())
