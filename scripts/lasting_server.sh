#!/usr/bin/env bash
# The private server of `make server`, `make psql`, `make stop`, `make load`; its data are kept.
. "$(dirname "$0")/lib.sh"
state=$(state_dir)
dir=$state/server

write_env() {
    mkdir -p "$root/target"
    printf 'export PGHOST=%q PGPORT=5432 PGUSER=postgres PGDATABASE=postgres\n' "$socket" > "$root/target/server.env"
}

# Socket paths are limited to 107 bytes: a deep checkout keeps its socket in the temporary directory.
socket=$dir
if [ ${#dir} -gt 80 ]; then
    socket=${TMPDIR:-/tmp}/corgipile-socket-$(printf %s "$dir" | cksum | cut -d' ' -f1)
fi

case ${1:-} in
start)
    install_tree
    if [ ! -f "$dir/data/PG_VERSION" ]; then
        mkdir -p "$dir" "$socket"
        chmod 711 "$dir" "$socket"
        [ "$(id -u)" != 0 ] || chown "$(server_user)" "$dir" "$socket"
        init_server "$dir"
        as_server tee -a "$dir/data/postgresql.conf" >/dev/null <<CONF
shared_buffers = 2GB
max_wal_size = 4GB
unix_socket_directories = '$socket'
CONF
    fi
    mkdir -p "$socket"
    running=$(as_server "$PGBIN/pg_ctl" -D "$dir/data" status >/dev/null 2>&1 && echo yes || echo no)
    # A new build is only in force after a restart, since the library is preloaded.
    if [ "$running" = yes ] && [ "$PGLIB/corgipile.so" -nt "$dir/data/postmaster.pid" ]; then
        as_server "$PGBIN/pg_ctl" -D "$dir/data" -w -m fast stop >/dev/null
        running=no
    fi
    [ "$running" = yes ] || start_server "$dir"
    write_env
    . "$root/target/server.env"
    PGOPTIONS=-cclient_min_messages=warning "$PGBIN/psql" -qXc 'CREATE EXTENSION IF NOT EXISTS corgipile'
    ;;
stop)
    if [ -f "$dir/data/postmaster.pid" ]; then
        as_server "/usr/lib/postgresql/15/bin/pg_ctl" -D "$dir/data" -w -m fast stop >/dev/null 2>&1 || true
    fi
    rm -f "$root/target/server.env"
    ;;
psql)
    install_tree
    write_env
    . "$root/target/server.env"
    exec "$PGBIN/psql" -X
    ;;
load)
    install_tree
    . "$root/target/server.env"
    PATH=$PGBIN:$PATH exec "$root/scripts/load.sh" "$2" "$3" "${4:-0}"
    ;;
*) die "usage: lasting_server.sh start|psql|stop|load" ;;
esac
