"""Expressions: how a row is computed, what that means, and what is known of it without computing it."""
