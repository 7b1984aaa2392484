#!/bin/sh
# Print the pins of parity's own environment: what a fresh `pip install .[dev]` brings today.
#
#     sh tools/lock_dev.sh PYTHON > constraints.txt
#
# (`make lock`. The engine environment has pins of its own: tools/lock_engine.py.)
set -eu
python=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM
"$python" -m venv "$folder"
pip="$folder/bin/python -m pip --disable-pip-version-check --no-input"
$pip install -q hatchling editables >&2
$pip install -q --no-build-isolation -e '.[dev]' >&2
echo "# parity's own environment, with its tests and build backend; made by \`make lock\`."
$pip freeze --exclude-editable
