#!/usr/bin/env bash
# Predictions on 3 million rows of 28 features, beside a scan of the same column and other ways to get them, in one process
# and one run; and what the library costs a statement that does not predict. Writes docs/predict.md.
#   ROWS=3000000 benches/predict/run.sh
. "$(dirname "$0")/../../scripts/lib.sh"
"$root/scripts/build.sh"
install_tree
# PL/Python and scikit-learn, where they can be had, into the private installation.
[ "$(id -u)" != 0 ] || apt-get -qqy install postgresql-plpython3-15 python3-sklearn >/dev/null 2>&1 || true
cp -rsn "$("$pg_config" --pkglibdir)/." "$PGLIB/"
share=$("$pg_config" --sharedir)
cp -rsn "$share/." "${PGLIB%"$("$pg_config" --pkglibdir)"}$share/"
rows=${ROWS:-3000000}
export PATH=$PGBIN:$PATH
quiet() { psql -XqAt -v ON_ERROR_STOP=1 "$@"; }
# best QUERY: milliseconds, the least of five.
best() {
    quiet -c "SET max_parallel_workers_per_gather = 0; SET jit = off" -c '\timing on' \
        -c "$1" -c "$1" -c "$1" -c "$1" -c "$1" | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | sort -n | sed -n 1p
}
temporary_server "shared_buffers = 2GB"
quiet >/dev/null <<SQL
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
ways=("array_dot in SQL (a twentieth of the rows, times 20)")
if /usr/bin/python3 -c 'import sklearn' 2>/dev/null && quiet -c "CREATE EXTENSION plpython3u" 2>/dev/null; then
    # The same weights in scikit-learn's classifier.
    model="import numpy, sklearn.linear_model
    m = sklearn.linear_model.SGDClassifier()
    w = numpy.array([$(tr -d '{}' <<<"$weights")])
    m.coef_, m.intercept_, m.classes_ = w.reshape(1, -1), numpy.array([$(quiet -c "SELECT export_model('m') -> 'intercept_' ->> 0")]), numpy.array([0, 1])"
    quiet <<SQL
CREATE FUNCTION one_row(x real[]) RETURNS integer LANGUAGE plpython3u AS \$\$
if 'm' not in SD:
    $model
    SD['m'] = m
return int(SD['m'].predict([x])[0])
\$\$;
CREATE FUNCTION in_batches() RETURNS SETOF integer LANGUAGE plpython3u AS \$\$
if True:
    $model
    cursor = plpy.cursor('SELECT features_v FROM part')
    while rows := cursor.fetch(10000):
        yield from m.predict(numpy.array([row['features_v'] for row in rows])).tolist()
\$\$;
CREATE TABLE thousandth AS SELECT * FROM t LIMIT $((rows / 1000));
SQL
    times() { awk "BEGIN { print $1 * $2 }"; }
    time["PL/Python + scikit-learn, row by row (a thousandth, times 1000)"]=$(times "$(best "SELECT sum(one_row(features_v)) FROM thousandth")" 1000)
    time["PL/Python + scikit-learn, in batches of 10,000 (a twentieth, times 20)"]=$(times "$(best "SELECT sum(p) FROM in_batches() AS p")" 20)
    program="import sys
if True:
    $model
    text = sys.stdin.buffer.read().translate(bytes.maketrans(b'\n', b','), b'{}')
    print(m.predict(numpy.fromstring(text, sep=',').reshape(-1, w.size)).sum())"
    time["export + scikit-learn"]=$(times "$({ time -p { psql -Xqc "COPY (SELECT features_v FROM t) TO STDOUT" | /usr/bin/python3 -c "$program" >/dev/null; }; } 2>&1 | sed -n 's/^real *//p')" 1000)
    ways+=("PL/Python + scikit-learn, row by row (a thousandth, times 1000)" "PL/Python + scikit-learn, in batches of 10,000 (a twentieth, times 20)" "export + scikit-learn")
fi
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
        "${ways[@]}" "export alone (COPY to a client, text)"; do
        awk -v name="$name" -v ms="${time[$name]}" -v scan="$scan" 'BEGIN { printf "| %s | %.0f | %.2f |\n", name, ms, ms / scan }'
    done
} >"$out"
# What the detour costs who does not predict: pgbench -S in short turns, on two servers, one with the library and one without.
other=$(mktemp -d "${TMPDIR:-/tmp}/corgipile.XXXXXX")
trap 'stop_server "$SERVER"; stop_server "$other"; rm -rf "$SERVER" "$other"' EXIT
chmod 711 "$other"
[ "$(id -u)" != 0 ] || chown "$(server_user)" "$other"
init_server "$other"
as_server tee -a "$other/data/postgresql.conf" >/dev/null <<<"shared_preload_libraries = ''
shared_buffers = 2GB"
start_server "$other"
for server in "$SERVER" "$other"; do PGHOST=$server pgbench -iq -s 5 postgres 2>/dev/null; done
tps() { PGHOST=$1 pgbench -n -S -M simple -T 2 -c 1 postgres 2>/dev/null | sed -n 's/^tps = \([0-9.]*\).*/\1/p'; }
for turn in $(seq 40); do
    # Who goes first changes.
    if ((turn % 2)); then with=$(tps "$SERVER") without=$(tps "$other"); else without=$(tps "$other") with=$(tps "$SERVER"); fi
    awk "BEGIN { print $with, $without, $with / $without }"
done | sort -k3n | awk '{ with += $1; without += $2; ratio[NR] = $3 }
    END { printf "\npgbench -S, simple protocol (every statement is parsed), one client, %d turns of two seconds each way: %.0f transactions a second with the library preloaded, %.0f without; the median of the ratios is %.3f, half of them lie between %.3f and %.3f.\n",
        NR, with / NR, without / NR, (ratio[NR / 2] + ratio[NR / 2 + 1]) / 2, ratio[NR / 4], ratio[NR * 3 / 4] }' >>"$out"
cat "$out"
