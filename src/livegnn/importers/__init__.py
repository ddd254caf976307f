"""From a PyTorch module to what it computes for every node, whatever layers it is made of. Needs torch.

Read in this order: ``expressions`` (what a row is made of), ``values`` (tensors as pieces of rows),
``arguments``, ``export``, ``decompositions`` and ``reader`` (a module as an exported program, that in few
operators, and these as expressions, by ``operators``, ``shape_operators`` and ``row_operators``),
``normal_form`` and ``edge_rules`` (the rules), ``classes`` (what each propagation reads), ``explanation``
(for people). ``copying`` is why a module is as it was afterwards. ``exported``, ``naming`` and
``program_file`` begin with a program instead of a module. ``interpreter`` says what expressions mean,
``evaluation`` what one operation does to tensors, ``facts`` what is known of expressions.

What follows makes a model of the normal form, in which each ``scatter`` along edges has one piece, unless it
is an extremum over edges and own rows, and reads its target only where it must: ``relations``, ``own_loops``
and ``softmaxes`` find what the engine keeps as a whole, ``joining`` several aggregates of one message;
``lowering`` and ``row_steps`` write steps, equal expressions once; ``fusion`` joins some; ``assembly`` is the
whole way. ``importing`` is the face: ``settings`` checks what callers say, ``declared`` finds what the module
is called with, ``widths`` what nobody tells, ``proposed`` asks for layers that cannot be read, and ``check``
holds the model against the module on small graphs. ``proposal`` needs no torch: convolutions that something
else proposes, verified.
"""
