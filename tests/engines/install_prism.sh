#!/bin/sh
# Build Prism, the runner that Beam's DirectRunner picks, in .engines/prism: of the version of the installed Beam.
# Needs Go. About 4 minutes of CPU, 1.5 GB of Go's caches (kept in its usual places), a binary of 45 MB.
set -eu
cd "$(dirname "$0")/../.."
target="$PWD/.engines/prism"
version="v$(${PYTHON:-.venv/bin/python} -c 'from importlib.metadata import version; print(version("apache-beam"))')"
[ "$(cat "$target/version" 2>/dev/null)" = "$version" ] && [ -x "$target/prism" ] && exit 0
if ! command -v go >/dev/null; then
    echo "Prism $version is built from its Go module, and there is no Go here: install Go 1.26 or later (https://go.dev/dl)" >&2
    exit 1
fi
mkdir -p "$target"
rm -f "$target/version"
GOBIN="$target" CGO_ENABLED=0 go install -trimpath -ldflags="-s -w" "github.com/apache/beam/sdks/v2/go/cmd/prism@$version"
echo "$version" >"$target/version"
