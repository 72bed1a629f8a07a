"""Megatron-LM and Megatron-DeepSpeed: what they print while they train."""

from headway.sources.megatron.source import Megatron, read

__all__ = ["Megatron", "read"]
