"""The numbered rules: rewrites expressions so that messages read little and structures can be kept whole."""
