#!/usr/bin/env bash
# Runs pg_regress against a throw-away server; arguments are passed on (names of tests).
. "$(dirname "$0")/lib.sh"
install_tree
temporary_server
out=$root/target/pg_regress
mkdir -p "$out"
tests=(--schedule="$root/pg_regress/schedule")
[ $# -eq 0 ] || tests=("$@")
"$PGLIB/pgxs/src/test/regress/pg_regress" --bindir="$PGBIN" --inputdir="$root/pg_regress" --outputdir="$out" \
    --host="$PGHOST" --port="$PGPORT" --user="$PGUSER" --dbname=corgipile_regression --load-extension=corgipile \
    --max-connections=1 "${tests[@]}" && code=0 || code=$?
if [ "$code" != 0 ] && [ -f "$out/regression.diffs" ]; then head -200 "$out/regression.diffs"; fi
exit "$code"
