"""Importers: from a framework's trained module to a `Model`."""
