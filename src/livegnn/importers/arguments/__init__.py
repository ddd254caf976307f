"""The arguments of a module or a program: their types, columns and widths."""
