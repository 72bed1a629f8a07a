"""The all-reduce on real ranks against NumPy, its errors on every rank, and linear layers split over ranks."""

import datetime as dt
import functools
import hashlib
import itertools
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

from headway.cluster import collective  # noqa: E402
from headway.cluster.collective import all_reduce, shard_columns, shard_rows, share_of  # noqa: E402
from headway.cluster.report import ReduceKind  # noqa: E402
from headway.errors import ArgumentError, ClusterError  # noqa: E402

KINDS = [ReduceKind.SUM, ReduceKind.MEAN, ReduceKind.MAX, ReduceKind.MIN]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
SPECIAL = [0.0, -0.0, 1.5, -1.5, float("inf"), -float("inf"), float("nan"), 3e-8, -3e-8]
LONG = collective.SHORT_BYTES // 4 + 7


def on_ranks(world, folder):
    """Start real ranks that run all cases; return what each case returned, by its name and by rank."""
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    commands = [[sys.executable, "-W", "error", __file__, str(folder), str(rank), str(world)] for rank in range(world)]
    ranks = [subprocess.Popen(one, stderr=subprocess.PIPE, text=True, env=environment) for one in commands]
    try:
        faults = [rank.communicate(timeout=60)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    if any(rank.returncode for rank in ranks):
        pytest.fail("\n".join(faults))
    by_rank = [pickle.loads((folder / f"{rank}.pickle").read_bytes()) for rank in range(world)]
    return {case: [done[case] for done in by_rank] for case in by_rank[0]}


def run_rank(folder, rank, world):
    torch.set_num_threads(1)
    timeout = dt.timedelta(seconds=20)
    store = dist.FileStore(str(folder / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timeout)
    cases = (inference, reduce_all, shapes, errors, in_groups, layers)
    done = {case.__name__: case(rank, world, None) for case in cases}
    if world == 2:
        other = dist.new_group(backend="cpu:gloo")
        assert dist.get_backend(other) != "gloo"
        for case in (inference, shapes, errors, layers):
            case(rank, world, other)
        never_called(rank, world)
    (folder / f"{rank}.pickle").write_bytes(pickle.dumps(done))
    dist.destroy_process_group()


@functools.cache
def numbers(rank, world, dtype, n):
    """The numbers of one rank: of floats every combination of special values over the ranks is among them."""
    drawn = torch.Generator().manual_seed(1000 + rank)
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        drawn_here = torch.randint(max(limits.min, -(2**40)), min(limits.max, 2**40), (n,), generator=drawn)
        return drawn_here.to(dtype)
    values = (torch.randn(n, generator=drawn, dtype=torch.float64) * 100).to(dtype)
    special = [combination[rank] for combination in itertools.product(SPECIAL, repeat=world)][:n]
    values[: len(special)] = torch.tensor(special, dtype=torch.float64).to(dtype)
    return values


def expected(kind, dtype, all_numbers):
    """Return the reduction of the ranks' numbers by NumPy: exact for integers, Max and Min, in 64 bits for floats."""
    if not dtype.is_floating_point:
        stacked = np.stack([one.numpy() for one in all_numbers])
        return {
            ReduceKind.SUM: lambda: stacked.sum(axis=0, dtype=stacked.dtype),
            ReduceKind.MAX: lambda: stacked.max(axis=0),
            ReduceKind.MIN: lambda: stacked.min(axis=0),
        }[kind]()
    stacked = np.stack([one.double().numpy() for one in all_numbers])
    with np.errstate(invalid="ignore"):
        if kind is ReduceKind.SUM:
            return stacked.sum(axis=0)
        if kind is ReduceKind.MEAN:
            return stacked.sum(axis=0) / len(stacked)
        best = (np.fmax if kind is ReduceKind.MAX else np.fmin).reduce(stacked, axis=0)
    negative = np.signbit(stacked) if kind is ReduceKind.MAX else ~np.signbit(stacked)
    zeros = np.where((negative | (stacked != 0)).all(axis=0), -0.0, 0.0)  # 0.0 is above -0.0
    return np.where(best == 0, zeros if kind is ReduceKind.MAX else -zeros, best)


def bits(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def reduce_all(rank, world, group):
    """Reduce every type by every kind, short and long; return the bits of the results."""
    done = []
    for dtype, kind in itertools.product(FLOATS + INTEGERS, KINDS):
        if kind is ReduceKind.MEAN and not dtype.is_floating_point:
            continue
        for n in (6_700, LONG) if dtype in {torch.float32, torch.int32, torch.float16} else (6_700,):
            own = numbers(rank, world, dtype, n)
            given = own.clone()
            result = all_reduce(group, given, kind)
            assert result is given
            check(result, kind, dtype, [numbers(one, world, dtype, n) for one in range(world)])
            done.append(hashlib.sha256(bits(result)).hexdigest())
    return done


def check(result, kind, dtype, all_numbers):
    wanted = expected(kind, dtype, all_numbers)
    name = f"{kind} of {dtype}"
    if not dtype.is_floating_point:
        assert result.dtype == dtype
        assert np.array_equal(result.numpy(), wanted), name
        return
    found = result.double().numpy()
    if kind in {ReduceKind.MAX, ReduceKind.MIN}:
        assert np.array_equal(found, wanted, equal_nan=True), name
        assert np.array_equal(np.signbit(found)[wanted == 0], np.signbit(wanted)[wanted == 0]), name
        return
    size = sum(one.double().abs() for one in all_numbers).numpy()
    added = torch.finfo(torch.float32 if dtype.itemsize < 8 else torch.float64).eps
    allowed = size * added * len(all_numbers) + np.abs(wanted) * torch.finfo(dtype).eps / 2 + 2.0**-24
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    with np.errstate(invalid="ignore"):
        assert (same | (np.abs(found - wanted) <= allowed)).all(), name


def shapes(rank, world, group):
    """Reduce what is empty, has no extents, is not contiguous, or wants a gradient."""
    assert all_reduce(group, torch.empty(0, 3), "sum").shape == (0, 3)
    assert all_reduce(group, torch.tensor(2.0 + rank), "max") == 1.0 + world
    whole = torch.zeros(6, 4)
    view = whole.t()[1:3, ::2]
    view.fill_(rank + 1.0)
    all_reduce(group, view, "sum")
    wanted = torch.zeros(6, 4)
    wanted.t()[1:3, ::2] = world * (world + 1) / 2
    assert torch.equal(whole, wanted)
    view.fill_(rank + 1.0)
    all_reduce(group, view, "min")
    assert torch.equal(view, torch.ones(2, 3))
    weight = torch.nn.Parameter(torch.full((3,), float(rank)))
    assert all_reduce(group, weight, "mean") is weight
    assert torch.equal(weight.detach(), torch.full((3,), (world - 1) / 2))
    assert weight.grad_fn is None
    long = torch.full((2, LONG), rank + 1.0).t()
    assert torch.equal(all_reduce(group, long, "max"), torch.full((LONG, 2), float(world)))
    assert torch.equal(all_reduce(group, torch.tensor([60_000.0]).half(), "mean"), torch.tensor([60_000.0]).half())


def errors(rank, world, group):
    """Meet every disagreement; after each the tensor is as it was, and the group still works."""
    first = rank == 0
    disagreements = [
        (torch.ones(5 if first else 6), "sum"),
        (torch.ones(LONG if first else 5), "sum"),
        (torch.ones(LONG + (1 if first else 0)), "max"),
        (torch.ones((2, 3) if first else (3, 2)), "sum"),
        (torch.ones(4, dtype=torch.float32 if first else torch.float64), "sum"),
        (torch.ones(4, dtype=torch.int64 if first else torch.float64), "max"),
        (torch.ones(4), "sum" if first else "mean"),
        (torch.ones(LONG), "max" if first else "min"),
        (torch.ones(0 if first else LONG), "sum"),
        (torch.ones([1] * 61 + ([2**20, 3] if first else [3, 2**20]), dtype=torch.uint8), "sum"),
    ]
    for tensor, kind in disagreements:
        before = tensor.clone()
        with pytest.raises(ClusterError, match=r"ranks \[0\] gave .*ranks \[1.* gave .*\[unequal-reduce\]"):
            all_reduce(group, tensor, kind)
        assert torch.equal(tensor, before)
        assert all_reduce(group, torch.ones(3), "sum").tolist() == [world] * 3
    refused = [
        (torch.ones(4, dtype=torch.bool), "sum", "bad-reduce-type"),
        (torch.ones(4, dtype=torch.complex64), "sum", "bad-reduce-type"),
        (torch.ones(4).to_sparse(), "sum", "bad-reduce-type"),
        (torch.ones(1).expand(4), "sum", "bad-reduce-type"),
        (torch.ones(4, dtype=torch.int64), "mean", "mean-of-integers"),
        (torch.ones(4).as_strided((3, 2), (1, 1)), "sum", "bad-reduce-type"),
        (torch.ones(4, device="meta"), "sum", "bad-reduce-type"),
        (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "sum", "bad-reduce-type"),
        (np.ones(4), "sum", "bad-reduce-type"),
        (None, "sum", "bad-reduce-type"),
        (torch.ones(4), "median", "bad-reduce"),
        (torch.ones(4), ["sum"], "bad-reduce"),
        (torch.ones(4), "\ud800", "bad-reduce"),
        (torch.ones(4), "x" * 999, "bad-reduce"),
    ]
    for tensor, kind, slug in refused:
        with pytest.raises(ArgumentError, match=slug):
            all_reduce(group, tensor, kind)
        for valid in (torch.ones(4), torch.ones(LONG)):
            with pytest.raises(ArgumentError if first else ClusterError, match=slug):
                all_reduce(group, *((tensor, kind) if first else (valid, "sum")))
        assert all_reduce(group, torch.ones(LONG), "sum")[-1] == world


def inference(rank, world, group):
    """Reduce tensors of inference mode inside and outside of it, on one rank or on all, and others after them."""
    own = (torch.ones, lambda n: torch.ones(2 * n).half()[::2])
    for n, made, kind in itertools.product((3, LONG), own, ("sum", "max")):
        with torch.inference_mode():
            of_all, of_one = made(n), made(n)
        for given in (of_all, of_one if rank == 0 else made(n), made(n)):
            assert all_reduce(group, given, kind) is given
            assert given[-1] == (world if kind == "sum" else 1)
        with torch.inference_mode():
            assert all_reduce(group, made(n), "sum")[-1] == world
            assert all_reduce(group, of_all, "min")[0] == (world if kind == "sum" else 1)


def in_groups(rank, world, group):
    """Reduce over a part of the ranks; those outside are told so."""
    low = dist.new_group([0, 1])
    if rank < 2:
        assert all_reduce(low, torch.tensor([rank + 1]), "sum").item() == 3
    else:
        with pytest.raises(ArgumentError, match="not-in-group"):
            all_reduce(low, torch.tensor([1]), "sum")
    assert all_reduce(None, torch.tensor([1]), "sum").item() == world


def layers(rank, world, group):
    return [split_layers(group, dtype) for dtype in (torch.float32, torch.float64)]


def split_layers(group, dtype):
    """Compare a split two-layer network with the whole one; sizes do not divide by the number of ranks."""
    torch.manual_seed(3)
    up, down = torch.nn.Linear(10, 37, dtype=dtype), torch.nn.Linear(37, 9, dtype=dtype)
    inputs = torch.randn(2, 5, 10, dtype=dtype)
    with torch.no_grad():
        whole = down(torch.relu(up(inputs)))
    columns, rows = shard_columns(up, group), shard_rows(down, group)
    assert columns.weight.shape[0] == rows.weight.shape[1] == len(share_of(37, group))
    split = rows(torch.relu(columns(inputs)))
    assert not split.requires_grad
    # A sum of n products in another order differs by n roundings of the sum of their sizes.
    with torch.no_grad():
        size = torch.nn.functional.linear(torch.relu(up(inputs)), down.weight.abs(), down.bias.abs())
    assert ((split - whole).abs() <= 2 * 37 * torch.finfo(dtype).eps * size).all()
    gathered = shard_columns(up, group, gather=True)(inputs)
    assert torch.allclose(gathered, up(inputs), rtol=1e-5 if dtype == torch.float32 else 1e-13, atol=1e-6)
    bare = torch.nn.Linear(10, 3, bias=False, dtype=dtype)
    assert shard_rows(bare, group).bias is shard_columns(bare, group).bias is None
    return bits(split)


def never_called(rank, world):
    """Leave one rank alone in a group: the group's timeout ends its wait, and other groups work on."""
    impatient = dist.new_group(timeout=dt.timedelta(seconds=1))
    all_reduce(impatient, torch.ones(4), "sum")
    if rank == 0:
        with pytest.raises(RuntimeError, match=r"[Tt]imed out"):
            all_reduce(impatient, torch.ones(4), "sum")
    assert all_reduce(None, torch.ones(4), "sum").tolist() == [world] * 4


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_reduce_as_numpy_does_and_disagree_on_every_rank(world, tmp_path):
    found = on_ranks(world, tmp_path)
    for case in ("reduce_all", "layers"):
        assert all(one == found[case][0] for one in found[case])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_one_rank_is_the_identity_with_the_same_checks(kind, dtype):
    own = numbers(0, 1, dtype, 50)
    given = own.clone()
    if kind is ReduceKind.MEAN and not dtype.is_floating_point:
        with pytest.raises(ArgumentError, match="a mean of integers is no integer"):
            all_reduce(None, given, kind)
        return
    assert all_reduce(None, given, kind) is given
    assert bits(given) == bits(own)


def test_one_rank_refuses_bool():
    with pytest.raises(ArgumentError, match=r"to\(torch.uint8\)"):
        all_reduce(None, torch.ones(2, dtype=torch.bool), ReduceKind.MAX)


def test_one_rank_has_the_whole_layers():
    layers(0, 1, None)


if __name__ == "__main__":
    run_rank(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
