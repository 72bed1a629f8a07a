"""What kernels, copies and operations of traces are, by what PyTorch and XLA call them."""

import gzip
import json

import pytest

from headway.sources import load_all
from headway.sources.kineto.source import facts


def of(tmp_path, data, name="trace.json"):
    (tmp_path / name).write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    return tmp_path / name


def kernel(start, length, name="gemm", pid=0, tid=7, cat="kernel"):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": length, "args": {}}


def xla(device, lines, *events):
    """Return a trace of a device of XLA: events are a line, a name, start, length and args."""
    named = [{"ph": "M", "pid": 1, "tid": n, "name": "thread_name", "args": {"name": one}} for n, one in lines.items()]
    process = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": device}}
    done = [
        {"ph": "X", "pid": 1, "tid": line, "name": name, "ts": start, "dur": length, "args": args}
        for line, name, start, length, args in events
    ]
    return {"traceEvents": [*done, process, *named, {}]}


TPU_LINES = {1: "XLA Ops", 2: "Async XLA Ops"}


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("fusion.3", {"hlo_category": "all-reduce-scatter fusion", "long_name": "%fusion.3 = bf16[8] fusion()"}),
        ("fusion.4", {"long_name": 'of "hlo_category": "loop fusion"', "hlo_category": "all-gather fusion"}),
        ("async-collective-done.2", {"hlo_category": "async-done"}),
        ("async-collective-start", {"hlo_category": "async-start"}),
        ("reduce-scatter.3.call-done", {"hlo_category": "custom-call"}),
        ("sort_offload.7", {"hlo_category": "async-done", "offload_type": "OFFLOAD_COLLECTIVE"}),
        ("tuple.1", {"hlo_category": "host send-done"}),
        ("collective-permute-done.9", {}),
    ],
)
def test_what_a_tpu_calls_a_collective(tmp_path, name, args):
    steps = [(1, "fusion.1", 0, 60, {"hlo_category": "convolution fusion"}), (1, name, 60, 40, args)]
    found = facts(of(tmp_path, xla("/device:TPU:0", TPU_LINES, *steps)))
    assert (found.compute_ns, found.comm_ns, found.exposed_ns) == (60000, 40000, 40000)


@pytest.mark.parametrize(
    ("name", "args", "kind"),
    [
        ("fusion.3", {"hlo_category": "loop fusion", "long_name": "%fusion.3 = fusion(%all-reduce.3)"}, "compute_ns"),
        ("async-collective-fusion.1", {"hlo_category": "convolution fusion"}, "compute_ns"),
        ("all-reducer", {}, "compute_ns"),
        ("slice-done.4", {"hlo_category": "async-done"}, "copies_ns"),
        ("copy-done.4", {"hlo_category": "copy-done"}, "copies_ns"),
    ],
)
def test_what_a_tpu_calls_something_else(tmp_path, name, args, kind):
    found = facts(of(tmp_path, xla("/device:TPU:0", TPU_LINES, (1, name, 0, 40, args))))
    assert (getattr(found, kind), found.busy_ns, found.comm_ns) == (40000, 40000, 0)


def test_one_name_of_two_kinds(tmp_path):
    steps = [(1, "fusion.3", 0, 60, {"hlo_category": "loop fusion"})]
    steps += [(1, "fusion.3", 60, 40, {"hlo_category": "all-reduce fusion"})]
    assert facts(of(tmp_path, xla("/device:TPU:0", TPU_LINES, *steps))).exposed_ns == 40000


def test_what_holds_other_operations_is_none_itself(tmp_path):
    steps = [(1, name, 0, 90, {"hlo_category": "while"}) for name in ("while.3", "body.loop")]
    steps += [(1, "fusion.1", 0, 50, {}), (1, "all-gather.1", 50, 40, {})]
    assert facts(of(tmp_path, xla("/device:TPU:0", TPU_LINES, *steps))).exposed_ns == 40000


def test_what_is_moved_meanwhile_hides_no_communication(tmp_path):
    steps = [(1, "fusion.1", 0, 50, {}), (1, "all-gather-done.1", 50, 40, {})]
    steps += [(2, "slice-start.2", 20, 60, {}), (2, "async-start.5", 30, 50, {}), (2, "all-gather-start.1", 10, 80, {})]
    found = facts(of(tmp_path, xla("/device:TPU:0", TPU_LINES, *steps)))
    assert (found.compute_ns, found.comm_ns, found.exposed_ns, found.copies_ns) == (50000, 80000, 40000, 60000)


def test_what_a_sparse_core_does_meanwhile_hides_no_communication(tmp_path):
    events = xla("/device:TPU:12", TPU_LINES, (1, "fusion.1", 0, 50, {}), (1, "all-gather-done.1", 50, 40, {}))
    sparse = xla("/device:TPU:12 SparseCore 0", TPU_LINES, (1, "fusion.7", 0, 99, {}))["traceEvents"]
    events["traceEvents"] += [event | {"pid": 2} for event in sparse if event]
    found = facts(of(tmp_path, events))
    assert (found.span_ns, found.compute_ns, found.exposed_ns) == (90000, 50000, 40000)


GPU_LINES = {1: "Stream #14(Compute)", 2: "Stream #15(MemcpyP2P)"}


def test_what_a_kernel_of_xla_was_launched_for(tmp_path):
    steps = [(1, "loop_add_fusion", 0, 50, {"hlo_op": "while.3"}), (1, "AllReduceKernel", 50, 20, {"hlo_op": "add.1"})]
    steps += [(1, "RaggedKernel", 70, 20, {"hlo_module": "jit_f", "hlo_op": "ragged-all-to-all-start.1"})]
    steps += [(2, "MemcpyP2P", 90, 10, {})]
    found = facts(of(tmp_path, xla("/device:GPU:0", GPU_LINES, *steps)))
    assert (found.compute_ns, found.exposed_ns, found.copies_ns) == (70000, 30000, 0)


@pytest.mark.parametrize("named_last", [False, True])
def test_steps_of_xla_on_a_gpu_begin_with_what_their_host_launched(tmp_path, named_last):
    events = [{"ph": "M", "pid": 2, "name": "process_name", "args": {"name": "/host:CPU"}}]
    for n in range(3):  # the host is ahead of the device
        mark = {"name": "train", "ts": 10 * n + 1, "dur": 9, "args": {"step_num": str(n)}}
        launch = {"name": "cuLaunchKernel", "ts": 10 * n + 5, "dur": 1, "args": {"correlation_id": str(n)}}
        events += [{"ph": "X", "pid": 2, "tid": 1} | one for one in (mark, launch)]
    kernels = [(1, "fusion", 100 * n + 8, 90, {"correlation_id": str(n), "hlo_op": "fusion.1"}) for n in range(3)]
    kernels.append((2, "MemcpyH2D", 4, 2, {"correlation_id": "0"}))
    trace = xla("/device:GPU:0", GPU_LINES, *kernels)["traceEvents"]
    (run,) = load_all([of(tmp_path, {"traceEvents": [*trace, *events[:: -1 if named_last else 1]]})])
    rows = run.processes[0].rows
    assert rows.step.tolist() == [0, 1, 2]
    assert rows.start.tolist() == [4000, 108000, 208000]


def test_a_graph_that_is_one_event_is_told(tmp_path):
    (run,) = load_all([of(tmp_path, xla("/device:GPU:0", GPU_LINES, (1, "CudaGraphExec:2", 0, 50, {})))])
    assert any("CudaGraphExec" in text for text in run.warnings)


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclSymkDevKernel_AllGather_STMC(ncclSymkDevWorkArgs4K)",
        "void deep_ep::internode::dispatch<false, 4>(int4*, float*)",
        "void hybrid_ep::combine_kernel<64>(hybrid_ep::combine_kernel_param_t)",
        "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "_ZN5aiter26cross_device_reduce_1stageIDF16bLi8EEEv",
        "quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half, 4>, true>, __half>",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(Pattern)1, 8>(Params)",
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<float, 8>(AllReduceParams)",
        "void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
        "void (anonymous namespace)::two_shot_all_reduce_kernel<float, 16, 8>(float**)",
        "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int)",
        "void c10d::nvshmem_extension::allToAllV<true>(void*)",
        "allgather(mscclpp::SmChannelDeviceHandle*, mscclpp::DeviceSyncer*, unsigned long)",
        "kuserbuffers_pushsend(int*, int*, int4*, int4*, int)",
        "oneccl_allreduce_pcie",
    ],
)
def test_kernels_of_other_libraries_that_communicate(tmp_path, name):
    found = facts(of(tmp_path, [kernel(0, 60), kernel(60, 40, name)]))
    assert (found.compute_ns, found.exposed_ns) == (60000, 40000)


@pytest.mark.parametrize(
    "name",
    [
        "triton_poi_fused_add_all_reduce_wait_tensor_0",
        "void at::native::reduce_kernel<512, 1>(at::native::ReduceOp<float>)",
        "void at::native::vectorized_gather_kernel<16, long>(char*)",
        "moe_dispatch_permute_kernel",
    ],
)
def test_kernels_that_only_sound_so(tmp_path, name):
    assert facts(of(tmp_path, [kernel(0, 60, name)])).compute_ns == 60000


def test_copies_from_one_device_to_another_are_communication(tmp_path):
    copies = [kernel(10 * n, 10, f"Memcpy {how}", cat="gpu_memcpy") for n, how in enumerate(("PtoP (D)", "DtoD (D)"))]
    found = facts(of(tmp_path, [*copies, kernel(20, 10)]))
    assert (found.exposed_ns, found.copies_ns, found.busy_ns) == (10000, 10000, 30000)


@pytest.mark.parametrize(
    "cat", ["cuda_sync", "overhead", "gpu_user_annotation", "collective_comm", "cuda_profiler_range", "gpu_pm_counter"]
)
def test_what_is_no_work_of_a_device(tmp_path, cat):
    other = kernel(0, 500, "Stream Wait Event", cat=cat, tid=-1) | {"args": {"stream": -1, "device": 0}}
    found = facts(of(tmp_path, [kernel(10, 5), other, kernel(20, 5)]))
    assert (found.span_ns, found.busy_ns) == (15000, 10000)


def test_a_step_that_is_one_graph_begins_with_its_first_kernel(tmp_path):
    events = [kernel(1000 * n, 900, f"ProfilerStep#{n}", 9, 9, "user_annotation") for n in (1, 2)]
    for n in (1, 2):
        events.append(kernel(1000 * n + 10, 5, "cudaGraphLaunch", 9, 9, "cuda_runtime") | {"args": {"correlation": n}})
        events += [kernel(1000 * n + 50 * k, 50) | {"args": {"correlation": n, "graph id": 7}} for k in range(2, 9)]
    (run,) = load_all([of(tmp_path, events)])
    assert run.processes[0].rows.start.tolist() == [1100000, 2100000]


def test_what_jax_wrote_once_more_for_perfetto_counts_once(tmp_path):
    trace = xla("/device:TPU:0", TPU_LINES, (1, "fusion.1", 3.5, 50, {}), (1, "all-gather.1", 60, 40, {}))
    of(tmp_path, gzip.compress(json.dumps(trace).encode()), "host.trace.json.gz")
    of(tmp_path, gzip.compress(json.dumps(trace, indent=0).encode()), "perfetto_trace.json.gz")
    (run,) = load_all([tmp_path])
    assert any("perfetto_trace" in text for text in run.warnings)
