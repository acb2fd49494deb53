#!/usr/bin/env bash
# Builds the object stores that tests run against into .servers/bin: versitygw (S3) and tests/servers/gcs (GCS). Without Go it says
# so and ends well: tests that need these servers then skip with that reason, and moto, from the package registry, serves S3.
set -euo pipefail
cd "$(dirname "$0")/../.."
versitygw=github.com/versity/versitygw/cmd/versitygw@v1.8.0
fake_gcs=github.com/fsouza/fake-gcs-server
work=$PWD/.servers
source=$work/fake-gcs-server

if ! command -v go >/dev/null; then
    echo "make servers: there is no Go here, so versitygw (S3) and the GCS server are not built; tests that need them are skipped"
    exit 0
fi
mkdir -p "$work/bin"
if ! [ -e "$work/bin/versitygw" ] || [ "$(cat "$work/versitygw.version" 2>/dev/null)" != "$versitygw" ]; then
    echo "building versitygw, which takes minutes"
    GOBIN=$work/bin go install -trimpath -ldflags "-s -w" "$versitygw"
    echo "$versitygw" >"$work/versitygw.version"
fi

# fake-gcs-server takes no storage but its own two, an internal package: so one is replaced in a copy of its source.
echo "building the GCS server"
cd tests/servers/gcs
go mod download "$fake_gcs"
rm -rf "$source"
cp -r "$(go list -m -f '{{.Dir}}' "$fake_gcs")" "$source"
chmod -R u+w "$source"
cp _backend/*.go "$source/internal/backend/"
cp go.mod go.sum "$work/"
go mod edit -replace "$fake_gcs=$source" "$work/go.mod"
go build -modfile "$work/go.mod" -trimpath -ldflags "-s -w" -o "$work/bin/gcs-server" .
go build -trimpath -ldflags "-s -w" -o "$work/bin/latency-proxy" ./latency # for `make bench-storage`
touch "$work/.built"
