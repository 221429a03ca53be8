#!/usr/bin/env bash
# Builds the extension and puts it into the private installation tree.
. "$(dirname "$0")/lib.sh"
cd "$root"
cargo build --release --ignore-rust-version --quiet
install_tree
