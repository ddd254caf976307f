"""Makes the modules beside this file, such as `streams`, importable from every test."""
