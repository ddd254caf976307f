"""The quality of a model: labels that arrive late, beside the predictions that were given at the time."""
