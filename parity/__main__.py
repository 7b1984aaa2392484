"""`python -m parity`: the same as the command `parity`."""

from parity.cli.main import entry

if __name__ == "__main__":
    entry()
