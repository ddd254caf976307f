"""Which arguments a module or a program takes: their types, columns and widths."""
