#!/usr/bin/env bash
# Runs a server with S3 as its object store against a local server of the same protocol (moto, from PyPI), by hand:
#   cargo build -p highwater --features s3 && interop/s3/run.sh
# Needs python3 with venv, and PyPI. HIGHWATER names another program than the debug build, MOTO a moto_server that is
# there. Ends with 0 and "s3: sound" if everything held.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
highwater=${HIGHWATER:-$root/target/debug/highwater}
folder=$(mktemp -d)
port=${PORT:-14437} s3_port=${S3_PORT:-15437}
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
fail() { echo "s3: $*" >&2; sed -n '$p' "$folder/server.log" >&2 || true; exit 1; }

moto=${MOTO:-}
if [ -z "$moto" ]; then
    python3 -m venv "$folder/venv"
    "$folder/venv/bin/pip" install -q 'moto[server]==5.*'
    moto=$folder/venv/bin/moto_server
fi
export AWS_ACCESS_KEY_ID=interop AWS_SECRET_ACCESS_KEY=not-to-be-logged AWS_REGION=us-east-1
export AWS_ENDPOINT_URL=http://127.0.0.1:$s3_port AWS_ALLOW_HTTP=true
"$moto" -H 127.0.0.1 -p "$s3_port" >"$folder/moto.log" 2>&1 &
moto_pid=$!
pids+=("$moto_pid")
for _ in $(seq 100); do curl -fsS -o /dev/null "$AWS_ENDPOINT_URL/moto-api/" 2>/dev/null && break; sleep 0.2; done
curl -fsS -o /dev/null -X PUT "$AWS_ENDPOINT_URL/archive" || fail "the bucket could not be made"

place=s3://archive/prefix
url=http://127.0.0.1:$port
start() {
    "$highwater" serve --data "$folder/data" --listen "127.0.0.1:$port" --groups 1 --object-store "$place" \
        --object-store-local-bytes 0 --log debug 2>>"$folder/server.log" &
    pid=$!
    pids+=("$pid")
    for _ in $(seq 100); do curl -fsS -o /dev/null "$url/readyz" 2>/dev/null && return; sleep 0.2; done
    fail "the server does not start"
}
status() { curl -fsS "$url/v1/admin/status" | python3 -c "import json,sys; print(json.load(sys.stdin)['node']['object_store']['$1'])"; }

"$highwater" check-config --data "$folder/data" --object-store "$place" || fail "check-config"
start
"$highwater" stream create "$url/v1/stream/films" >/dev/null
for part in 1 2 3 4 5; do
    head -c 30000000 /dev/urandom | tee -a "$folder/expected" | "$highwater" stream append "$url/v1/stream/films" >/dev/null
done
for _ in $(seq 60); do [ "$(status moved_files)" -ge 2 ] && break; sleep 1; done
[ "$(status moved_files)" -ge 2 ] || fail "nothing moved: $(status last_error)"
"$highwater" stream read "$url/v1/stream/films" | cmp - "$folder/expected" || fail "what is read is not what was written"
kill -TERM "$pid" && wait "$pid" || fail "the end was not clean"
start
"$highwater" stream read "$url/v1/stream/films" | cmp - "$folder/expected" || fail "after a restart it reads otherwise"
"$highwater" backup "$url" "$folder/backup" >/dev/null || fail "no backup"

# Another cluster keeps off.
"$highwater" serve --data "$folder/other" --listen 127.0.0.1:0 --object-store "$place" 2>"$folder/other.log" && fail "another cluster started"
grep -q "is the object store of cluster" "$folder/other.log" || fail "the reason is not told"

# Gone: what lies there waits, what is here does not.
kill "$moto_pid" && wait "$moto_pid" 2>/dev/null || true
code=$(curl -s -o "$folder/answer" -w '%{http_code}' "$url/v1/stream/films?offset=00000000000000000000")
[ "$code" = 503 ] && grep -q COLD_BACKPRESSURE "$folder/answer" || fail "without it a read is answered $code"
echo more | "$highwater" stream append "$url/v1/stream/films" >/dev/null || fail "without it nothing is written"
grep -q not-to-be-logged "$folder/server.log" && fail "the secret is in the log"
echo "s3: sound ($(status moved_files) files moved, $(status files) lie there)"
