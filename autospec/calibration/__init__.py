"""Measuring what a batch costs and what a draft is worth, and keeping the result."""
