#!/usr/bin/env bash
# The main job on real data, on a throw-away server: load clustered tables, train, look at the plan,
# predict, compare shuffling strategies.
. "$(dirname "$0")/lib.sh"
install_tree
temporary_server "shared_buffers = 256MB"
export PATH=$PGBIN:$PATH
psql() { command psql -X "$@"; }
title() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

title "CREATE EXTENSION corgipile, and two real data sets, stored clustered by label"
psql -qc "CREATE EXTENSION corgipile"
"$root/scripts/load.sh" "$root/data/a9a.libsvm.gz" a9a
"$root/scripts/load.sh" "$root/data/a9a.t.libsvm.gz" a9a_test
"$root/scripts/load.sh" "$root/data/higgs.libsvm.gz" higgs 28
"$root/scripts/load.sh" "$root/data/higgs.t.libsvm.gz" higgs_test 28
psql -q -f "$root/scripts/demo_shifted.sql"
psql -qc "
SELECT 'a9a' AS \"table\", count(*) AS tuples, pg_size_pretty(pg_table_size('a9a')) AS size, 'census, 123 sparse features' AS what FROM a9a
UNION ALL SELECT 'higgs', count(*), pg_size_pretty(pg_table_size('higgs')), 'physics, 28 dense features' FROM higgs
UNION ALL SELECT 'shifted', count(*), pg_size_pretty(pg_table_size('shifted')), 'made: 10 features with means far from zero' FROM shifted"

title "SELECT train_sgd('a9a', model_name => 'income')"
psql -qc "SELECT train_sgd('a9a', model_name => 'income') AS model_id"

title "The plan: three custom scan nodes, read from the bottom"
psql -qAt -c "EXPLAIN (ANALYZE, COSTS OFF) SELECT corgipile.sgd(label, features_v, '{\"max_epochs\": 5}') FROM higgs"

title "SELECT ... FROM a9a_test PREDICT BY 'income'"
psql -qc "SELECT id, label, prediction, round(probability::numeric, 4) AS probability
          FROM a9a_test PREDICT BY 'income' WHERE id % 4000 = 1 ORDER BY id" \
     -c "SELECT round(100 * avg((prediction = label)::int), 2) AS accuracy_percent FROM a9a_test PREDICT BY 'income'"

title "evaluate_sgd('income', 'a9a_test')"
psql -qc "SELECT rows, accuracy, f1_score, log_loss, roc_auc FROM evaluate_sgd('income', 'a9a_test')" \
     -c "SELECT corgipile.loss_curve('income')"

title "Strategies on clustered tables: accuracy on the test table, in percent"
psql -q -f "$root/scripts/demo_compare.sql"

title "corgipile.models and corgipile.training_history"
psql -qc "SELECT model_id, model_name, loss, source, classes, rows_used, epochs, round(train_loss::numeric, 4) AS train_loss FROM corgipile.models ORDER BY model_id LIMIT 3" \
     -c "SELECT * FROM corgipile.training_history WHERE model_id = 1 AND epoch IN (1, 2, 5, 10) ORDER BY epoch"
title "Columns as they are: from a CSV to predictions in four statements"
adult="CREATE TABLE adult (split text, age int, workclass text, fnlwgt int, education text, education_num int, marital_status text,
    occupation text, relationship text, race text, sex text, capital_gain int, capital_loss int, hours_per_week int, native_country text, income text)"
copy="COPY adult FROM STDIN (FORMAT csv, HEADER, NULL '?')"
train="SELECT train_sgd('adult', 'income', model_name => 'adult', exclude => '{split}', filter => 'split = ''train''')"
predict="SELECT age, education, hours_per_week, income, prediction, round(probability::numeric, 3) AS probability
    FROM adult PREDICT BY 'adult' WHERE split = 'test' AND fnlwgt % 3000 = 0 ORDER BY fnlwgt LIMIT 6"
printf '%s;\n' "$adult" "$copy" "$train" "$predict"
psql -qc "$adult"
zcat "$root/data/adult.csv.gz" | psql -qc "$copy"
psql -qc "$train" -c "$predict"
psql -qc "SELECT rows, accuracy, roc_auc FROM evaluate_sgd('adult', 'adult', 'split = ''test''')" \
     -c "SELECT column_name, encoding, features FROM corgipile.model_encoding('adult') LIMIT 4" \
     -c "SELECT e.name, round(e.value::numeric, 2) AS value, round(e.contribution::numeric, 2) AS contribution
         FROM (SELECT * FROM adult WHERE split = 'test' ORDER BY fnlwgt LIMIT 1) AS a, explain_prediction('adult', a) AS e LIMIT 5"

say
say "make server && make psql gives you a private server of your own."
