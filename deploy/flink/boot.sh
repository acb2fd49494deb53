#!/bin/sh
# Starts Beam's Python worker; a Flink TaskManager calls it with --id and --provision_endpoint (PROCESS environment).
# The virtual environment is $SHARDWRIGHT_VENV, or .venv of this checkout.
here="$(cd "$(dirname "$0")" && pwd)"
exec "${SHARDWRIGHT_VENV:-$here/../../.venv}/bin/python" "$here/boot.py" "$@"
