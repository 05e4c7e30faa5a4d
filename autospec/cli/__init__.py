"""Commands: one file each, no logic of their own."""
