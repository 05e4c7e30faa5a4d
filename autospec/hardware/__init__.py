"""A snapshot of GPUs, CPU and memory. Unknown is None, never a guess."""
