"""What a benchmark does with the control groups of slow_disk.sh."""
import os, subprocess


def group(controller, file, value):
    with open(f"/sys/fs/cgroup/{controller}/corgipile_bench/{file}", "w") as f:
        f.write(str(value))


def throttle(bytes_per_second, requests):
    """Limits the server's reads from its device; 0: no limit."""
    device = os.environ["SLOW_DISK"]
    group("blkio", "blkio.throttle.read_bps_device", f"{device} {bytes_per_second}")
    group("blkio", "blkio.throttle.read_iops_device", f"{device} {requests}")


def limit_memory(limit):
    """Limits the server's memory, the page cache of what it reads included; -1: no limit."""
    group("memory", "memory.limit_in_bytes", limit)


def read_ahead(kilobytes):
    """Sets how far the system reads ahead on the device; gives what it was. Linux's default is 128; a machine that has far more reads
    past the end of every block."""
    major, minor = os.environ["SLOW_DISK"].split(":")
    path = f"/sys/dev/block/{major}:{minor}/queue/read_ahead_kb"
    before = open(path).read().strip()
    with open(path, "w") as f:
        f.write(str(kilobytes))
    return before


def drop_caches():
    subprocess.run(["sync"], check=True)
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("1")


def restart():
    """Restarts the server, for settings that need it, in its control groups."""
    server = os.environ["PGHOST"]
    switch = ["runuser", "-u", subprocess.run(["stat", "-c", "%U", f"{server}/data"], capture_output=True, text=True).stdout.strip(), "--"]
    subprocess.run(switch + ["pg_ctl", "-D", f"{server}/data", "-l", f"{server}/log", "-w", "-m", "fast", "restart"], check=True, stdout=subprocess.DEVNULL)
    postmaster = open(f"{server}/data/postmaster.pid").readline().strip()
    for controller in ("blkio", "memory"):
        group(controller, "cgroup.procs", postmaster)
