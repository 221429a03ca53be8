#!/usr/bin/env bash
# How good the plan is: predicted against measured throughput, and the automatic configuration against a
# grid of them. Writes docs/plumber.md; minutes.
. "$(dirname "$0")/../../scripts/lib.sh"
"$root/scripts/setup.sh"
"$root/scripts/build.sh"
install_tree
temporary_server "shared_buffers = 1GB" "max_wal_size = 8GB" "autovacuum = off" "jit = off" "max_parallel_workers_per_gather = 0"
export PATH=$PGBIN:$PATH
. "$root/benches/slow_disk/slow_disk.sh"
python3 "$root/benches/plumber/plumber.py" "$root"
