"""What a model says, slowly and obviously, and how far from it anything else may be.

``reference`` computes a model on a whole graph and ``row_reference`` its row-wise operators; ``exactness`` is
the judge. On the way of a batch none of it runs.
"""
