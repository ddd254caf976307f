"""Answers without a server that waits for them: a graph in object storage, and workers that start when asked."""
