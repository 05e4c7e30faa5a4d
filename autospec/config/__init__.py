"""`autospec.toml`: its schema, loading with file:line faults, and editing that keeps comments."""
