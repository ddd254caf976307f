"""The common part of all HTTP processes of LiveGNN, below server, workers and functions."""
