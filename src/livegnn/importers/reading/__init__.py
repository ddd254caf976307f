"""Reads an exported program as expressions: a small function for each operator, checked against torch."""
