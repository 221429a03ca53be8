#!/usr/bin/env bash
# PostgreSQL's own regression suite (parallel schedule), once without the library and once with it preloaded and the
# detour of PREDICT BY on: the results must be the same, line for line. Takes some minutes.
#   PGSOURCE=dir scripts/postgres_regress.sh     an unpacked source of the server's version; else Debian's is fetched
. "$(dirname "$0")/lib.sh"
"$root/scripts/setup.sh"
"$root/scripts/build.sh"
install_tree
work=$root/target/postgres_regress
mkdir -p "$work"

# Debian's source package of the installed version, or of the newest one that there is of it.
source_of_server() {
    local found
    found=$(find "$work/source" -maxdepth 1 -mindepth 1 -type d 2>/dev/null | head -1)
    if [ -z "$found" ]; then
        mkdir -p "$work/source" "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
        # Lists of sources of our own, so that the machine's stay as they are.
        sed 's/^Types: .*/Types: deb-src/' /etc/apt/sources.list.d/debian.sources > "$work/apt/debian.sources"
        local options=(-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$work/apt" -o Dir::State::lists="$work/apt/lists" -o Dir::Cache="$work/apt/cache")
        apt-get "${options[@]}" -qq update >&2 || return 1
        # Any minor version does: both runs have the same tests. Mirrors may have lost the newest.
        local version
        for version in $(apt-cache "${options[@]}" showsrc postgresql-15 | sed -n 's/^Version: //p' | sort -rV); do
            (cd "$work/source" && apt-get "${options[@]}" -qq --download-only source "postgresql-15=$version" >/dev/null 2>&1) && break
        done
        (cd "$work/source" && tar xf ./*.orig.tar.*) || return 1
        found=$(find "$work/source" -maxdepth 1 -mindepth 1 -type d | head -1)
    fi
    echo "$found"
}
source=${PGSOURCE:-$(source_of_server)} || die "PostgreSQL's source is needed: give its directory as PGSOURCE"
tests=$source/src/test/regress
[ -f "$tests/parallel_schedule" ] || die "$tests has no parallel_schedule"
say "source $(basename "$source"), server $("$PGBIN/postgres" --version | cut -d' ' -f3)"

# regress.so is not in the packages: the few tests that need it are the same failures with and without the library,
# unless it can be compiled.
library=$work/lib
mkdir -p "$library"
include=$("$pg_config" --includedir-server)
cc -shared -fPIC -O1 -w -I "$include" -o "$library/regress.so" "$tests/regress.c" 2>"$work/regress.so.log" || say "regress.so could not be compiled; tests that need it fail in both runs"
for name in autoinc refint; do
    cc -shared -fPIC -O1 -w -I "$include" -o "$library/$name.so" "$source/contrib/spi/$name.c" 2>/dev/null || true
done

run() { # run NAME SETTING
    local out=$work/$1
    rm -rf "$out"
    mkdir -p "$out"
    chmod 777 "$out"
    temporary_server "$2" "max_connections = 40"
    # pg_regress writes files next to its results, and so does the server.
    local dir=$SERVER/suite
    cp -r "$tests" "$dir"
    chmod -R a+rX "$dir"
    [ "$(id -u)" != 0 ] || chown -R "$(server_user)" "$dir"
    as_server mkdir -p "$dir/out/results" "$dir/testtablespace"
    (cd "$dir" && as_server env PGHOST="$PGHOST" PGPORT="$PGPORT" PGUSER="$PGUSER" "$PGLIB/pgxs/src/test/regress/pg_regress" --bindir="$PGBIN" --inputdir="$dir" --outputdir="$dir/out" \
        --dlpath="$library" --host="$PGHOST" --port="$PGPORT" --user="$PGUSER" --dbname=regression --max-concurrent-tests=20 \
        --schedule="$dir/parallel_schedule" >"$out/log" 2>&1) || true
    # Names of directories differ from run to run.
    for result in "$dir"/out/results/*.out; do sed "s#$SERVER#DIR#g" "$result" > "$out/$(basename "$result")"; done
    stop_server "$SERVER"
    rm -rf "$SERVER"
    say "$1: $(grep -cE '^(test|ok| ).* ok ' "$out/log" || true) tests ok, $(grep -c FAILED "$out/log" || true) failed"
}
run without "shared_preload_libraries = ''"
run with "shared_preload_libraries = 'corgipile'"
differing=()
for result in "$work"/without/*.out; do
    cmp -s "$result" "$work/with/$(basename "$result")" || differing+=("$(basename "$result" .out)")
done
if [ ${#differing[@]} != 0 ]; then
    for test in "${differing[@]}"; do diff -u "$work/without/$test.out" "$work/with/$test.out" | head -40; done
    die "the library changes the results of: ${differing[*]}"
fi
say "the results of $(ls "$work"/with/*.out | wc -l) tests are the same with and without the library"
