"""Says what this machine lacks to build LiveGNN, a line each, and ends with status 1; otherwise says nothing.

    python3 toolchain/machine.py demo|test

The Makefile runs it before it installs anything, with whatever Python there is. So any Python must understand
this file, and Python 3.6 the modules that it imports.
"""

import sys

OLDEST_PYTHON = (3, 11)


def old_python(version, executable):
    """What to say of a Python; None if it is new enough."""
    if version[:2] >= OLDEST_PYTHON:
        return None
    found = ".".join(map(str, version[:3])) + " (" + executable + ")"
    return "livegnn needs Python 3.11 or newer, found " + found + ": name a newer one with PYTHON=..."


def main(aim):
    missing = [old_python(sys.version_info, sys.executable)]
    if sys.version_info >= (3, 6):
        import requirements

        missing += requirements.missing(aim)
    missing = [line for line in missing if line]
    for line in missing:
        sys.stderr.write(line + "\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
