"""A log of each source, as long as one likes: its lines vary as real ones do, so that no cache flatters a reader."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headway.sources.tensorboard.tfrecord import checksum

START = 1_700_000_000
FIRST = datetime.fromtimestamp(START, tz=UTC)
chance = random.Random(0)


@dataclass(frozen=True)
class Rows:
    """Writes a file of rows: steps, jobs, events or requests.

    Attributes:
        row: Returns the text of a row by its number, from 0 on.
        head: What comes before the first.
        between: What comes between two.
        tail: What comes after the last.
    """

    row: Callable[[int], str | bytes]
    head: str = ""
    between: str = "\n"
    tail: str = "\n"

    def __call__(self, path: Path, size: float) -> int:
        """Write rows until the file has its size [bytes]; return how many."""
        with path.open("wb") as file:
            n_bytes, n = file.write(self.head.encode()), 0
            while n_bytes < size or not n:
                row = self.row(n)
                n_bytes += file.write((self.between if n else "").encode())
                n_bytes += file.write(row if isinstance(row, bytes) else row.encode())
                n += 1
            file.write(self.tail.encode())
        return n


def at(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return (FIRST + timedelta(seconds=seconds)).strftime(form)


def stamp(seconds: float, mark: str = ",") -> str:
    return at(seconds, f"%Y-%m-%d %H:%M:%S{mark}%f")[:-3]


def pick(*words):
    return words[int(chance.random() * len(words))]


def near(amount: float, digits: int = 4) -> float:
    """Return a number within a tenth of another."""
    return round(amount * (0.9 + chance.random() / 5), digits)


def long(most_s: int) -> int:
    """Return a duration, mostly short [s]."""
    return int(most_s * chance.random() ** 4)


# Headway's own, and MLPerf's


def native(n: int) -> str:
    start, took = n * 10**9, int(near(9e8, 0))
    return json.dumps({"kind": "step", "step": n, "start": start, "end": start + took, "phases": {"source": took // 9}})


def mllog(n: int, key: str, value: object = None, **metadata: object) -> str:
    told = {"namespace": "", "time_ms": START * 1000 + 900 * n, "event_type": "INTERVAL_END", "key": key}
    return f":::MLLOG {json.dumps(told | {'value': value, 'metadata': metadata})}"


def mlperf(n: int) -> str:
    if n < 2:
        return mllog(n, ("init_start", "run_start")[n])
    where = {"file": "/workspace/nemo/callbacks/mllog.py", "lineno": 120 + n % 9, "samples_count": 64 * n}
    if n % 16 < 12:
        return mllog(n, "tracked_stats", {"train_loss": near(2), "lr": near(1e-4, 9)}, **where)
    return mllog(n, ("block_stop", "eval_start", "eval_stop", "block_start")[n % 4], **where)


def mlperfpower(n: int) -> str:
    return mllog(n, "power_reading", near(9000), host=f"node_{n % 8}") if n else mllog(0, "conversion_eff", 0.94)


def mlperfstorage(path: Path, size: float) -> int:
    """Write a result of blocks into a folder, and return how many; none is as large as 16 MiB."""
    path.mkdir()
    n = max(int(min(size, 1.6e7) / 185), 1)

    def part(k: int) -> dict[str, str]:
        return {"start": at(9 * k, "%Y-%m-%dT%H:%M:%S.%f"), "end": at(9 * k + 9, "%Y-%m-%dT%H:%M:%S.%f")}

    epochs = {str(k + 1): part(k) | {"block1": part(k)} for k in range(n)}
    (path / "per_epoch_stats.json").write_text(json.dumps(epochs))
    told = {"train_au_percentage": [near(90) for _ in range(n)], "metric": "samples/second"}
    summary = {"num_accelerators": 8, "start": at(0), "end": at(9 * n), "metric": told}
    (path / "summary.json").write_text(json.dumps(summary))
    return n


# Clusters


def job() -> tuple[str, str, str, int, int, int]:
    """Return user, account, state, GPUs, wait and duration [s] of a job."""
    user = int(900 * chance.random())
    state = pick("COMPLETED", "COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", f"CANCELLED by {20000 + user}")
    return f"user{user}", f"acct{user % 40}", state, pick(1, 1, 2, 4, 8, 8, 16, 64), long(90000), long(500000)


SACCT = (
    "JobID|JobName|User|Account|Partition|State|Submit|Eligible|Start|End|ElapsedRaw|AllocTRES|ReqTRES|NNodes|NodeList"
)


def slurm(n: int) -> str:
    user, account, state, gpus, wait, took = job()
    submit, start, end = (at(60 * n + s, "%Y-%m-%dT%H:%M:%S") for s in (0, wait, wait + took))
    nodes = (gpus + 7) // 8
    tres = f"cpu={gpus * 12},mem={gpus * 120}G,node={nodes},billing={gpus * 12},gres/gpu:h100={gpus},gres/gpu={gpus}"
    times = f"{submit}|{submit}|{start}|{end}|{took}"
    name = f"train-{pick('llm', 'vit', 'asr')}-{n % 977}"
    where = f"gpu[{n % 99}-{n % 99 + nodes}]"
    return f"{9000000 + n}|{name}|{user}|{account}|gpu|{state}|{times}|{tres}|{tres}|{nodes}|{where}"


def slurm_json(n: int) -> str:
    user, account, state, gpus, wait, took = job()
    submit = START + 60 * n
    tres = [{"type": "cpu", "name": "", "id": 1, "count": 12 * gpus}, {"type": "node", "name": "", "id": 4, "count": 1}]
    tres.append({"type": "gres", "name": "gpu", "id": 1001, "count": gpus})
    code = {"status": ["SUCCESS"], "return_code": {"set": True, "infinite": False, "number": 0}}
    limits = {"max": {"jobs": {"accruing": {"set": False, "infinite": True, "number": 0}}}}
    return json.dumps({
        "account": account, "allocation_nodes": 1, "array": {"job_id": 0, "limits": limits, "task": ""},
        "association": {"account": account, "cluster": "one", "partition": "", "user": user, "id": 77},
        "cluster": "one", "constraints": "", "container": "", "exit_code": code, "derived_exit_code": code, "flags": [],
        "group": user, "het": {"job_id": 0, "job_offset": {"set": True, "infinite": False, "number": 0}},
        "job_id": 9000000 + n, "name": f"train-{n % 977}", "nodes": f"gpu{n % 99}", "partition": "gpu", "qos": "normal",
        "state": {"current": [state.split()[0]], "reason": "None"},
        "steps": [{"time": {"elapsed": took}, "tres": {"allocated": tres}, "exit_code": code, "nodes": {"count": 1}}],
        "submit_line": f"sbatch --gres=gpu:{gpus} /home/{user}/jobs/train_{n % 977}.sh",
        "time": {"elapsed": took, "eligible": submit, "end": submit + wait + took, "start": submit + wait,
                 "submission": submit, "suspended": 0, "limit": {"set": True, "infinite": False, "number": 2880}},
        "tres": {"allocated": tres, "requested": tres}, "user": user, "working_directory": f"/home/{user}/runs",
    })  # fmt: skip


def squeue(n: int) -> str:
    user, account, _, gpus, _, _ = job()
    state, start = pick(("RUNNING", at(3 * n, "%Y-%m-%dT%H:%M:%S")), ("PENDING", "N/A"))
    tres = f"cpu={gpus * 12},mem={gpus * 120}G,node=1,billing={gpus * 12},gres/gpu={gpus}"
    return f"{9000000 + n}|train-{n % 977}|{user}|{account}|gpu|{state}|{at(n, '%Y-%m-%dT%H:%M:%S')}|{start}|{tres}"


def sinfo(n: int) -> str:
    gpus, state = pick(4, 8), pick("allocated", "allocated", "mixed", "idle", "drained*", "down")
    return f"gpu{n:06}|gpu*|{state}|gpu:h100:{gpus}(S:0-1)|gpu:h100:{int(gpus * chance.random())}(IDX:0-3)|Unknown"


def table(n: int) -> str:
    user, account, state, gpus, wait, took = job()
    times = f"{at(60 * n)},{at(60 * n + wait)},{at(60 * n + wait + took)},{took},{wait}"
    return f"{900000 + n},{user},{account},{gpus},{12 * gpus},{(gpus + 7) // 8},{state.split()[0]},{times}"


# Training logs


def megatron(n: int) -> str:
    return (
        f" [{stamp(2.3 * n, '.')}] iteration {n + 1:8d}/ 9999999 | consumed samples: {n * 8:12d} | "
        f"elapsed time per iteration (ms): {near(2000, 1)} | throughput per GPU (TFLOP/s/GPU): {near(400, 1)} | "
        f"learning rate: {near(1e-5, 10):.6E} | global batch size:     8 | lm loss: {near(2):.6E} | "
        f"grad norm: {near(1, 3)} | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def deepspeed(n: int) -> str:
    step, now = 10 * (n // 2 + 1), stamp(4.3 * n)
    if n % 2 == 0:
        rates = f"lr=[{near(1e-4, 9)}], mom=[(0.9, 0.95)]"
        return f"[{now}] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, {rates}"
    return (
        f"[{now}] [INFO] [timer.py:199:stop] epoch=0/micro_step={step}/global_step={step}, "
        f"RunningAvgSamplesPerSec={near(170, 14)}, CurrSamplesPerSec={near(170, 14)}, MemAllocated=4.31GB, "
        "MaxMemAllocated=22.1GB"
    )


def dllogger(n: int) -> str:
    told = {"timestamp": f"{START + n}.{n % 10**6:06}", "datetime": at(n), "elapsedtime": f"{n}.{n % 10**6:06}"}
    data = {"reduced_train_loss": near(2, 15), "lr": near(1e-4, 9), "global_step": float(n), "epoch": 0}
    data |= {"consumed_samples": 256.0 * n, "train_step_timing in s": near(0.9, 15)}
    return "DLLL " + json.dumps(told | {"type": "LOG", "step": n, "data": data})


def nemo(n: int) -> str:
    return (
        f"[{at(1.01 * n)}] Training epoch 0, iteration {n}/999999 | lr: {near(1e-4, 7)} | global_batch_size: 256 | "
        f"global_step: {n} | reduced_train_loss: {near(2, 3)} | train_step_timing in s: {near(1, 3)} | "
        f"consumed_samples: {256 * (n + 1)}"
    )


def torchtitan(n: int) -> str:
    return (
        f"[titan] {stamp(1.01 * n)} - root - INFO - step: {n + 1}  loss: {near(2)}  "
        f"memory: {near(60, 2)}GiB(64.1%)  tps: {int(near(7000)):,}  tflops: {near(400, 2)}  mfu: {near(40, 2)}%"
    )


def maxtext(n: int) -> str:
    took, tokens = near(1, 3), near(4000, 3)
    return (
        f"I{at(1.25 * n, '%m%d %H:%M:%S.%f')} 125344476638336 metric_logger.py:181] completed step: {n}, "
        f"seconds: {took}, TFLOP/s/device: {near(100, 3)}, Tokens/s/device: {tokens}, total_weights: 8192, "
        f"loss: {near(2, 3)}"
    )


def nanogpt(n: int) -> str:
    return f"iter {n}: loss {near(2)}, time {near(100, 2)}ms, mfu {near(40, 2)}%"


def trainerlog(n: int) -> str:
    seconds = 5 * n
    said = {"current_steps": 10 * (n + 1), "total_steps": 1 << 24, "loss": near(2.0), "lr": 1e-4}
    said |= {"epoch": round(n / 100, 2), "percentage": 1.5}
    days, rest = divmod(seconds, 86400)
    clock = f"{f'{days} days, ' if days else ''}{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
    return json.dumps({**said, "elapsed_time": clock, "remaining_time": "1:00:00"})


def hftrainer(n: int) -> str:
    step = n + 1  # logging_steps=1
    if n % 50 == 49:
        told = {"eval_loss": near(2, 12), "eval_runtime": near(6), "step": step}
    else:
        told = {"grad_norm": near(1, 12), "learning_rate": near(1e-4, 12), "loss": near(2), "step": step}
    return json.dumps({"epoch": round(n / 1000, 3)} | told, indent=2)


def lightning(n: int) -> str:
    return f"{n // 1000},{n * 50 + 49},{near(1e-4, 9)},{near(2, 12)},"


def tensorboard(n: int) -> bytes:
    def told(field: int, data: bytes) -> bytes:
        return bytes([field << 3 | 2, len(data)]) + data

    moment = b"\x09" + struct.pack("<d", START + 2 * n)
    step, number = n // 2, b"\x10"
    while step > 127:
        number, step = number + bytes([step & 127 | 128]), step >> 7
    value = told(1, b"train/loss" if n % 2 else b"train/lr") + b"\x15" + struct.pack("<f", near(2))
    event = moment + (number + bytes([step]) + told(5, told(1, value)) if n else told(3, b"brain.Event:2"))
    length = struct.pack("<Q", len(event))
    return length + struct.pack("<I", checksum(length)) + event + struct.pack("<I", checksum(event))


def googlegoodput(n: int) -> str:
    now = START + n + near(0.5, 6)
    told = {"step_count": n // 3, "step_start_time": now}
    if n < 1 or n % 3 == 1:
        told = {"job_start_time": now} if not n else {"data_loading_start_time": now}
    elif n % 3 == 2:
        told = {"data_loading_end_time": now}
    return json.dumps({
        "insertId": f"{n:x}abc", "jsonPayload": {"job_name": "llm-8b", **told}, "labels": {"host": "h0"},
        "logName": "projects/p/logs/goodput", "timestamp": at(n, "%Y-%m-%dT%H:%M:%S.%fZ"),
    })  # fmt: skip


# Profiles


def kineto(n: int) -> str:
    now = 25.0 * n
    told = {"ph": "X", "cat": "cpu_op", "name": pick("aten::mm", "aten::add", "aten::copy_"), "pid": 71, "tid": 71}
    more: dict[str, object] = {"External id": n, "Input Dims": [[64, n % 512], [n % 512, 64]]}
    if n % 9000 == 0:
        told |= {"cat": "user_annotation", "name": f"ProfilerStep#{n // 9000}", "dur": 224000.5}
    elif n % 9 == 1:
        told |= {"cat": "cuda_runtime", "name": "cudaLaunchKernel"}
        more = {"correlation": n}
    elif n % 9 == 2:
        comm = n % 180 == 2
        name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL" if comm else f"void gemm<float, {n % 77}>(float*)"
        told |= {"cat": "kernel", "name": name, "pid": 0, "tid": 20 if comm else 7}
        more = {"device": 0, "stream": told["tid"], "correlation": n - 1, "grid": [132, n % 9, 1], "block": [256, 1, 1]}
    return json.dumps({"dur": near(150, 3)} | told | {"ts": now, "args": more})


# Served requests


def text(tokens: int) -> str:
    return "".join(pick(" the", " token", " is", " not", ",", " a", "\n") for _ in range(tokens))


def vllmbench(path: Path, size: float) -> int:
    """Write a result whose lists have an element a request, and return how many requests."""
    n = max(int(size / 2020), 1)
    tokens = [1 + long(400) for _ in range(n)]
    told = {
        "backend": "vllm", "model_id": "m", "num_prompts": n, "duration": n / 9, "completed": n, "request_goodput": 9.0,
        "input_lens": [long(4000) for _ in range(n)], "output_lens": tokens, "ttfts": [near(0.2, 16) for _ in range(n)],
    }  # fmt: skip
    with path.open("w") as file:
        file.write(json.dumps(told)[:-1])
        for name, one in (("itls", lambda k: [near(0.02, 17) for _ in range(k - 1)]), ("generated_texts", text)):
            file.write(f', "{name}": [')
            for place, k in enumerate(tokens):
                file.write((", " if place else "") + json.dumps(one(k)))
            file.write("]")
        file.write(f', "errors": {json.dumps([""] * n)}}}\n')
    return n


def vllmturns(n: int) -> str:
    ttft, each, tokens = near(0.2, 12), near(0.02, 12), 2 + long(800)
    return json.dumps({
        "ttft_ms": ttft * 1e3, "tpot_ms": each * 1e3, "latency_ms": (ttft + each * (tokens - 1)) * 1e3,
        "start_time_ms": n * 1e3 / 9, "input_num_turns": 1 + 2 * (n % 9), "input_num_tokens": 200 + n % 900,
        "output_num_tokens": tokens, "output_num_chunks": tokens, "output_num_first_chunk_tokens": 1,
        "approx_cached_percent": near(50.0, 2), "conversation_id": f"conversation_{n // 9}", "client_id": n % 4,
    })  # fmt: skip


GUIDELLM = '{"metadata": {"guidellm_version": "0.5.0"}, "benchmarks": [{"requests": {"successful": [\n'


def guidellm(n: int) -> str:
    begin, ttft, each, tokens = START + n / 9, near(0.2, 12), near(0.02, 12), 2 + long(800)
    end = begin + ttft + each * tokens
    moments = {"request_start": begin, "first_token_iteration": begin + ttft, "last_token_iteration": end}
    return json.dumps({
        "type_": "generative_request_stats", "request_id": f"q{n}", "request_args": json.dumps({"prompt": text(200)}),
        "output": text(tokens), "info": {"status": "completed", "timings": moments | {"request_end": end}},
        "input_metrics": {"text_tokens": 200}, "output_metrics": {"text_tokens": tokens, "total_tokens": tokens},
        "request_latency": end - begin, "prompt_tokens": 200, "output_tokens": tokens,
        "time_to_first_token_ms": ttft * 1e3, "inter_token_latency_ms": each * 1e3,
    }, indent=1)  # fmt: skip


LOGS: dict[str, Callable[[Path, float], int]] = {
    "native": Rows(native, '{"kind":"open","wall_ns":1700000000000000000,"mono_ns":0,"run":"r","attempt":"a"}\n'),
    "mlperf": Rows(mlperf),
    "kineto": Rows(kineto, '{"schemaVersion": 1, "traceEvents": [\n', ",\n", "]}\n"),
    "slurm": Rows(slurm, SACCT + "\n"),
    "slurm_json": Rows(slurm_json, '{"jobs": [', ",\n", "]}\n"),
    "slurm_squeue": Rows(squeue, "JOBID|NAME|USER|ACCOUNT|PARTITION|STATE|SUBMIT_TIME|START_TIME|TRES_ALLOC\n"),
    "slurm_sinfo": Rows(sinfo, "HOSTNAMES|PARTITION|STATE|GRES|GRES_USED|TIMESTAMP\n"),
    "table": Rows(
        table, "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    ),
    "megatron": Rows(megatron),
    "deepspeed": Rows(deepspeed, "[2023-11-14 22:00:00,000] [INFO] [config.py:1:print]   train_batch_size ..... 128\n"),
    "dllogger": Rows(dllogger),
    "nemo": Rows(nemo),
    "torchtitan": Rows(torchtitan),
    "maxtext": Rows(maxtext),
    "nanogpt": Rows(nanogpt),
    "trainerlog": Rows(trainerlog),
    "hftrainer": Rows(hftrainer, '{\n"epoch": 1.0,\n"global_step": 1,\n"log_history": [\n', ",\n", "]}\n"),
    "lightning": Rows(lightning, "epoch,step,lr-AdamW,train_loss,val_loss\n"),
    "tensorboard": Rows(tensorboard, between="", tail=""),
    "mlperfstorage": mlperfstorage,
    "mlperfpower": Rows(mlperfpower),
    "googlegoodput": Rows(googlegoodput),
    "vllmbench": vllmbench,
    "guidellm": Rows(guidellm, GUIDELLM, ",\n", "]}}]}\n"),
    "vllmturns": Rows(vllmturns, "[\n", ",\n", "]\n"),
}
"""A writer for each source, and for each form of its logs that is read differently: `<source>_<form>`."""
