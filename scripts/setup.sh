#!/usr/bin/env bash
# Installs what building and testing need; does nothing when it is all there.
. "$(dirname "$0")/lib.sh"

missing=()
bindir=/usr/lib/postgresql/15/bin
[ -x "$bindir/postgres" ] || missing+=(postgresql-15)
[ -f "$("$pg_config" --includedir-server 2>/dev/null || echo /none)/postgres.h" ] || missing+=(postgresql-15 postgresql-server-dev-15)
ls /usr/lib/llvm-*/lib/libclang*.so* >/dev/null 2>&1 \
    && ls -d /usr/lib/llvm-*/lib/clang/*/include/stddef.h >/dev/null 2>&1 || missing+=(libclang-dev)
command -v cc >/dev/null && command -v make >/dev/null || missing+=(build-essential)

if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" != 0 ]; then
        die "these Debian packages are missing: ${missing[*]}
Install them as root:  apt-get install ${missing[*]}"
    fi
    say "installing ${missing[*]}"
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 \
        || { tail -20 "$log" >&2; die "apt-get could not install ${missing[*]}"; }
    rm -f "$log"
fi
command -v cargo >/dev/null || die "Rust is missing: install version 1.95 or newer from your distribution or with rustup"
