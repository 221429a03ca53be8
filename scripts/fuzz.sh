#!/usr/bin/env bash
# Fuzzes what reads texts and bytes that anybody may have written: the finder of PREDICT BY clauses, stored
# models, imports. Ends with the first input that breaks a promise, which is kept under target/fuzz.
#   SECONDS_EACH=60 scripts/fuzz.sh [TARGET...]       targets: clauses, model, import
. "$(dirname "$0")/lib.sh"
cd "$root"
targets=("$@")
[ $# -gt 0 ] || targets=(clauses model import)
place=$root/target/fuzz
# What libFuzzer needs, by flags of a stable compiler: counters of edges, and the operands of comparisons. Naming
# the platform keeps them from build scripts.
flags="--cfg fuzzing -Cpasses=sancov-module"
for coverage in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=" -Cllvm-args=-sanitizer-coverage-$coverage"
done
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS=$flags cargo build --release --ignore-rust-version --manifest-path fuzz/Cargo.toml --target "$host" --target-dir "$place"
for target in "${targets[@]}"; do
    corpus=$place/corpus/$target
    mkdir -p "$corpus" "$place/artifacts"
    # The first directory takes what is found, the second is only read.
    if "$place/$host/release/$target" -max_total_time="${SECONDS_EACH:-60}" -timeout=10 -rss_limit_mb=1024 -max_len=16384 \
        -dict="fuzz/dictionaries/$target" -artifact_prefix="$place/artifacts/$target-" "$corpus" "fuzz/seeds/$target" >"$place/$target.log" 2>&1
    then say "$target: $(grep -oE 'cov: [0-9]+' "$place/$target.log" | tail -1) edges; $(grep '^Done' "$place/$target.log")"
    else tail -40 "$place/$target.log" >&2; die "$target has found an input, see above"; fi
done
