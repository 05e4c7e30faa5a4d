"""The front door: one stable address before children that come and go."""
