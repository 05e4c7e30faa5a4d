"""Re-tuning: what is learned from traffic, and what is decided by it."""
