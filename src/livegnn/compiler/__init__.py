"""From the steps of a model to the program that the native core runs.

In this order: ``lowering`` makes operations on rows and along edges of steps, ``messages`` those of messages
that read both ends of an edge, ``plan`` says which values are kept and what is computed together, and
``layout`` where values lie.
"""
