"""Tests that do not hold with the oldest PyTorch that LiveGNN takes, and why. `make lowest` skips them."""

from importlib import metadata
from typing import Final

IS_OLDEST: Final = metadata.version("torch").startswith("2.6.")

REASONS: Final = {
    "test_from_exported.py::test_the_number_of_nodes_as_an_argument": (
        "torch 2.6 exports no integer that varies"
    ),
    "test_importer_adversarial.py::test_is_read_as_it_is[channel_set_in_place]": (
        "torch 2.6 writes slice_scatter"
    ),
    "test_retracing.py::test_it_is_the_trace_that_runs_everything[placed]": "torch 2.6 does not trace it",
    "test_true_refusals.py::test_doing_what_a_refusal_says_removes_it[nodes of all types in one list]": (
        "torch 2.6 refuses it with another text"
    ),
    **dict.fromkeys(
        (
            "test_row_operators.py::test_the_oracle_says_what_torch_says[elu alpha=0.7-float64]",
            "test_row_operators.py::test_the_oracle_says_what_torch_says[elu alpha=0.7-float32]",
            "test_row_operators.py::test_the_core_says_what_torch_says[elu alpha=0.7]",
            "test_row_operators.py::test_what_is_not_finite_is_what_torch_says_in_float64[elu alpha=0.7]",
        ),
        "torch 2.6 gives 0 for the elu of small numbers",
    ),
}
"""File and test -> the reason."""
