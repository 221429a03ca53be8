#!/usr/bin/env bash
# Raw tables as people have them: one train_sgd with defaults on the columns, stored clustered, and the accuracy on rows that
# were not trained on, beside that of scikit-learn's best linear model on the same rows with columns prepared by hand.
#   benches/columns/run.sh DIR      DIR holds adult.csv.gz, flights13.csv.gz and the others; writes a table to standard output
. "$(dirname "$0")/../../scripts/lib.sh"
dir=${1:?give the directory of the data sets}
"$root/scripts/build.sh"
install_tree
temporary_server "shared_buffers = 512MB"
export PATH=$PGBIN:$PATH
psql() { command psql -XqAt -v ON_ERROR_STOP=1 "$@"; }
psql -c "CREATE EXTENSION corgipile"

# load TABLE FILE TYPES [NULL]: a table with the file's columns, of these types.
load() {
    local names
    names=$(zcat "$dir/$2" | sed -n 1p)
    psql -c "CREATE TABLE $1 ($(paste -d' ' <(tr ',' '\n' <<<"$names") <(xargs -n1 <<<"$3") | paste -sd,))"
    zcat "$dir/$2" | psql -c "COPY $1 FROM STDIN (FORMAT csv, HEADER, NULL '${4-}')"
}
# repeat N TYPE
repeat() { printf "$2 %.0s" $(seq "$1"); }

# report NAME REFERENCE TEST-TABLE: what evaluate_sgd says, which is accuracy or RMSE.
report() {
    psql -F ' | ' -c "SELECT '| $1', coalesce(round(100 * accuracy::numeric, 2) || ' %', round(root_mean_squared_error::numeric, 3)::text), '$2 |' FROM evaluate_sgd('$1', '$3')"
}
train() { psql -c "SELECT train_sgd($1)" 2>&1 >/dev/null | sed 's/^/    /' >&2; }

echo "| table | train_sgd | reference |"
echo "|---|---|---|"
load adult adult.csv.gz "text int text int text int text text text text text int int int text text" '?'
psql -c "CREATE TABLE adult_train AS SELECT * FROM adult WHERE split = 'train' ORDER BY income; CREATE TABLE adult_test AS SELECT * FROM adult WHERE split = 'test'"
train "'adult_train', 'income', model_name => 'adult', exclude => '{split}'"
report adult "85.31 %" adult_test

load flights flights13.csv.gz "int int int int int int int int int text int text text text int int int int timestamptz" NA
psql -c "ALTER TABLE flights ADD n bigserial; CREATE TABLE f_train AS SELECT * FROM flights WHERE arr_delay IS NOT NULL AND (n - 1) % 5 <> 4 ORDER BY month, day;
         CREATE TABLE f_test AS SELECT * FROM flights WHERE arr_delay IS NOT NULL AND (n - 1) % 5 = 4;
         CREATE VIEW late_train AS SELECT *, arr_delay > 15 AS late FROM f_train; CREATE VIEW late_test AS SELECT *, arr_delay > 15 AS late FROM f_test"
train "'f_train', 'arr_delay', '{dep_delay,distance,hour,minute,air_time,carrier,origin,month}', model_name => 'flights arr_delay', encode => '{\"month\": \"one_hot\"}'"
report "flights arr_delay" 14.971 f_test
train "'f_train', 'arr_delay', '{dep_delay,distance,hour,minute,air_time,carrier,origin,month}', model_name => 'flights arr_delay, defaults'"
report "flights arr_delay, defaults" 14.971 f_test
psql -c "CREATE TABLE late AS SELECT * FROM late_train ORDER BY month, day"
train "'late', 'late', '{distance,hour,minute,day,carrier,origin,month,dest}', model_name => 'flights late', encode => '{\"month\": \"one_hot\"}'"
report "flights late" "76.23 %" late_test
train "'late', 'late', '{distance,hour,minute,day,carrier,origin,month,dest}', model_name => 'flights late, defaults'"
report "flights late, defaults" "76.23 %" late_test

load california california.csv.gz "text $(repeat 9 float8)"
psql -c "CREATE TABLE ca_train AS SELECT * FROM california WHERE split = 'train' ORDER BY \"medianhousevalue\"; CREATE TABLE ca_test AS SELECT * FROM california WHERE split = 'test'"
train "'ca_train', 'medianhousevalue', model_name => 'california', exclude => '{split}'"
report california 69412.6 ca_test
load abalone abalone.csv.gz "text text $(repeat 7 float8) int"
psql -c "CREATE TABLE ab_train AS SELECT * FROM abalone WHERE split = 'train' ORDER BY rings; CREATE TABLE ab_test AS SELECT * FROM abalone WHERE split = 'test'"
train "'ab_train', 'rings', model_name => 'abalone', exclude => '{split}'"
report abalone 2.188 ab_test
load digits digits.csv.gz "text $(repeat 64 int) text"
psql -c "CREATE TABLE d_train AS SELECT * FROM digits WHERE split = 'train' ORDER BY 66; CREATE TABLE d_test AS SELECT * FROM digits WHERE split = 'test'"
target=$(zcat "$dir/digits.csv.gz" | sed -n 1p | tr ',' '\n' | tail -1)
train "'d_train', '$target', model_name => 'digits', exclude => '{split}'"
report digits "96.66 %" d_test
for set in covtype100k higgs57k; do
    columns=$(zcat "$dir/$set.csv.gz" | sed -n 1p | tr ',' '\n')
    n=$(wc -l <<<"$columns")
    target=$(grep -nE '^(label|target|class|cover_type)$' <<<"$columns" | tail -1 | cut -d: -f2)
    types=$(while read -r c; do case $c in split | part) echo text ;; "$target") echo text ;; *) echo real ;; esac; done <<<"$columns" | paste -sd' ')
    load $set $set.csv.gz "$types"
    psql -c "CREATE TABLE ${set}_train AS SELECT * FROM $set WHERE split = 'train' ORDER BY $target; CREATE TABLE ${set}_test AS SELECT * FROM $set WHERE split = 'test'"
    train "'${set}_train', '$target', model_name => '$set', exclude => '{split$([ $set = higgs57k ] && echo ,part)}'"
    report $set "$(case $set in higgs57k) echo '64.0 %' ;; *) echo '72.4 %' ;; esac)" ${set}_test
done

# Mushrooms: 127 columns of 0 and 1.
for part in "" .t; do
    psql -c "CREATE TABLE mushrooms$( [ -z "$part" ] || echo _test) (poisonous boolean, $(for i in $(seq 0 126); do echo "f$i smallint"; done | paste -sd,))"
    zcat "$dir/agaricus$part.libsvm.gz" | awk '{ split("", x); for (i = 2; i <= NF; i++) { split($i, kv, ":"); x[kv[1]] = kv[2] }
        printf "%s", $1; for (i = 0; i < 127; i++) printf ",%s", x[i] + 0; print "" }' | sort | psql -c "COPY mushrooms$( [ -z "$part" ] || echo _test) FROM STDIN (FORMAT csv)"
done
train "'mushrooms', 'poisonous', model_name => 'agaricus'"
report agaricus "100.00 %" mushrooms_test

# Speed: a million rows of 30 mixed columns, one process, the best of five.
best() {
    psql -c "SET max_parallel_workers_per_gather = 0; SET jit = off" -c '\timing on' -c "$1" -c "$1" -c "$1" -c "$1" -c "$1" |
        sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | sort -n | sed -n 1p
}
columns=() values=()
column() { columns+=("$1"); values+=("$2 AS $1"); }
for i in 1 2 3 4 5 6; do
    column "whole$i" "(random() * 10 ^ $i)::int"
    column "real$i" "random()"
    column "text$i" "'value ' || (random() * 12)::int"
    column "time$i" "timestamptz '2024-01-01' + random() * interval '400 days'"
done
for i in 1 2; do column "small$i" "(random() * 10)::smallint"; column "money$i" "(random() * 100)::numeric(10, 2)"; column "yes$i" "random() < 0.3"; done
psql -c "SELECT setseed(0.5)" -c "CREATE TABLE mixed AS SELECT random() < 0.5 AS y, $(IFS=,; echo "${values[*]}") FROM generate_series(1, 1000000)" -c "VACUUM ANALYZE mixed" >/dev/null
train "'mixed', 'y', model_name => 'mixed', max_epochs => 1"
scan=$(best "SELECT $(for c in "${columns[@]}"; do echo "count($c)"; done | paste -sd,) FROM mixed")
echo
echo "| a million rows of ${#columns[@]} mixed columns | ms | × the scan |"
echo "|---|---|---|"
echo "| a scan that counts them | $scan | 1 |"
for query in "count(prediction) FROM mixed PREDICT BY 'mixed'" "count(prediction), count(probability) FROM mixed PREDICT BY 'mixed'" "count(predict('mixed', m)) FROM mixed AS m"; do
    awk -v ms="$(best "SELECT $query")" -v scan="$scan" -v query="$query" 'BEGIN { printf "| `SELECT %s` | %.0f | %.2f |\n", query, ms, ms / scan }'
done
