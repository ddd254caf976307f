"""Layers that cannot be read, replaced by convolutions that something else proposes and that are verified."""
