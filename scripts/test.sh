#!/usr/bin/env bash
# Every test. The last line is "N passed, N failed".
. "$(dirname "$0")/lib.sh"
cd "$root"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0
failed=0

# step NAME COMMAND...: one check that passes or fails as a whole.
step() {
    local name=$1; shift
    say "== $name"
    if "$@" >"$log" 2>&1; then passed=$((passed + 1))
    else failed=$((failed + 1)); say "FAILED: $name"; tail -60 "$log" >&2; fi
}

# cargo_tests NAME ARGUMENT...: counts the tests of `cargo test ARGUMENT...`.
cargo_tests() {
    local name=$1 code=0; shift
    say "== $name"
    cargo test --ignore-rust-version --no-fail-fast "$@" >"$log" 2>&1 || code=$?
    local p f
    p=$(awk '/^test result:/ { n += $4 } END { print n + 0 }' "$log")
    f=$(awk '/^test result:/ { n += $6 } END { print n + 0 }' "$log")
    passed=$((passed + p))
    if [ "$code" != 0 ]; then
        [ "$f" -gt 0 ] || f=1
        say "FAILED: $name"
        grep -vE '^ +[0-9]+:|^ +at ' "$log" | tail -100 >&2
    fi
    failed=$((failed + f))
}

regress() {
    say "== pg_regress"
    scripts/regress.sh >"$log" 2>&1 || true
    local p f
    p=$(grep -cE '^(test .* ok|ok [0-9])' "$log" || true)
    f=$(grep -cE '^(test .* FAILED|not ok [0-9])' "$log" || true)
    if [ "$p" = 0 ] || [ "$f" != 0 ]; then cat "$log" >&2; [ "$f" != 0 ] || f=1; fi
    passed=$((passed + p)); failed=$((failed + f))
}

step "formatting" cargo fmt --all -- --check
step "clippy, warnings are errors" cargo clippy --workspace --all-targets --release --ignore-rust-version -- -D warnings
cargo_tests "core" -p corgipile_core
step "fuzzing, a moment of it" env SECONDS_EACH=10 scripts/fuzz.sh
step "build" scripts/build.sh
step "install script and exported symbols" scripts/exports.sh
regress
scripts/pgvector.sh
scripts/sklearn.sh
scripts/chromium.sh
cargo_tests "servers" --release -p corgipile_tests -- --test-threads=2
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
