"""A simple, slow computation of a model, and the allowed difference to it.

``reference`` computes a model on a whole graph and ``row_reference`` its row-wise operators; ``exactness``
judges results. None of this runs while a batch is applied.
"""
