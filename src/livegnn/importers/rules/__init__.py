"""The numbered rules (docs/internals/rules.md): rewrites expressions so that messages read little and
structures can be kept whole.
"""
