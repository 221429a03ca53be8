#!/usr/bin/env bash
# Random queries (sqlsmith) against a server with the extension preloaded and models and tables to play
# with: fails where the server crashes, or one of our own internal errors comes up.
#   SECONDS_LONG=600 scripts/smith.sh        needs sqlsmith (Debian: apt-get install sqlsmith)
. "$(dirname "$0")/lib.sh"
"$root/scripts/setup.sh"
"$root/scripts/build.sh"
install_tree
command -v sqlsmith >/dev/null || die "sqlsmith is needed: apt-get install sqlsmith"
temporary_server "statement_timeout = '2s'" "log_min_messages = warning"
export PATH=$PGBIN:$PATH
psql -XqAt -v ON_ERROR_STOP=1 >/dev/null <<'SQL'
SET client_min_messages = warning;
CREATE EXTENSION corgipile;
CREATE TABLE dense AS SELECT id, (random() * 2)::int % 2 AS label, ARRAY[random(), random(), random()]::real[] AS features_v
FROM generate_series(1, 200) AS id;
CREATE TABLE sparse AS SELECT id, CASE WHEN id % 2 = 0 THEN 'a' ELSE 'b' END AS label, ARRAY[1, 2 + id % 5] AS features_k,
ARRAY[random(), random()]::real[] AS features_v FROM generate_series(1, 200) AS id;
SELECT train_sgd('dense', model_name => 'dense'), train_sgd('sparse', model_name => 'sparse');
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
ours=$(grep -E 'ERROR:.*(corgipile|internal error|panicked|does not support the ExecProcNode)' "$SERVER/log" | grep -viE 'does not exist|permission denied|invalid input syntax|could not identify|window function' | sed -E 's/^.*ERROR:/ERROR:/; s/ at character [0-9]+//' | sort | uniq -c | sort -rn | head -20 || true)
say "$queries; crashes: $crashes"
[ -z "$ours" ] || say "errors that name the extension:
$ours"
[ "$crashes" = 0 ] && [ "$(psql -XqAtc "SELECT pg_postmaster_start_time()")" = "$started" ] || { grep -E 'terminated by signal|PANIC' -A6 "$SERVER/log" | head -40; die "the server has crashed"; }
rm -f "$log"
