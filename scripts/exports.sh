#!/usr/bin/env bash
# The install script and the library must agree: every C function that the script names is exported,
# and every exported function is named.
. "$(dirname "$0")/lib.sh"
named=$(grep -ohE "'[a-z_]+'" "$root"/sql/corgipile--*.sql | tr -d "'" | sort -u)
exported=$(nm -D --defined-only "$root/target/release/libcorgipile.so" | awk '$3 ~ /^pg_finfo_/ { print substr($3, 10) }' | sort -u)
missing=$(comm -13 <(echo "$named") <(echo "$exported"))
[ -z "$missing" ] || die "exported, but not in the install script: $missing"
wanted=$(echo "$named" | grep -E '^corgipile_|_wrapper$')
missing=$(comm -23 <(echo "$wanted") <(echo "$exported"))
[ -z "$missing" ] || die "in the install script, but not exported: $missing"
echo "$(echo "$exported" | wc -l) exported functions, all of them declared"
