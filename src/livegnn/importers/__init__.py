"""Imports a PyTorch module as a model, by reading what it computes for every node. Needs torch.

Read the modules in this order: ``expressions`` (the expression of a row), ``values`` (tensors as pieces of
rows), ``arguments``, ``export``, ``decompositions`` and ``reader`` (a module as an exported program, in few
operators, and these as expressions, by ``operators``, ``shape_operators`` and ``row_operators``),
``marks``, ``normal_form`` and ``edge_rules`` (the rules), ``classes`` (the reads of each propagation),
``explanation`` (a report for the user). ``copying`` keeps the module unchanged, ``tracing`` replaces
functions of torch and PyG during a trace, ``in_place`` and ``retracing`` shorten the second one.
``exported``, ``naming`` and ``program_file`` begin with a program instead of a module. ``failures`` says why
a module cannot be traced.
``interpreter`` defines the meaning of expressions, ``evaluation`` the effect of one operation on tensors,
``facts`` properties of expressions.

The other modules make a model from the normal form. There, each ``scatter`` along edges has one piece, unless
it is an extremum over edges and own rows, and reads its target only if it must. ``relations``, ``own_loops``
and ``softmaxes`` find structures that the engine keeps as a whole, ``joining`` finds several aggregates of
one message; ``lowering`` and ``row_steps`` write steps, equal expressions once; ``fusion`` joins steps;
``assembly`` runs all of this. ``importing`` is the entry point: ``settings`` checks the caller's arguments,
``declared`` finds the module's arguments, ``widths`` finds unknown widths, ``proposed`` asks a proposer for
layers that cannot be read, ``check`` compares the model with the module on small graphs, ``left_out``
refuses arguments that were left out although something reads them, as ``watching`` tells, and ``asked``
columns that PyG data lack. ``proposal`` verifies proposed convolutions, without torch.
"""
