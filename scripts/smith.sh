#!/usr/bin/env bash
# Random queries (sqlsmith) against a server with the extension preloaded and models and tables to play
# with: fails where the server crashes, or one of our own internal errors comes up.
#   SECONDS_LONG=600 scripts/smith.sh        needs sqlsmith (Debian: apt-get install sqlsmith)
. "$(dirname "$0")/lib.sh"
"$root/scripts/setup.sh"
"$root/scripts/build.sh"
install_tree
command -v sqlsmith >/dev/null || die "sqlsmith is needed: apt-get install sqlsmith"
temporary_server "statement_timeout = '2s'" "log_min_messages = warning" "log_error_verbosity = verbose"
export PATH=$PGBIN:$PATH
psql -XqAt -v ON_ERROR_STOP=1 >/dev/null <<'SQL'
SET client_min_messages = warning;
CREATE EXTENSION corgipile;
CREATE TABLE dense AS SELECT id, (random() * 2)::int % 2 AS label, ARRAY[random(), random(), random()]::real[] AS features_v
FROM generate_series(1, 200) AS id;
CREATE TABLE sparse AS SELECT id, CASE WHEN id % 2 = 0 THEN 'a' ELSE 'b' END AS label, ARRAY[1, 2 + id % 5] AS features_k,
ARRAY[random(), random()]::real[] AS features_v FROM generate_series(1, 200) AS id;
SELECT train_sgd('dense', model_name => 'dense'), train_sgd('sparse', model_name => 'sparse');
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TABLE orders AS SELECT i AS id, i / 3.0 AS amount, 'country ' || i % 5 AS country, (enum_range(NULL::mood))[1 + i % 3] AS mood, timestamptz '2024-01-01' + i * interval '1 hour' AS placed_at,
    CASE WHEN i % 7 > 0 THEN sin(i) END AS f, ARRAY[i % 2, i % 3]::real[] AS a, i % 2 = 0 AS y FROM generate_series(1, 500) AS i;
CREATE TABLE parts (LIKE orders) PARTITION BY LIST (y);
CREATE TABLE parts_yes PARTITION OF parts FOR VALUES IN (true);
CREATE TABLE parts_no PARTITION OF parts FOR VALUES IN (false);
INSERT INTO parts SELECT * FROM orders;
SELECT train_sgd('orders', 'y', on_null => 'mean', model_name => 'orders', max_epochs => 2), train_sgd('parts', 'mood', on_null => 'mean', model_name => 'parts', max_epochs => 2);
CREATE VIEW predicted_orders AS SELECT * FROM orders PREDICT BY 'orders';
CREATE VIEW predicted_parts AS SELECT * FROM parts PREDICT BY 'parts';
CREATE VIEW predicted AS SELECT * FROM dense PREDICT BY 'dense';
CREATE VIEW predicted_sparse AS SELECT * FROM sparse PREDICT BY 'sparse';
ANALYZE;
SQL
started=$(psql -XqAtc "SELECT pg_postmaster_start_time()")
log=$(mktemp)
# It never ends by itself; a query that ends the server is the last one in the log.
timeout "${SECONDS_LONG:-600}" sqlsmith --verbose --target="host=$PGHOST port=$PGPORT user=postgres dbname=postgres" >"$log" 2>&1 || true
queries=$(grep -oE 'queries: [0-9]+' "$log" | tail -1 || true)
crashes=$(grep -cE 'terminated by signal|PANIC|server process .* was' "$SERVER/log" || true)
ours=$(grep -E 'ERROR:.*(corgipile|internal error|panicked|does not support the ExecProcNode)' "$SERVER/log" | grep -viE 'does not exist|permission denied|invalid input syntax|could not identify|window function' | sed -E 's/^.*ERROR: +[0-9A-Z]+:/ERROR:/; s/ at character [0-9]+//' | sort | uniq -c | sort -rn | head -20 || true)
say "$queries; crashes: $crashes"
[ -z "$ours" ] || say "errors that name the extension:
$ours"
[ "$crashes" = 0 ] && [ "$(psql -XqAtc "SELECT pg_postmaster_start_time()")" = "$started" ] || { grep -E 'terminated by signal|PANIC' -A6 "$SERVER/log" | head -40; die "the server has crashed"; }
# Errors that no user should see, by where they are raised.
internal=$(grep -A12 'ERROR:  XX000' "$SERVER/log" | grep -B12 'LOCATION:.*\.rs:' || true)
[ -z "$internal" ] || { head -40 <<<"$internal" >&2; die "an internal error of ours"; }
rm -f "$log"
