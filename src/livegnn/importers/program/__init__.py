"""A module as an exported program in few operators, without changing the module; programs from files."""
