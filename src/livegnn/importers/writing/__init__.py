"""Writes expressions as steps of a model, equal expressions once."""
