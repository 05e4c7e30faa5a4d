"""Benchmarks that compare speculation settings fairly: interleaved, paired, with intervals."""
