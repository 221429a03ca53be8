# A slow disk without having one; to be sourced once a temporary server runs.
#
# Puts the server into control groups (version 1) that can throttle reads from the device of its data
# directory and leave it little memory for the page cache. Only root can do that. Sets SLOW_DISK to the
# device, or to nothing where it cannot be done.
group=/sys/fs/cgroup/%s/corgipile_bench
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
