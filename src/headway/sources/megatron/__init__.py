"""Logs of Megatron-LM, Megatron-DeepSpeed and their forks."""
