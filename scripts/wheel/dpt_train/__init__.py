"""The program `dpt` as a Python package, so that pip can install it. It has no Python API."""
