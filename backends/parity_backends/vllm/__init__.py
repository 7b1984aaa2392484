"""vLLM: on this processor, on NVIDIA GPUs, on Ascend NPUs. One worker program for all three."""
