#!/usr/bin/env bash
# load.sh FILE TABLE [DIMS]: loads a LIBSVM file (also .gz) into TABLE, clustered by label.
# With DIMS the rows are dense (features_k is NULL), else sparse. Connects as psql does.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
file=${1:-} table=${2:-} dims=${3:-0}
[ -n "$file" ] && [ -n "$table" ] || { echo "usage: load.sh FILE TABLE [DIMS]" >&2; exit 2; }
[ -r "$file" ] || { echo "error: cannot read $file" >&2; exit 1; }
case $file in *.gz) cat=(gzip -dc) ;; *) cat=(cat) ;; esac
{
    cat <<SQL
\\set ON_ERROR_STOP on
BEGIN;
CREATE TABLE :"table" (id integer, features_k integer[], features_v real[], label real);
CREATE TEMP TABLE loading (LIKE :"table") ON COMMIT DROP;
COPY loading FROM stdin;
SQL
    "${cat[@]}" "$file" | awk -v first=1 -v dims="${dims:-0}" -f "$here/libsvm.awk"
    cat <<SQL
\\.
INSERT INTO :"table" SELECT * FROM loading ORDER BY label, id;
COMMIT;
ANALYZE :"table";
SQL
} | PGOPTIONS="${PGOPTIONS:-} -cclient_min_messages=warning" psql -qX -v table="$table"
