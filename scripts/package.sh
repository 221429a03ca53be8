#!/usr/bin/env bash
# Writes target/package/: the files of the extension under the paths of the server they are for.
. "$(dirname "$0")/lib.sh"
package=$root/target/package
version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" "$root/corgipile.control")
rm -rf "$package"
lib=$package$("$pg_config" --pkglibdir)
share=$package$("$pg_config" --sharedir)/extension
mkdir -p "$lib" "$share"
install -m 755 "$root/target/release/libcorgipile.so" "$lib/corgipile.so"
strip --strip-debug "$lib/corgipile.so"
install -m 644 "$root/corgipile.control" "$root"/sql/corgipile--*.sql "$share/"
tar -C "$package" -czf "$root/target/corgipile-$version-pg15-$(uname -m).tar.gz" .
say "target/corgipile-$version-pg15-$(uname -m).tar.gz: unpack it in / and run CREATE EXTENSION corgipile"
