# Shared by the scripts: where things are, and how servers are started and stopped.
#
# PostgreSQL is used from a private copy of its installation tree under target/ (binaries copied,
# the rest linked): servers find the extension there, and nothing is written to the system's own
# directories. PostgreSQL refuses to run as root, so root runs it as an unprivileged user.

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
pg_config=${PG_CONFIG:-/usr/lib/postgresql/15/bin/pg_config}
export PGRX_PG_CONFIG_PATH=$pg_config
# Clients must not pick up the caller's connection settings or startup file.
unset PGHOST PGPORT PGUSER PGDATABASE PGPASSWORD PGOPTIONS PGSERVICE || true
export PSQLRC=/dev/null

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# The user that servers run as: ourselves, unless we are root.
server_user() {
    if [ "$(id -u)" != 0 ]; then id -un
    elif id postgres >/dev/null 2>&1; then echo postgres
    else echo nobody; fi
}

# Runs a command as the server's user.
as_server() {
    if [ "$(id -u)" != 0 ]; then env -u RUST_BACKTRACE "$@"
    else runuser -u "$(server_user)" -- env -u RUST_BACKTRACE PATH="$PATH" "$@"; fi
}

# A directory of this checkout that the server's user can reach: target/, or one in the temporary
# directory when the checkout lies in a private home.
state_dir() {
    mkdir -p "$root/target"
    if as_server test -x "$root/target" 2>/dev/null; then echo "$root/target"
    else
        local dir
        dir=${TMPDIR:-/tmp}/corgipile-$(id -u)-$(printf %s "$root" | cksum | cut -d' ' -f1)
        mkdir -p "$dir"; chmod 755 "$dir"; echo "$dir"
    fi
}

# put FILE PLACE: replaces PLACE whole, and only if it differs. A running server keeps the library that it
# has mapped, and no reader ever sees half a file.
put() {
    cmp -s "$1" "$2" && return
    cp "$1" "$2.$$"
    chmod 755 "$2.$$"
    mv "$2.$$" "$2"
}

# Makes the private installation tree, once, and puts the built extension into it.
install_tree() {
    local state bin lib share prefix
    state=$(state_dir)
    prefix=$state/pgroot
    bin=$("$pg_config" --bindir); lib=$("$pg_config" --pkglibdir); share=$("$pg_config" --sharedir)
    local stamp
    stamp="$("$pg_config" --version) $bin"
    if [ "$(cat "$prefix/stamp" 2>/dev/null)" != "$stamp" ]; then
        rm -rf "$prefix"
        mkdir -p "$prefix$bin" "$prefix$lib" "$prefix$share"
        # The server finds its files relative to its own real path, so binaries must be copies.
        cp "$bin"/* "$prefix$bin/"
        cp -rs "$lib/." "$prefix$lib/"
        cp -rs "$share/." "$prefix$share/"
        printf %s "$stamp" > "$prefix/stamp"
    fi
    put "$root/target/release/libcorgipile.so" "$prefix$lib/corgipile.so"
    local file
    for file in "$root/corgipile.control" "$root"/sql/corgipile--*.sql; do
        put "$file" "$prefix$share/extension/$(basename "$file")"
    done
    PGBIN=$prefix$bin
    PGLIB=$prefix$lib
}

# init_server DIR: a new data directory at DIR/data, its socket in DIR.
init_server() {
    as_server "$PGBIN/initdb" -D "$1/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 -N >"$1/initdb.log" 2>&1 \
        || { cat "$1/initdb.log" >&2; die "initdb failed"; }
    as_server tee -a "$1/data/postgresql.conf" >/dev/null <<CONF
listen_addresses = ''
unix_socket_directories = '$1'
port = 5432
logging_collector = off
shared_preload_libraries = 'corgipile'
CONF
}

# start_server DIR
start_server() {
    as_server "$PGBIN/pg_ctl" -D "$1/data" -l "$1/log" -w -t 60 start >"$1/start.log" 2>&1 \
        || { tail -20 "$1/log" >&2; die "the server in $1 did not start"; }
}

# stop_server DIR: quietly, also when there is none.
stop_server() {
    if [ -f "$1/data/postmaster.pid" ]; then
        as_server "$PGBIN/pg_ctl" -D "$1/data" -w -m immediate stop >/dev/null 2>&1 || true
    fi
}

# temporary_server [SETTING...]: a throw-away server, stopped and removed when the script ends.
# Sets SERVER (its directory) and PGHOST, PGPORT, PGUSER, PGDATABASE.
temporary_server() {
    SERVER=$(mktemp -d "${TMPDIR:-/tmp}/corgipile.XXXXXX")
    chmod 711 "$SERVER"
    [ "$(id -u)" != 0 ] || chown "$(server_user)" "$SERVER"
    trap 'stop_server "$SERVER"; rm -rf "$SERVER"' EXIT
    init_server "$SERVER"
    local setting
    for setting in "$@"; do as_server tee -a "$SERVER/data/postgresql.conf" >/dev/null <<<"$setting"; done
    as_server tee -a "$SERVER/data/postgresql.conf" >/dev/null <<<"fsync = off"
    start_server "$SERVER"
    export PGHOST=$SERVER PGPORT=5432 PGUSER=postgres PGDATABASE=postgres
}
