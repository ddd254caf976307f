"""Predictions from a snapshot in object storage, in any process, without a server that waits."""
