-- Judging, explaining, exporting and importing models.
SET client_min_messages = warning;
\set SHOW_CONTEXT never
-- Classes that overlap; a third one; a quantity; a text and a boolean target; sparse features.
CREATE TABLE judged AS
SELECT id, ARRAY[noise(id, 1), noise(id, 2), noise(id, 3)] AS features_v,
       (noise(id, 1) + 0.5 * noise(id, 4) > 0.1)::int AS label,
       CASE WHEN noise(id, 1) + 0.4 * noise(id, 4) > 0.1 THEN 'high' WHEN noise(id, 2) + 0.4 * noise(id, 5) > 0 THEN 'Low' ELSE 'mid''s' END AS level,
       noise(id, 1) > noise(id, 4) AS yes,
       (3 * noise(id, 1) - 2 * noise(id, 2) + 0.3 * noise(id, 4))::float8 AS amount,
       ARRAY[1, 2, 3] AS k
FROM generate_series(1, 3000) AS id;
SELECT train_sgd('judged', model_name => 'binary'), train_sgd('judged', 'level', '{features_v}', model_name => 'levels'),
       train_sgd('judged', 'yes', '{k,features_v}', model_name => 'sparse yes'), train_sgd('judged', 'amount', '{features_v}', model_name => 'amount'),
       train_sgd('judged', 'level', '{k,features_v}', model_name => 'sparse levels'),
       train_sgd('judged', 'label', '{features_v}', loss => 'hinge', model_name => 'hinge'),
       train_sgd('judged', 'yes', '{features_v}', loss => 'modified_huber', model_name => 'huber') \g /dev/null
CREATE FUNCTION rounded(x anyelement) RETURNS text LANGUAGE sql AS
    $$ SELECT string_agg(key || ' ' || coalesce(round(value::numeric, 6)::text, '-'), ', ') FROM jsonb_each_text(to_jsonb(x)) $$;
-- The numbers are those of scikit-learn for the same predictions (see CONTRIBUTING.md).
SELECT m AS model, rounded(e) FROM unnest('{binary,levels,sparse yes,amount,hinge,huber}'::text[]) AS m, LATERAL evaluate_sgd(m, 'judged') AS e;
SELECT m AS model, c.class, c.support, round(c."precision"::numeric, 6) AS "precision", round(c.recall::numeric, 6) AS recall, round(c.f1_score::numeric, 6) AS f1
FROM unnest('{levels,sparse yes}'::text[]) AS m, LATERAL evaluate_classes(m, 'judged') AS c;
SELECT * FROM confusion_matrix('levels', 'judged');
SELECT * FROM confusion_matrix('binary', 'judged', filter => 'id <= 100');
SELECT rounded(evaluate_sgd('binary', 'judged', 'id <= 100 AND label IN (0, 1)'));
-- The id instead of the name; the aggregate by itself; in parallel; nothing to judge on; NULLs are left out.
SELECT (SELECT e FROM evaluate_sgd((SELECT model_id FROM corgipile.models WHERE model_name = 'binary'), 'judged') e) = evaluate_sgd('binary', 'judged') AS by_id;
SELECT round(corgipile.roc_auc(predict_score('binary', features_v), label = 1)::numeric, 6) AS auc, corgipile.roc_auc(1, true) AS one_class, corgipile.roc_auc(NULL, NULL) AS nothing FROM judged;
SELECT corgipile.roc_auc(s, p) FROM (VALUES (0.1::float8, false), (0.4, false), (0.35, true), (0.8, true), (NULL, true), (0.5, NULL)) AS v(s, p);
SELECT corgipile.roc_auc('NaN', true);
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
EXPLAIN (COSTS OFF) SELECT corgipile.roc_auc(features_v[1], label = 1) FROM judged;
SELECT round(corgipile.roc_auc(features_v[1], label = 1)::numeric, 9) AS in_parallel FROM judged;
SET max_parallel_workers_per_gather = 0;
SELECT round(corgipile.roc_auc(features_v[1], label = 1)::numeric, 9) AS alone FROM judged;
RESET parallel_setup_cost; RESET parallel_tuple_cost; RESET min_parallel_table_scan_size; RESET max_parallel_workers_per_gather;
SELECT rounded(evaluate_sgd('binary', 'judged', 'false'));
CREATE TABLE some_null AS SELECT CASE WHEN id > 10 THEN label END AS label, CASE WHEN id % 2 = 0 THEN features_v END AS features_v FROM judged WHERE id <= 20;
SELECT rows FROM evaluate_sgd('binary', 'some_null');
-- Errors: no such model, column or class; a quantity; a filter that is none.
SELECT evaluate_sgd('no such', 'judged');
SELECT evaluate_sgd('binary', NULL);
SELECT evaluate_sgd('levels', 'some_null');
SELECT evaluate_sgd('binary', 'judged', 'no_such > 1');
CREATE TABLE more_classes AS SELECT features_v, id % 3 AS label FROM judged WHERE id < 10;
SELECT evaluate_sgd('binary', 'more_classes');
SELECT evaluate_classes('binary', 'more_classes');
SELECT * FROM confusion_matrix('binary', 'more_classes');
SELECT confusion_matrix('amount', 'judged');
SELECT evaluate_classes('amount', 'judged');
-- Weights, and what they add up to.
SELECT class, feature, round(weight::numeric, 3) AS weight FROM corgipile.model_weights('levels');
SELECT feature, round(weight::numeric, 3) AS weight FROM corgipile.model_weights('binary');
SELECT feature, value, round(weight::numeric, 3) AS weight, round(contribution::numeric, 3) AS contribution FROM explain_prediction('binary', ARRAY[1, 0.5, -1]);
SELECT m AS model, abs((SELECT sum(contribution) FROM explain_prediction(m, features_v)) - predict_score(m, features_v)) < 1e-6 AS adds_up
FROM judged, unnest('{binary,levels,amount}'::text[]) AS m WHERE id = 7;
-- And so do whole rows.
SELECT m AS model, max(abs((SELECT sum(contribution) FROM explain_prediction(m, r)) - predict_score(m, r))) < 1e-5 AS adds_up
    FROM unnest('{binary,levels,amount,sparse yes}'::text[]) AS m, (SELECT id, k, features_v FROM judged LIMIT 50) AS r GROUP BY m ORDER BY m;
SELECT explain_prediction('binary', 5);
SELECT abs((SELECT sum(contribution) FROM explain_prediction('sparse yes', k[2:], features_v[2:])) - predict_score('sparse yes', k[2:], features_v[2:])) < 1e-6 AS adds_up FROM judged WHERE id = 7;
SELECT corgipile.loss_curve('binary') ~ '^[▁▂▃▄▅▆▇█]+  [0-9.]+ → [0-9.]+$' AS curve;
-- Row by row: all that is said of a row whose columns are found by name, whatever else it has.
SELECT id, p.prediction, round(p.probability::numeric, 4) AS probability, p.score = predict_score('levels', features_v) AS same_score
FROM judged, predict_by(judged, 'levels') AS p WHERE id < 4 ORDER BY id;
SELECT p.prediction FROM (SELECT 'x' AS other, ARRAY[1, 2, 3]::real[] AS features_v) AS q, predict_by(q, (SELECT model_id FROM corgipile.models WHERE model_name = 'binary')) AS p;
SELECT p FROM (SELECT 1 AS other) AS q, predict_by(q, 'binary') AS p;
-- A prediction may change, so that nothing may be kept of it that PostgreSQL would not look after.
CREATE INDEX ON judged (predict('binary', features_v));
ALTER TABLE judged ADD COLUMN predicted text GENERATED ALWAYS AS (predict('binary', features_v)) STORED;
-- Scores as plain SQL.
CREATE FUNCTION same_scores(m text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE same boolean; one record;
BEGIN
    SELECT * INTO one FROM export_model_sql(m);
    EXECUTE format('SELECT bool_and(abs(%s - predict_score($1, %s)) < 1e-6) FROM judged', one.score_sql, CASE WHEN m ~ 'sparse' THEN 'k, features_v' ELSE 'features_v' END) INTO same USING m;
    RETURN same;
END $$;
SELECT m AS model, same_scores(m) FROM unnest('{binary,amount,hinge,sparse yes}'::text[]) AS m;
SELECT class, score_sql LIKE '%unnest(features_v%' AS of_features FROM export_model_sql('levels');
-- One expression a class: the largest is the prediction and its score, and all of them give the probabilities.
CREATE FUNCTION same_classes(m text, source regclass, OUT rows bigint, OUT score bigint, OUT class bigint, OUT probability bigint) LANGUAGE plpgsql AS $$
DECLARE list text := (SELECT string_agg(format('(%L, %s)', e.class, e.score_sql), ', ') FROM export_model_sql(m) AS e);
BEGIN
    EXECUTE format($query$SELECT count(*), count(*) FILTER (WHERE abs(predict_score(%1$L, r) - best.score) < 1e-5 * (1 + abs(best.score))),
        count(*) FILTER (WHERE predict(%1$L, r) = best.class), count(*) FILTER (WHERE abs(predict_proba(%1$L, r, other.class) - other.p) < 1e-5)
        FROM %2$s AS r, LATERAL (SELECT c, s FROM (VALUES %3$s) AS e(c, s) ORDER BY s DESC, c LIMIT 1) AS best(class, score),
        LATERAL (SELECT c, exp(s - best.score) / sum(exp(s - best.score)) OVER () FROM (VALUES %3$s) AS e(c, s) ORDER BY c LIMIT 1) AS other(class, p)$query$, m, source, list)
        INTO rows, score, class, probability;
END $$;
SELECT m AS model, s.* FROM unnest('{levels,sparse levels}'::text[]) AS m, same_classes(m, 'judged') AS s;
-- Export and import: the same bits, under another name; hostile input.
SELECT m AS model, model_vector(import_model(export_model(m))) = model_vector(m) AS same_weights,
       corgipile.model_info(import_model(export_model(m), m || ' again')) = corgipile.model_info(m) AS same_header
FROM unnest('{binary,levels,sparse yes,amount}'::text[]) AS m;
SELECT bool_and(predict('levels again', features_v) = predict('levels', features_v)) AS same_predictions FROM judged;
SELECT source FROM corgipile.models WHERE model_name = 'levels again';
SELECT jsonb_object_keys(export_model('binary')) AS keys ORDER BY 1;
SELECT import_model(NULL);
SELECT import_model('{}');
SELECT import_model('[1, 2]');
SELECT import_model(jsonb_set(export_model('binary'), '{header,n_features}', '1000000000000'));
SELECT import_model(jsonb_set(export_model('binary'), '{coef_,0,1}', '1e300'));
SELECT import_model(jsonb_set(export_model('binary'), '{coef_,0,1}', '"NaN"'));
SELECT import_model(jsonb_set(export_model('binary'), '{coef_,0}', '[]'));
SELECT import_model(jsonb_set(export_model('binary'), '{corgipile_model}', '99'));
SELECT import_model(jsonb_set(export_model('binary'), '{header,target_type}', '"int); DROP TABLE judged; --"'));
SELECT import_model(jsonb_set(export_model('binary'), '{header,target_type}', '"no_such_type"'));
SELECT import_model(export_model('binary'), '12');
-- Another role sees nothing of it.
CREATE ROLE corgi_carol;
GRANT SELECT ON judged TO corgi_carol;
SET ROLE corgi_carol;
SELECT evaluate_sgd('binary', 'judged');
SELECT confusion_matrix('binary', 'judged');
SELECT export_model('binary');
SELECT export_model_sql('binary');
SELECT corgipile.model_weights('binary');
SELECT explain_prediction('binary', ARRAY[1, 2, 3]);
SELECT corgipile.loss_curve('binary');
RESET ROLE;
DROP OWNED BY corgi_carol;
DROP ROLE corgi_carol;

-- A filter is the caller's: names are looked up where the caller would, and it sees the source's columns alone.
CREATE FUNCTION is_test(bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT $1 % 2 = 0 $$;
SELECT rows FROM evaluate_sgd('binary', 'judged', 'is_test(id)');
SELECT rows FROM evaluate_sgd('amount', 'judged', 'is_test(id)');
SELECT sum(count) FROM confusion_matrix('levels', 'judged', 'is_test(id)');
SELECT corgipile.report('levels', 'judged', 'is_test(id)') LIKE '%Confusion%' AS judged;
SELECT evaluate_sgd('binary', 'judged', 'score > 0');
SELECT evaluate_sgd('binary', 'judged', 'actual = 1');
CREATE VIEW judged_scores AS SELECT *, id AS score, id AS actual, 1 AS predicted FROM judged;
SELECT rows, accuracy = (SELECT accuracy FROM evaluate_sgd('binary', 'judged', 'id > 100')) AS same FROM evaluate_sgd('binary', 'judged_scores', 'score > 100 AND actual > 100');
-- Classes that do not occur and are not predicted do not count; two classes do.
SELECT rows, accuracy, precision, recall, f1_score FROM evaluate_sgd('levels', 'judged', $$predict('levels', features_v) = level AND level <> 'high'$$);
-- Arrays that do not begin at 1.
SELECT round(sum(contribution)::numeric, 5) = round(predict_score('binary', '[0:2]={1,2,3}'::float8[])::numeric, 5) AS adds_up
FROM explain_prediction('binary', '[0:2]={1,2,3}'::float8[]);
-- Where there is no prediction, the expression has none.
SELECT format('SELECT count(*), count(s), max(CASE WHEN id > 0 THEN abs(s - predict_score(''binary'', features_v)) END) < 1e-5 AS same FROM (SELECT *, %s AS s FROM (SELECT id, features_v FROM judged UNION ALL SELECT 0, NULL UNION ALL SELECT -1, ''{1}'' UNION ALL SELECT -2, ''{1,2,NULL}'') AS x) AS y WHERE id > 0 OR s IS NULL', score_sql) AS query
FROM export_model_sql('binary') \gset
:query;
-- A model may be used in the statement that makes it.
SELECT grant_model(train_sgd('judged', max_epochs => 1), 'public');
SELECT rows FROM evaluate_sgd(train_sgd('judged', max_epochs => 1), 'judged');
-- A page about a model.
SELECT page LIKE '<!DOCTYPE html>%</html>%' AS whole, page LIKE '%Confusion matrix on public.judged%' AS judged, page LIKE '%Loss by epoch%' AS loss,
       page LIKE '%features_v[1]%' AS weights, page NOT LIKE '%<script%' AS no_script,
       page !~* '(src|href)\s*=|url\s*\(|@import|<(link|iframe|object|embed|base)\M' AS nothing_fetched
FROM corgipile.report('levels', 'judged') AS page;
SELECT corgipile.report('amount') LIKE '%Confusion%' AS judged, corgipile.report(NULL::text) IS NULL AS none;
SELECT corgipile.report('no such model');
-- Whole rows: the planner takes them apart.
CREATE TABLE rows_of (gone int, label int, id int, features_v real[], notes text);
ALTER TABLE rows_of DROP COLUMN gone;
INSERT INTO rows_of SELECT label, id, features_v, repeat('x', id % 7) FROM dense;
SELECT train_sgd('rows_of', features => '{features_v}', model_name => 'by row') > 0 AS trained;
EXPLAIN (VERBOSE, COSTS OFF) SELECT predict('by row', r), predict_proba('by row', r, '1') FROM rows_of r WHERE predict_score('by row', r) > 0;
SELECT count(*) FILTER (WHERE predict('by row', r) = predict('by row', features_v)) = count(*) AS classes,
       max(abs(predict_score('by row', r) - predict_score('by row', features_v))) AS scores,
       max(abs(predict_proba('by row', r) - predict_proba('by row', features_v))) AS own,
       max(abs(predict_proba('by row', r, '0') - predict_proba('by row', features_v, '0'))) AS of_class FROM rows_of r;
-- Which model a name means, and which columns it needs, is found when the plan runs.
PREPARE by_row AS SELECT count(*), count(DISTINCT predict('by row', r)) FROM rows_of r;
SET plan_cache_mode = force_generic_plan;
EXECUTE by_row;
SELECT train_sgd('rows_of', features => '{id,notes}', model_name => 'by row') > 0 AS trained;
EXECUTE by_row;
ALTER TABLE rows_of RENAME notes TO remarks;
EXECUTE by_row;
ALTER TABLE rows_of RENAME remarks TO notes;
ALTER TABLE rows_of DROP COLUMN features_v, ADD COLUMN features_v real[];
EXECUTE by_row;
RESET plan_cache_mode;
-- Rows that may be NULL as a whole, rows of other shapes, children, parameters.
SELECT count(*), count(predict('by row', r)) AS predicted FROM generate_series(0, 3) AS n LEFT JOIN rows_of r ON r.id = n;
SELECT predict('by row', x) IS NOT NULL AS of_subquery FROM (SELECT notes, id, 7 AS more FROM rows_of LIMIT 1) AS x;
CREATE VIEW notes_of AS SELECT id, notes FROM rows_of WHERE id < 10;
SELECT count(predict('by row', v)) FROM notes_of v;
SELECT count(predict(m, r)) FROM rows_of r, unnest('{by row}'::text[]) AS m;
SELECT count(*) FROM (SELECT predict('by row', r), r FROM rows_of r GROUP BY r) AS x;
CREATE TABLE rows_below (more int) INHERITS (rows_of);
INSERT INTO rows_below (id, notes) VALUES (1, 'xx');
SELECT count(predict('by row', r)) FROM rows_of r;
SELECT predict('by row', r) FROM rows_of r WHERE id IS NULL;
INSERT INTO rows_of (id) VALUES (NULL);
SELECT predict('by row', r) FROM rows_of r WHERE id IS NULL;
UPDATE rows_of r SET notes = 'y' WHERE id = 1 RETURNING predict('by row', r) IS NOT NULL AS predicted;
DROP TABLE rows_of CASCADE;
-- The functions that a row is taken apart for can be called with anything.
CREATE TABLE apart (x numeric, y boolean);
INSERT INTO apart SELECT i, i % 2 = 0 FROM generate_series(1, 50) AS i;
SELECT train_sgd('apart', 'y', model_name => 'apart', max_epochs => 1) > 0 AS trained;
SELECT corgipile.row_score('apart', NULL::apart, 1::numeric, true) IS NOT NULL AS right_types;
SELECT corgipile.row_score('apart', NULL::apart, 1::int8, true);
SELECT corgipile.row_score('apart', NULL::apart, 'abc', true);
SELECT corgipile.row_score('apart', NULL::apart, VARIADIC ARRAY[1, 2]);
SELECT corgipile.row_score('apart', NULL::apart);
DO $$ BEGIN
    FOR i IN 1 .. 2 LOOP
        BEGIN PERFORM corgipile.row_score('apart', NULL::apart, i::int8, true); EXCEPTION WHEN datatype_mismatch THEN RAISE WARNING '%', sqlerrm; END;
    END LOOP;
END $$;
-- A row's type that is altered after the row was taken apart.
CREATE TYPE one_number AS (x float8);
CREATE VIEW scored AS SELECT predict_score('apart', ROW(x::float8)::one_number) AS s FROM apart;
PREPARE scored AS SELECT count(predict_score('apart', ROW(x::float8)::one_number)) FROM apart;
SELECT count(s) FROM scored;
EXECUTE scored;
DROP VIEW scored;
ALTER TYPE one_number ALTER ATTRIBUTE x TYPE numeric;
EXECUTE scored;
-- Without the right to call predict, or the function beneath, a row makes no difference.
CREATE ROLE corgi_dora;
GRANT SELECT ON apart TO corgi_dora;
SELECT grant_model('apart', 'corgi_dora');
REVOKE EXECUTE ON FUNCTION predict(text, record) FROM PUBLIC;
SET ROLE corgi_dora;
SELECT predict('apart', a) FROM apart AS a LIMIT 1;
RESET ROLE;
GRANT EXECUTE ON FUNCTION predict(text, record) TO PUBLIC;
REVOKE EXECUTE ON FUNCTION corgipile.row_predict(text, "any", "any") FROM PUBLIC;
SET ROLE corgi_dora;
SELECT predict('apart', a) IS NOT NULL AS predicted FROM apart AS a LIMIT 1;
RESET ROLE;
GRANT EXECUTE ON FUNCTION corgipile.row_predict(text, "any", "any") TO PUBLIC;
DROP OWNED BY corgi_dora;
DROP ROLE corgi_dora;
-- A class that is NULL has no probability, also of a model that has none.
SELECT predict_proba('hinge', j, NULLIF(j.id::text, j.id::text)) IS NULL AS none FROM judged AS j LIMIT 1;
-- Predictions in parallel plans.
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
EXPLAIN (COSTS OFF) SELECT count(predict('binary', features_v)) FROM judged;
EXPLAIN (COSTS OFF) SELECT count(*) FROM judged PREDICT BY 'binary' WHERE prediction = 1;
SELECT (SELECT count(*) FROM judged PREDICT BY 'binary' WHERE prediction = 1) = (SELECT count(*) FROM judged WHERE predict('binary', features_v) = '1') AS same;
SELECT id FROM judged ORDER BY predict_score('binary', features_v) DESC LIMIT 3;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
