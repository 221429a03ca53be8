#!/usr/bin/env bash
# Builds pgvector, for the tests that use it, from Debian's source package (newer suites have one) or an unpacked source
# (PGVECTOR=dir), against the installed server, into the private installation. Where that cannot be done it says so, and
# the tests are skipped.
. "$(dirname "$0")/lib.sh"
install_tree
share=$(dirname "$PGBIN")
share=$(find "${share%%/pgroot/*}/pgroot" -path '*/extension/plpgsql.control' | head -1)
extensions=$(dirname "$share")
[ ! -f "$extensions/vector.control" ] || exit 0
work=$root/target/pgvector
skip() { say "pgvector could not be built ($1): tests that need it are skipped"; exit 0; }

source=${PGVECTOR:-}
if [ -z "$source" ]; then
    rm -rf "$work"
    mkdir -p "$work/source" "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
    # Lists of our own, so that the machine's stay as they are: the first entry, of the suite that follows Debian 12.
    awk 'NF == 0 && seen { exit } NF { seen = 1; sub(/^Types:.*/, "Types: deb-src"); sub(/^Suites:.*/, "Suites: trixie"); print }' \
        /etc/apt/sources.list.d/debian.sources > "$work/apt/debian.sources" 2>/dev/null || skip "no list of Debian's sources"
    options=(-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$work/apt" -o Dir::State::lists="$work/apt/lists" -o Dir::Cache="$work/apt/cache")
    timeout 120 apt-get "${options[@]}" -qq update >/dev/null 2>&1 || skip "Debian's sources cannot be listed"
    (cd "$work/source" && timeout 120 apt-get "${options[@]}" -qq --download-only source pgvector >/dev/null 2>&1 && tar xf ./*.orig.tar.*) \
        || skip "its source package cannot be had"
    source=$(find "$work/source" -maxdepth 1 -mindepth 1 -type d | head -1)
fi
# OPTFLAGS: for any processor of the kind, not for this one.
make -C "$source" -s PG_CONFIG="$pg_config" OPTFLAGS= with_llvm=no >"$root/target/pgvector.log" 2>&1 || skip "see target/pgvector.log"
put "$source/vector.so" "$PGLIB/vector.so"
for file in "$source"/sql/vector--*.sql; do put "$file" "$extensions/$(basename "$file")"; done
put "$source/vector.control" "$extensions/vector.control"
