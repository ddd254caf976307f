"""Answers without a server that waits: a graph in object storage, and workers that start when asked."""
