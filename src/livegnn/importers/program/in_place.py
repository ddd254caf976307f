"""Replaces in-place operators of a program by operators that return a new tensor, if no result changes.

PyG sums into tensors that it has just made, as in ``x.new_zeros(...).scatter_add_(...)``. A program without
changes can be traced without torch's functionalization, which takes half of the time of a trace.
"""

from functools import cache

import torch
from torch import fx
from torch._ops import OpOverload


def without_changes(graph: fx.Graph) -> bool:
    """Replaces in-place operators where possible, in a graph of ATen operators. Returns whether none remain.

    A change of a tensor can be replaced if the tensor was made by an operator that returns a new one, if no
    other node shares its memory, and if nothing reads it as it was after the change.
    """
    place = {node: number for number, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if node.op in ("placeholder", "output") or (node.op == "get_attr" and is_tensor(node)):
            continue
        if node.op != "call_function":
            return False  # a graph within the graph
        if not isinstance(node.target, OpOverload):
            continue  # arithmetic of sizes
        if not node.target._schema.is_mutable:
            continue
        returning, changed = _returning(node.target), node.args[0]
        if returning is None or not isinstance(changed, fx.Node) or not _is_new(changed):
            return False
        others = [user for user in changed.users if user is not node]
        if any(place[user] > place[node] or not _is_new(user) for user in others):
            return False
        if not _keeps_type(node, changed):
            return False
        node.target = returning
    return True


def has_changes(graph: fx.Graph) -> bool:
    """Whether an operator of the graph changes one of its arguments."""
    targets = (node.target for node in graph.nodes)
    return any(isinstance(target, OpOverload) and target._schema.is_mutable for target in targets)


def is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _is_new(node: fx.Node) -> bool:
    """Whether the result shares no memory with another tensor."""
    return isinstance(node.target, OpOverload) and _makes_new(node.target)


@cache
def _makes_new(operator: OpOverload) -> bool:
    schema = operator._schema
    composed = torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd")
    aliased = any(one.alias_info is not None for one in (*schema.arguments, *schema.returns))
    return not composed and not aliased  # a composed operator, such as a reshape, may return its argument


@cache
def _returning(operator: OpOverload) -> OpOverload | None:
    """Returns the operator that returns the values that `operator` puts into its first argument, or None."""
    name = operator._schema.name.removeprefix("aten::")
    if operator.namespace != "aten" or not name.endswith("_") or name.endswith("__"):
        return None
    packet = getattr(torch.ops.aten, name[:-1], None)
    wanted = [(one.name, str(one.type)) for one in operator._schema.arguments]
    for overload in packet.overloads() if packet is not None else ():
        found: OpOverload = getattr(packet, overload)
        if [(one.name, str(one.type)) for one in found._schema.arguments] == wanted and _makes_new(found):
            return found
    return None


def _keeps_type(node: fx.Node, changed: fx.Node) -> bool:
    """Returns whether the results of the new operator have the changed tensor's type: all have one type."""
    kind = changed.meta["val"].dtype
    tensors = [arg.meta.get("val") for arg in node.all_input_nodes if arg is not changed]
    others = {one.dtype for one in tensors if isinstance(one, torch.Tensor)}
    return others <= {kind, torch.int64, torch.bool} and (kind.is_floating_point or others <= {kind})
