#!/usr/bin/env bash
# Throw-away servers for tests and demo.
#   server.sh new DIR [SETTING...]   makes and starts a server, socket in DIR
#   server.sh start DIR              starts it again
#   server.sh stop DIR [MODE]        stops it (fast, immediate, smart)
#   server.sh standby DIR PRIMARY    makes and starts a streaming standby of the server in PRIMARY
#   server.sh bin                    prints where the server's programs are
. "$(dirname "$0")/lib.sh"
install_tree
case ${1:-} in
new)
    dir=$2; shift 2
    mkdir -p "$dir"
    chmod 711 "$dir"
    [ "$(id -u)" != 0 ] || chown "$(server_user)" "$dir"
    init_server "$dir"
    printf '%s\n' "fsync = off" "$@" | as_server tee -a "$dir/data/postgresql.conf" >/dev/null
    start_server "$dir"
    ;;
start) start_server "$2" ;;
stop)
    as_server "$PGBIN/pg_ctl" -D "$2/data" -w -t 60 -m "${3:-fast}" stop >/dev/null 2>&1 || true
    ;;
standby)
    dir=$2
    mkdir -p "$dir"
    chmod 711 "$dir"
    [ "$(id -u)" != 0 ] || chown "$(server_user)" "$dir"
    as_server "$PGBIN/pg_basebackup" -h "$3" -p 5432 -U postgres -D "$dir/data" -R -c fast >"$dir/backup.log" 2>&1 \
        || { cat "$dir/backup.log" >&2; die "pg_basebackup failed"; }
    as_server tee -a "$dir/data/postgresql.conf" >/dev/null <<<"unix_socket_directories = '$dir'"
    start_server "$dir"
    ;;
bin) echo "$PGBIN" ;;
*) die "usage: server.sh new|start|stop|standby|bin" ;;
esac
