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

# A slow disk: the server in control groups (version 1) that throttle reads from the device of its data
# directory and leave it little memory for the page cache. Only root can do that.
group=/sys/fs/cgroup/%s/corgipile_evaluate
export SLOW_DISK=
device=$(lsblk -no MAJ:MIN "$(df --output=source "$SERVER" | tail -1)" 2>/dev/null | head -1 | tr -d ' ')
if [ "$(id -u)" = 0 ] && [ -n "$device" ] && [ -w /proc/sys/vm/drop_caches ] \
    && mkdir -p "$(printf $group blkio)" "$(printf $group memory)" 2>/dev/null \
    && [ -w "$(printf $group blkio)/blkio.throttle.read_bps_device" ]; then
    export SLOW_DISK="$device"
    for controller in blkio memory; do
        echo "$(head -1 "$SERVER/data/postmaster.pid")" > "$(printf $group $controller)/cgroup.procs"
    done
    trap 'stop_server "$SERVER"; rm -rf "$SERVER"; sleep 1; rmdir "$(printf $group blkio)" "$(printf $group memory)" 2>/dev/null' EXIT
else
    echo "no throttled disk here (it needs root and control groups version 1 for blkio and memory): those runs are skipped"
fi
"$venv/bin/python" "$root/benches/evaluate/evaluate.py" "$root" "${SCALE:-1}"
