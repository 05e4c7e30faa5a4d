"""The main job on a small real model pair that anybody can have in a minute."""
