"""Compiles the steps of a model to the program that the native core runs.

In this order: ``lowering`` turns steps into operations on rows and along edges, ``messages`` does so for
messages that read both ends of an edge, ``plan`` chooses which values are kept and what is computed together,
and ``layout`` assigns the places of values.
"""
