"""Pure mathematics of speculative decoding: no I/O, no clock, no processes."""
