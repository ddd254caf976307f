"""Sampling and serving workers: samples drawn in some processes, and served in others (Helios)."""
