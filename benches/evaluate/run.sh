#!/usr/bin/env bash
# The papers' evaluation on this machine: writes docs/evaluation/README.md and its figures.
#   SCALE=1 benches/evaluate/run.sh        tables of SCALE times 4,000 to 300,000 tuples
# What was measured is kept in target/evaluate and not measured again; delete that to begin anew.
. "$(dirname "$0")/../../scripts/lib.sh"
"$root/scripts/setup.sh"
"$root/scripts/build.sh"
install_tree
venv=$root/target/evaluate-venv
if ! "$venv/bin/python" -c 'import numpy' 2>/dev/null; then
    python3 -m venv "$venv" || die "python3-venv is needed"
    "$venv/bin/pip" -q install numpy
fi
temporary_server "shared_buffers = 2GB" "max_wal_size = 8GB" "autovacuum = off" "jit = off" "max_parallel_workers_per_gather = 0"
export PATH=$PGBIN:$PATH

. "$root/benches/slow_disk/slow_disk.sh"
"$venv/bin/python" "$root/benches/evaluate/evaluate.py" "$root" "${SCALE:-1}"
