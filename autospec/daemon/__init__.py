"""Supervision: one owner for each child, re-tune decisions, the control socket."""
