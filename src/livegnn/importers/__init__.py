"""Imports a PyTorch module as a model, by reading its computation for every node. Needs torch.

`importing` (of a module) and `exported` (of a program) check the caller's `settings` and run the pipeline:
`arguments` finds the inputs, `program` traces the module, `reading` makes `expressions` of the program,
`rules` rewrite these, `writing` makes steps of them; `assembly` runs the last two. `check` compares model
and module on small graphs, `explanation` is a report.
"""
