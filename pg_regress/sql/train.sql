-- train_sgd, the views, predictions by every function.
\set VERBOSITY terse
SELECT train_sgd('dense');
SELECT train_sgd('dense', 'label', '{features_v}', loss => 'hinge', model_name => 'svm', max_epochs => 5);
SELECT train_sgd('sparse', model_name => 'words');
SELECT train_sgd('line', 'y', '{x}', learning_rate => 0.1, l2_reg => 0, model_name => 'line', tolerance => 0);
SELECT train_sgd('dense', max_epochs => 2, verbose => true, batch_size => 16, seed => 7, fit_intercept => false);

SELECT model_id, model_name, source, loss, target, target_type, features, classes, n_features, rows_used, rows_skipped, epochs, stop_reason
FROM corgipile.models ORDER BY model_id;
SELECT model_id, count(*), min(epoch), max(epoch), bool_and(rows > 0) AS has_rows, bool_and(loss < 10) AS loss_is_sane,
       bool_and((accuracy IS NULL) = (model_id = 4)) AS accuracy_of_classifiers
FROM corgipile.training_history GROUP BY model_id ORDER BY model_id;

SELECT accuracy('dense', 1) > 75 AS dense, accuracy('dense', 2) > 75 AS svm, accuracy('sparse', 3) AS sparse;
-- The line is found.
SELECT round(w::numeric, 1) FROM unnest(corgipile.weights_of('line')) AS w;
SELECT model_vector('line') = (corgipile.weights_of('line'))[:2] AS without_the_intercept;

-- By id, by name, by id as text, by value; arrays of every type; a row.
SELECT predict(1, features_v) AS by_id, predict('svm', features_v) AS by_name, predict('1', features_v) AS id_as_text,
       predict(1, d) AS by_row, predict(1, features_v::float8[]) AS double,
       round(predict_score(1, features_v)::numeric, 3) = round(predict_score(1, features_v::float8[])::numeric, 3) AS same
FROM dense AS d WHERE id IN (1, 2) ORDER BY id;
SELECT predict(1, ARRAY[2, 0, 1]) AS integers, predict(1, ARRAY[2, 0, 1]::bigint[]) AS bigints, predict(1, ARRAY[2, 0, 1]::smallint[]) AS smallints;
SELECT predict('words', features_k, features_v), predict('words', s) FROM sparse AS s WHERE id IN (1, 3) ORDER BY id;
-- A feature that was never seen has no weight.
SELECT predict_score('words', '{900}'::int[], '{5}'::real[]) = (corgipile.weights_of('words'))[8] AS only_the_intercept;
-- Probabilities: of the predicted class, and by class; they add up; the larger is predicted.
SELECT count(*) FILTER (WHERE abs(predict_proba(1, features_v, '0') + predict_proba(1, features_v, '1') - 1) > 1e-12) AS not_one,
       count(*) FILTER (WHERE predict_proba(1, features_v) <> predict_proba(1, features_v, predict(1, features_v))) AS other_class,
       count(*) FILTER (WHERE predict_proba(1, features_v) < 0.5) AS not_the_larger
FROM dense;
SELECT probability AS hinge_has_none FROM dense PREDICT BY 'svm' WHERE id = 1;
SELECT predict(NULL::bigint, features_v) IS NULL AND predict(1, NULL::real[]) IS NULL AS null_in_null_out FROM dense WHERE id = 1;
SELECT predict_value('line', x) BETWEEN 0 AND 10 AS value, predict('line', x)::float8 = predict_value('line', x) AS same FROM line WHERE id = 1;

-- A model value: from the aggregate, through text and bytes.
CREATE TABLE kept AS SELECT corgipile.sgd(label, features_v) AS m FROM dense;
SELECT model_vector(m) = model_vector(1) AS same_as_train_sgd, predict(m, '{2,0,1}'::real[]) = predict(1, '{2,0,1}'::real[]) AS same_prediction,
       m::text::corgipile.model::text = m::text AS text_round_trip, corgipile.model_from_bytes(corgipile.model_send(m))::text = m::text AS byte_round_trip
FROM kept;
-- The same seed gives the same bits; another seed, another model.
SELECT model_vector(corgipile.sgd(label, features_v)) = model_vector(1) AS same_seed FROM dense;
SELECT model_vector(corgipile.sgd(label, features_v, '{"seed": 2}')) = model_vector(1) AS other_seed FROM dense;
SET corgipile.async_compute = off;
SELECT model_vector(corgipile.sgd(label, features_v)) = model_vector(1) AS same_without_the_thread FROM dense;
RESET corgipile.async_compute;

-- Labels of every type come back as they were, sorted.
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE labels AS
    SELECT id, features_v, label = 1 AS b, label::smallint AS i2, label::bigint AS i8, (label * 2.5)::numeric AS num, label::float8 - 0.5 AS f8,
           CASE label WHEN 1 THEN 'yes' ELSE 'no' END AS t, CASE label WHEN 1 THEN 'Y' ELSE 'N' END::char(3) AS c,
           CASE label WHEN 1 THEN 'happy' ELSE 'sad' END::mood AS e, date '2020-01-01' + label AS d, CASE label WHEN 1 THEN -1 ELSE 1 END AS minus
    FROM dense;
DO $$
DECLARE
    columns text[] := '{b,i2,i8,num,f8,t,c,e,d,minus}';
    c text;
BEGIN
    FOREACH c IN ARRAY columns LOOP
        PERFORM train_sgd('labels', c, model_name => 'labels ' || c, max_epochs => 3);
    END LOOP;
END $$;
SELECT model_name, target_type, classes, loss FROM corgipile.models WHERE model_name LIKE 'labels %' ORDER BY model_id;
SELECT pg_typeof(prediction), count(*) FILTER (WHERE prediction = e) > 3000 AS good FROM labels PREDICT BY 'labels e' GROUP BY 1;
SELECT pg_typeof(prediction), count(*) FILTER (WHERE prediction = b) > 3000 AS good FROM labels PREDICT BY 'labels b' GROUP BY 1;
SELECT pg_typeof(prediction), count(*) FILTER (WHERE prediction = d) > 3000 AS good FROM labels PREDICT BY 'labels d' GROUP BY 1;
SELECT pg_typeof(prediction), count(*) FILTER (WHERE prediction = num) > 3000 AS good FROM labels PREDICT BY 'labels num' GROUP BY 1;
SELECT pg_typeof(prediction), count(*) FILTER (WHERE prediction = minus) > 3000 AS good FROM labels PREDICT BY 'labels minus' GROUP BY 1;
-- The coding of the classes does not show: swapped labels give the same predictions of the same rows.
SELECT count(*) FROM labels AS a PREDICT BY 'labels i8' JOIN labels AS b PREDICT BY 'labels minus' USING (id) WHERE (a.prediction = 1) <> (b.prediction = -1);
-- Three values and more in a numeric column are a quantity, also when they come late.
CREATE TABLE late AS SELECT id, features_v, label FROM dense UNION ALL SELECT 5000, '{2,0,1}', 2;
SELECT train_sgd('late', model_name => 'late', max_epochs => 3);
SELECT loss, classes, target FROM corgipile.models WHERE model_name = 'late';

-- Every loss and optimizer; more than two classes make softmax, also when they come late.
CREATE TABLE flowers AS
    SELECT id, kind, ARRAY[noise(id, 1) + kind_number, noise(id, 2) - 2 * (kind_number % 2)]::real[] AS features_v
    FROM (SELECT id, id % 3 AS kind_number, ('{rose,tulip,aster}'::text[])[id % 3 + 1] AS kind FROM generate_series(1, 3000) AS id) AS rows
    ORDER BY kind, id;
SELECT train_sgd('flowers', 'kind', model_name => 'flowers');
SELECT cardinality(model_vector('flowers')) AS weights, model_vector('flowers', 'rose') || model_vector('flowers', 'tulip') = (model_vector('flowers'))[3:] AS of_classes;
SELECT try($$SELECT model_vector('flowers', 'oak')$$), try($$SELECT model_vector('line', '1')$$);
SELECT model_vector('svm', '1') = model_vector('svm') AS second, (model_vector('svm', '0'))[1] = -(model_vector('svm'))[1] AS first;
SELECT loss, classes, n_features, array_length(corgipile.weights_of('flowers'), 1) AS weights FROM corgipile.models WHERE model_name = 'flowers';
SELECT pg_typeof(prediction), count(*) FILTER (WHERE prediction = kind) > 2900 AS good, min(probability) > 1.0 / 3 AS at_least_a_third
FROM flowers PREDICT BY 'flowers' GROUP BY 1;
SELECT count(*) FILTER (WHERE abs(predict_proba('flowers', features_v, 'rose') + predict_proba('flowers', features_v, 'tulip')
                                  + predict_proba('flowers', features_v, 'aster') - 1) > 1e-12) AS not_one FROM flowers;
SELECT train_sgd('flowers', 'kind', model_name => 'one by one', shuffle => 'none', block_size => '8kB', buffer_size => '8kB', max_epochs => 2);
SELECT classes FROM corgipile.models WHERE model_name = 'one by one';
SELECT train_sgd('dense', loss => 'softmax', model_name => 'two', max_epochs => 5) > 0 AS softmax_of_two;
SELECT accuracy('dense', model_id) > 75 AS good FROM corgipile.models WHERE model_name = 'two';
SET client_min_messages = warning;
SELECT loss, optimizer, accuracy('dense', train_sgd('dense', loss => loss, optimizer => optimizer, max_epochs => 5)) > 75 AS good
FROM unnest('{log_loss,hinge,squared_hinge,modified_huber}'::text[]) AS loss, unnest('{sgd,momentum,adagrad,adam}'::text[]) AS optimizer;
-- A tenth of the rows are of one class: found by none unless they count for more.
CREATE TABLE rare AS SELECT id, features_v, CASE label WHEN 1 THEN 'rare' ELSE 'usual' END AS label
FROM (SELECT id, ARRAY[noise(id, 1) + 0.3 * (id % 10 = 0)::int] AS features_v, (id % 10 = 0)::int AS label FROM generate_series(1, 5000) id) x ORDER BY label;
CREATE FUNCTION found(model bigint) RETURNS numeric LANGUAGE sql AS
    $$ SELECT round(avg((predict(model, features_v) = 'rare')::int), 1) FROM rare WHERE label = 'rare' $$;
SELECT found(train_sgd('rare')) AS plain, found(train_sgd('rare', class_weight => 'balanced')) > 0.5 AS balanced,
       found(train_sgd('rare', class_weight => '{"rare": 9}')) > 0.5 AS given;
CREATE FUNCTION rmse(model bigint) RETURNS numeric LANGUAGE sql AS
    $$ SELECT round(sqrt(avg((predict_value(model, x) - y) ^ 2))::numeric, 2) FROM line $$;
SELECT loss, schedule, rmse(train_sgd('line', 'y', '{x}', loss => loss, schedule => schedule)) < 0.1 AS good
FROM unnest('{squared_error,huber,epsilon_insensitive}'::text[]) AS loss, unnest('{exponential,inverse,constant}'::text[]) AS schedule;
SELECT count(*) FILTER (WHERE w = 0) > 0 AS l1_makes_zeros
FROM unnest(model_vector(train_sgd('dense', l1_reg => 0.2, average => false, standardize => false, learning_rate => 0.01))) AS w;
RESET client_min_messages;
-- Names and dropping.
SELECT drop_model('late'), drop_model('late', true), drop_model(1);
SELECT count(*) FROM corgipile.models WHERE model_id = 1 OR model_name = 'late';
-- In a transaction block the notice says when others will see the model, and ROLLBACK forgets it.
\set VERBOSITY default
\set SHOW_CONTEXT never
BEGIN;
SET LOCAL client_min_messages = warning;
SELECT train_sgd('dense', model_name => 'gone') > 0 AS trained;
ROLLBACK;
SELECT count(*) FROM corgipile.models WHERE model_name = 'gone';
-- The usual form of a dense table has an empty column features_k.
CREATE TABLE usual AS SELECT id, NULL::int[] AS features_k, features_v, label FROM dense;
\set VERBOSITY terse
SELECT train_sgd('usual', model_name => 'usual', max_epochs => 1);
SELECT features FROM corgipile.models WHERE model_name = 'usual';

-- ---- weight: a row that counts 0 is absent, whatever it holds; one that counts 2 is there twice.
SET client_min_messages = warning;
CREATE TABLE heavy AS
    SELECT id, features_v, label, 1 + id % 2 AS w FROM dense
    UNION ALL SELECT -1, '{1}', 7, 0 UNION ALL SELECT -2, NULL, NULL, 0
    ORDER BY label, id;
CREATE TABLE twice AS SELECT h.* FROM heavy h, generate_series(1, w) ORDER BY label, id;
SELECT train_sgd('heavy', weight => 'w', model_name => 'heavy', final_loss => true, max_epochs => 40, decay => 0.9, tolerance => 0) > 0 AS trained;
SELECT train_sgd('twice', model_name => 'twice', final_loss => true, max_epochs => 40, decay => 0.9, tolerance => 0) > 0 AS trained;
SELECT m.rows_used, m.rows_skipped, corgipile.model_info(model_name) ->> 'weight' AS weight FROM corgipile.models m WHERE model_name IN ('heavy', 'twice') ORDER BY 1;
SELECT max(abs(a - b)) < 0.02 AS same_weights FROM unnest(model_vector('heavy'), model_vector('twice')) AS w(a, b);
SELECT abs(a.train_loss - b.train_loss) < 1e-4 AS same_loss FROM corgipile.models a, corgipile.models b WHERE a.model_name = 'heavy' AND b.model_name = 'twice';
SELECT model_vector(corgipile.sgd(label, features_v, NULL, w)) = model_vector(corgipile.sgd(label, features_v, '{}', w::float8)) AS weight_of_any_type FROM heavy;
-- As a plain aggregate, and for sparse features.
SELECT id % 3 AS part, corgipile.model_info(corgipile.sgd(label, features_v, NULL, other::int)) ->> 'rows' AS some_rows
FROM (SELECT *, noise(id, 9) > 0 AS other FROM heavy WHERE w > 0) h GROUP BY id % 3 ORDER BY 1;
SELECT corgipile.model_info(corgipile.sgd(label, features_k, features_v, NULL, id % 2)) ->> 'rows' AS odd_rows FROM sparse;
SELECT corgipile.sgd(label, features_v, NULL, 0) IS NULL AS nothing_counts FROM dense;

-- ---- final_loss: the mean of −ln(probability of the label) of the stored model.
SELECT train_sgd('dense', model_name => 'exact', final_loss => true) > 0 AS trained;
SELECT abs(m.train_loss - (SELECT avg(-ln(predict_proba('exact', features_v, label::text))) FROM dense)) < 1e-6 AS exact,
       (corgipile.model_info('exact') #>> '{measured,rows}')::bigint = m.rows_used AS all_rows
FROM corgipile.models m WHERE model_name = 'exact';
SELECT model_vector('exact') = model_vector(corgipile.sgd(label, features_v)) AS same_model FROM dense;

-- ---- eval_fraction: the same rows are held out whatever the order; they are not trained on.
SELECT train_sgd('dense', model_name => 'judged', eval_fraction => 0.25, max_epochs => 4, tolerance => 0) > 0 AS trained;
SELECT rows_used + rows_held_out = (SELECT count(*) FROM dense) AS all_rows, rows_held_out BETWEEN 900 AND 1100 AS a_quarter,
       eval_loss < 1 AS judged, eval_accuracy > 0.75 AS good FROM corgipile.models WHERE model_name = 'judged';
SELECT count(*), count(DISTINCT eval_rows), bool_and(h.eval_loss < 1 AND h.eval_accuracy > 0.7) AS every_epoch
FROM corgipile.training_history h JOIN corgipile.models USING (model_id) WHERE model_name = 'judged';
SELECT count(DISTINCT corgipile.model_info(m) ->> 'rows_held_out') AS in_any_order
FROM (SELECT corgipile.sgd(label, features_v, jsonb_build_object('eval_fraction', 0.25, 'max_epochs', 2, 'shuffle', s.shuffle)) AS m
      FROM dense, unnest('{none,corgipile,block_only}'::text[]) AS s(shuffle) GROUP BY s.shuffle) AS models;
SELECT (corgipile.model_info(corgipile.sgd(label, features_v, '{"eval_fraction": 0.25, "shuffle": "none", "max_epochs": 2}')) -> 'rows')::int =
       (SELECT rows_used FROM corgipile.models WHERE model_name = 'judged') AS same_rows FROM dense;
-- Through a join there is no position: what the row holds decides, the same in every epoch.
SELECT (corgipile.model_info(m) ->> 'rows')::int + (corgipile.model_info(m) ->> 'rows_held_out')::int = (SELECT count(*) FROM dense) AS all_rows
FROM (SELECT corgipile.sgd(a.label, a.features_v, '{"eval_fraction": 0.25, "max_epochs": 3}') AS m FROM dense a JOIN dense b USING (id)) AS trained;

-- ---- warm_start: goes on from the stored weights.
SELECT train_sgd('dense', model_name => 'first', max_epochs => 20) > 0 AS trained;
SELECT train_sgd('dense', model_name => 'second', warm_start => 'first', max_epochs => 1, average => false, learning_rate => 1e-9) > 0 AS trained;
SELECT max(abs(a - b)) < 1e-3 AS hardly_moved FROM unnest(model_vector('first'), model_vector('second')) AS w(a, b);
SELECT train_sgd('sparse', model_name => 'words again', warm_start => 'words', max_epochs => 2) > 0 AS trained;
SELECT train_sgd('flowers', 'kind', model_name => 'flowers again', warm_start => 'flowers', max_epochs => 1) > 0 AS trained;
SELECT a.classes = b.classes AS same_classes, a.n_features = b.n_features AS same_features
FROM corgipile.models a, corgipile.models b WHERE a.model_name = 'flowers' AND b.model_name = 'flowers again';
SELECT train_sgd('line', 'y', '{x}', model_name => 'line again', warm_start => 'line', max_epochs => 1) > 0 AS trained;
SELECT rmse((SELECT model_id FROM corgipile.models WHERE model_name = 'line again')) < 0.1 AS good;
-- One class is enough where the model knows the other.
CREATE TABLE only_ones AS SELECT * FROM dense WHERE label = 1;
SELECT train_sgd('only_ones', model_name => 'more ones', warm_start => 'first', max_epochs => 1) > 0 AS trained;
SELECT classes FROM corgipile.models WHERE model_name = 'more ones';
SELECT max(abs(v - f)) < 0.2 AS near_the_first
FROM (SELECT corgipile.sgd(label, features_v, '{"warm_start": "first", "max_epochs": 1, "shuffle": "none"}') AS m FROM dense
      UNION ALL
      SELECT corgipile.sgd(label, features_v, '{"warm_start": "first", "max_epochs": 1, "shuffle": "none"}') FROM dense GROUP BY ()) AS models,
     unnest(model_vector(m), model_vector('first')) AS w(v, f);
RESET client_min_messages;
-- Sparse features in very different units: one column in ten thousands beside categories of 0 and 1.
CREATE TABLE units AS SELECT i > 1000 AS label, ARRAY[1 + (i * 7 % 5) + CASE WHEN i > 1000 AND i % 10 < 8 THEN 5 ELSE 0 END, 11] AS features_k,
    ARRAY[1, 30000 + (i * 7919 % 1000) * 40]::real[] AS features_v FROM generate_series(1, 2000) AS i;
SELECT train_sgd('units', model_name => 'units') > 0 AS trained, train_sgd('units', model_name => 'no units', standardize => false) > 0 AS also;
SELECT m AS model, round(accuracy::numeric, 2) AS accuracy FROM unnest('{units,no units}'::text[]) AS m, evaluate_sgd(m, 'units') ORDER BY m DESC;
-- The same where the pairs are columns that are encoded.
SELECT train_sgd('units', model_name => 'encoded units', on_null => 'zero') > 0 AS trained,
    train_sgd('units', model_name => 'encoded no units', on_null => 'zero', standardize => false) > 0 AS also;
SELECT m AS model, round(accuracy::numeric, 2) AS accuracy, corgipile.model_info(m) -> 'params' -> 'standardize' AS standardize
FROM unnest('{encoded units,encoded no units}'::text[]) AS m, evaluate_sgd(m, 'units') ORDER BY m DESC;
