"""What kernels and operations of a trace are: compute, communication or copies, by what the trace calls them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

COMMUNICATION: Final[Mapping[str, str]] = {
    r"nccl|rccl": "NCCL, RCCL, and NCCLX: ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    r"mscclpp|mscclKernel": "MSCCL++, also where it is only what a kernel is given: allgather(mscclpp::…*), and MSCCL",
    r"nvshmem|rocshmem": "NVSHMEM: nvshmemi_barrier…, c10d::nvshmem_extension::allToAllV",
    r"oneccl": "oneCCL: oneccl_allreduce_pcie",
    r"(?:deep|hybrid)_ep::": "DeepEP: deep_ep::internode::dispatch, hybrid_ep::combine_kernel",
    r"cross_device_reduce_": "vLLM, SGLang, AITER, custom_all_reduce.cuh: vllm::cross_device_reduce_1stage",
    r"quickreduce::": "QuickReduce in vLLM, SGLang, AITER: quickreduce::allreduce_prototype_twoshot",
    r"allreduce_fusion_kernel": "TensorRT-LLM, FlashInfer, AITER: allreduce_fusion_kernel_oneshot_lamport",
    r"(?:one|two)shotallreduce": "TensorRT-LLM, FlashInfer, PyTorch's intra_node_comm: oneShotAllReduceKernel",
    r"c10d::(?:symmetric_memory|intra_node_comm)::": "PyTorch: c10d::symmetric_memory::barrier_kernel",
    r"(?:multimem|(?:one|two)_shot)_\w*all_(?:reduce|gather)\w*kernel": (
        "PyTorch, CUDASymmetricMemoryOps.cu: multimem_one_shot_all_reduce_kernel"
    ),
    r"userbuffers": "Transformer Engine, userbuffers.cu: kuserbuffers_pushsend, userbuffers_fp16_sum_inplace_gpu_rr_rs",
    r"memcpyp2p": "copies from one device to another, as XLA calls them",
}
"""What is in the names of kernels and copies that are communication, case aside, and whose they are.

Words such as ``all_reduce`` alone are not here: the compiler of PyTorch writes what it fused into a kernel's name.
"""
_KERNEL: Final = re.compile("|".join(COMMUNICATION), re.IGNORECASE)

_COLLECTIVE: Final = re.compile(
    r"%?(?:async-collective-(?:start|done)|all-reduce|all-gather|reduce-scatter|(?:ragged-)?all-to-all|collective-\w+"
    r"|(?:host )?(?:send|recv)|megacore fusion)(?![a-z])"
)
"""How XLA calls operations and kinds of operations that are communication.

Of a megacore fusion, as of a loop, what it holds is in the trace too; what is left of it is waiting for a collective on
the other core.
"""
_COPY: Final = re.compile(r"memcpy|memset|%?copy-(?:start|done)|%?infeed|%?outfeed", re.IGNORECASE)
_ASYNC: Final = frozenset({b"async-start", b"async-done"})
_CONTROL: Final = re.compile(r"%?(?:while|conditional|call)(?:[.\d]*)$")
_CATEGORY: Final = re.compile(rb'"hlo_category"\s*:\s*"([^"\\]{1,99})"')
_OPERATION: Final = re.compile(rb'"hlo_op"\s*:\s*"([^"\\]{1,99})"')
_OFFLOADED: Final = b'"OFFLOAD_COLLECTIVE"'
_GRAPH: Final = "CudaGraphExec"
MAX_KNOWN: Final = 1 << 16
"""So many names are remembered at most."""


def of_kernel(name: str) -> str:
    """Return whether a kernel is communication or compute.

    Args:
        name: What the trace calls it.

    Example:
        >>> of_kernel("void sglang::cross_device_reduce_1stage<__half, 8>"), of_kernel("triton_poi_fused_all_reduce")
        ('comm', 'compute')
    """
    return "comm" if _KERNEL.search(name) else "compute"


class Operations:
    """Tells what operations of XLA are.

    On a TPU the kind of an operation is with it, ``hlo_category``: a fusion may be one of a collective. On a GPU the
    operation is, ``hlo_op``, that a kernel was launched for.

    Attributes:
        graphs: Whether any was a whole graph of kernels, of which nothing tells what was in it.

    Example:
        >>> operations = Operations()
        >>> operations.of("fusion.3", b'{"hlo_category": "all-reduce-scatter fusion"}'), operations.of("fusion.3", b"")
        ('comm', 'compute')
    """

    def __init__(self) -> None:
        self.graphs = False
        self._known: dict[tuple[str, bytes], str] = {}

    def of(self, name: str, args: msgspec.Raw | bytes) -> str:
        """Return what an operation is; nothing where it only holds others.

        Args:
            name: What the trace calls it.
            args: What the trace says besides, as JSON.
        """
        found = _CATEGORY.search(args)
        if found is None:
            operation = _OPERATION.search(args)
            key = (name, b"" if operation is None else b"of " + operation[1])
        else:
            category = found[1]
            key = (name, _OFFLOADED if category in _ASYNC and _OFFLOADED in bytes(args) else category)
        kind = self._known.get(key)
        if kind is None:
            self.graphs |= name.startswith(_GRAPH)
            kind = _of_operation(name, key[1])
            if len(self._known) < MAX_KNOWN:
                self._known[key] = kind
        return kind


def _of_operation(name: str, told: bytes) -> str:
    """Return what an operation is by its name and its category, or ``of`` and the operation that it is of."""
    text = told.decode(errors="replace")
    if _COLLECTIVE.match(name) or _COLLECTIVE.match(text.removeprefix("of ")) or told == _OFFLOADED:
        return "comm"
    if of_kernel(name) == "comm":
        return "comm"
    if _COPY.match(name) or told in _ASYNC:
        return "copies"
    return "" if _CONTROL.match(name) or _CONTROL.match(text) else "compute"
