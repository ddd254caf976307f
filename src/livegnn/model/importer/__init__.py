"""From a PyTorch module to what it computes for every node, whatever layers it is made of. Needs torch.

Read in this order: ``expressions`` (what a row is made of), ``values`` (tensors as pieces of rows),
``arguments``, ``export``, ``decompositions`` and ``reader`` (a module as an exported program, that in few
operators, and these as expressions, by ``operators``, ``shape_operators`` and ``row_operators``),
``normal_form`` and ``edge_rules`` (the rules), ``classes`` (what each propagation reads), ``explanation``
(for people). ``exported`` and ``program_file`` begin with a program instead of a module. ``interpreter`` says
what expressions mean, ``facts`` what is known of them.

What lowering will take from the normal form. It is a graph of expressions in which each ``scatter`` along
edges has one piece, unless it is an extremum over edges and own rows, and reads its target only where it
must:

* A row-wise expression of nodes becomes row-wise steps, in the order of `expressions.walk`; equal ones are
  one expression, so counts and contexts that layers share are one step.
* ``scatter("sum")`` of 1 is a count: a step's ``neighbor_context``. The mask tells ``skip_loops``; an own
  loop is a term of the target beside the sum, which is `Propagate.own_message`, or the weight of a loop.
* ``scatter`` of a gathered row is a plain propagate step; with a factor of edges it has that as
  ``"weight"`` or ``"coefficient"``.
* ``sum exp_shifted(l) * v`` over ``sum exp_shifted(l)`` is a softmax, as `classes` has shown that only their
  quotient is used: the coefficients' logits are l, the values v, the combine ``"divide"``. The shift, and
  with it the maximum that it reads, is the engine's own affair and has no step.
* Any other message is row-wise steps on edges between ``source``, ``target`` and ``propagate``.
* ``scatter`` to no atom is a reduction over all rows, which no step does yet.
"""
