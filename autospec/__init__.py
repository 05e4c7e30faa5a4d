"""A supervisor for llama-server that tunes speculative decoding by measurement."""

__version__ = "0.1.0"
