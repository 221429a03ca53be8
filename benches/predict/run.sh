#!/usr/bin/env bash
# Predictions on 3 million rows of 28 features, beside a scan of the same column and other ways to get them, in one process
# and one run; and what the library costs a statement that does not predict. Writes docs/predict.md.
#   ROWS=3000000 benches/predict/run.sh
. "$(dirname "$0")/../../scripts/lib.sh"
"$root/scripts/build.sh"
install_tree
rows=${ROWS:-3000000}
export PATH=$PGBIN:$PATH
quiet() { psql -XqAt -v ON_ERROR_STOP=1 "$@"; }
# best QUERY: milliseconds, the least of five.
best() {
    quiet -c "SET max_parallel_workers_per_gather = 0; SET jit = off" -c '\timing on' \
        -c "$1" -c "$1" -c "$1" -c "$1" -c "$1" | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | sort -n | sed -n 1p
}
temporary_server "shared_buffers = 2GB"
quiet <<SQL
SET client_min_messages = warning;
CREATE EXTENSION corgipile;
CREATE TABLE t AS SELECT i AS id, i % 2 AS label, ARRAY(SELECT (abs(hashint8(i * 100::bigint + j)) % 1000 / 1000.0 + i % 2 * 0.1)::real FROM generate_series(1, 28) AS j) AS features_v
    FROM generate_series(1, $rows) AS i;
VACUUM ANALYZE t;
SELECT train_sgd('t', model_name => 'm', max_epochs => 1);
CREATE FUNCTION array_dot(a real[], b real[]) RETURNS float8 LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT sum(x * y) FROM unnest(a, b) AS u(x, y)';
SQL
weights=$(quiet -c "SELECT (model_vector('m'))[1:28]")
quiet -c "SELECT count(*) FROM t" >/dev/null
scan=$(best "SELECT sum(features_v[1]) FROM t")
declare -A time
time["\`PREDICT BY\`, the class"]=$(best "SELECT count(prediction) FROM t PREDICT BY 'm'")
time["\`PREDICT BY\`, class and probability"]=$(best "SELECT count(prediction), sum(probability) FROM t PREDICT BY 'm'")
time["\`predict(model, array)\`"]=$(best "SELECT count(predict('m', features_v)) FROM t")
time["\`predict(model, row)\`"]=$(best "SELECT count(predict('m', t)) FROM t")
quiet -c "CREATE TABLE part AS SELECT * FROM t LIMIT $((rows / 20))"
part=$(best "SELECT sum(array_dot(features_v, '$weights')) FROM part")
time["array_dot in SQL (a twentieth of the rows, times 20)"]=$(awk "BEGIN { print $part * 20 }")
time["export alone (COPY to a client, text)"]=$({ time -p psql -Xqc "COPY (SELECT features_v FROM t) TO STDOUT" >/dev/null; } 2>&1 | sed -n 's/^real *//p' | awk '{ print $1 * 1000 }')
out=$root/docs/predict.md
{
    echo "# Predictions"
    echo
    echo "Written by \`benches/predict/run.sh\`: $rows rows of 28 \`real[]\` in shared buffers, one process, the best of five."
    echo
    echo "| | ms | × the scan |"
    echo "|---|---|---|"
    echo "| \`SELECT sum(features_v[1])\` | $scan | 1 |"
    for name in "\`PREDICT BY\`, the class" "\`PREDICT BY\`, class and probability" "\`predict(model, array)\`" "\`predict(model, row)\`" \
        "array_dot in SQL (a twentieth of the rows, times 20)" "export alone (COPY to a client, text)"; do
        awk -v name="$name" -v ms="${time[$name]}" -v scan="$scan" 'BEGIN { printf "| %s | %.0f | %.2f |\n", name, ms, ms / scan }'
    done
} >"$out"
# What the detour costs who does not predict: pgbench -S in turns with and without the library.
stop_server "$SERVER"
tps() { pgbench -n -S -M "$1" -T 5 -c 1 postgres 2>/dev/null | sed -n 's/^tps = \([0-9.]*\).*/\1/p'; }
setting() { echo "shared_preload_libraries = '$1'" | as_server tee -a "$SERVER/data/postgresql.conf" >/dev/null; as_server "$PGBIN/pg_ctl" -D "$SERVER/data" -w -m fast -l "$SERVER/log" restart >/dev/null; }
start_server "$SERVER"
pgbench -iq -s 5 postgres 2>/dev/null
with=0 without=0
for round in 1 2 3 4 5 6; do
    setting ''; without=$(awk "BEGIN { print $without + $(tps simple) }")
    setting corgipile; with=$(awk "BEGIN { print $with + $(tps simple) }")
done
{
    echo
    awk -v a="$with" -v b="$without" 'BEGIN { printf "pgbench -S, simple protocol (every statement is parsed), one client, six turns of five seconds each way: %.0f transactions a second with the library preloaded, %.0f without, %.3f times.\n", a / 6, b / 6, a / b }'
} >>"$out"
cat "$out"
