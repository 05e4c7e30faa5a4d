"""The live policy: thresholds inside a stock llama-server, changed while it serves."""
