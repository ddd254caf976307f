"""Expressions: the computation of a row, its meaning, and its properties that hold without computing it."""
