-- Every order of visits: what it visits, how it is shown, what auto chooses.
SELECT setval('corgipile.model_id_seq', 500) AS ids_from;
SET client_min_messages = warning;
CREATE FUNCTION info(options jsonb) RETURNS jsonb LANGUAGE sql AS
    $$ SELECT corgipile.model_info(corgipile.sgd(label, features_v, options || '{"buffer_size": "16kB", "block_size": "8kB"}')) FROM dense $$;
-- Every tuple once an epoch (but for mrs), the same bits for the same seed, others for another.
SELECT s AS strategy, (m ->> 'rows')::int AS rows, m #>> '{params,shuffle}' AS ran,
       info(o) #>> '{history,1,loss}' = m #>> '{history,1,loss}' AS same_seed, info(o || '{"seed": 7}') #>> '{history,1,loss}' = m #>> '{history,1,loss}' AS other_seed,
       (m #>> '{history,-1,accuracy}')::float8 > 0.5 AS sane
FROM unnest('{corgipile,block_only,tuple_only,none,once,epoch,sliding_window}'::text[]) WITH ORDINALITY AS s(s, n)
CROSS JOIN LATERAL (SELECT jsonb_build_object('shuffle', s, 'max_epochs', 3) AS o) AS options
CROSS JOIN LATERAL info(o) AS m ORDER BY n;
SELECT model_vector(corgipile.sgd(label, features_v, '{"shuffle": "once", "max_epochs": 2}')) = model_vector(corgipile.sgd(label, features_v, '{"shuffle": "once", "max_epochs": 2}')) AS same,
       model_vector(corgipile.sgd(label, features_v, '{"shuffle": "once", "max_epochs": 2}')) = model_vector(corgipile.sgd(label, features_v, '{"shuffle": "once", "max_epochs": 2, "seed": 2}')) AS other_seed,
       model_vector(corgipile.sgd(label, features_v, '{"shuffle": "once", "max_epochs": 2}')) = model_vector(corgipile.sgd(label, features_v, '{"shuffle": "epoch", "max_epochs": 2}')) AS other_second_epoch,
       model_vector(corgipile.sgd(label, features_v, '{"shuffle": "once", "max_epochs": 1}')) = model_vector(corgipile.sgd(label, features_v, '{"shuffle": "epoch", "max_epochs": 1}')) AS same_first_epoch
FROM dense;
-- A reservoir: what it holds is trained on in the next epoch only, ratio times for each tuple dropped.
SELECT r AS ratio, (m #>> '{history,0,rows}')::int < 4000 AS fewer_at_first,
       (m #>> '{history,1,rows}')::int = (m #>> '{history,0,rows}')::int * (1 + r) AS then_with_the_loop
FROM unnest('{0,1,3}'::int[]) AS r, info(jsonb_build_object('shuffle', 'mrs', 'mrs_ratio', r, 'max_epochs', 2)) AS m;
SELECT m #>> '{history,0,rows}' AS a_table_that_fits FROM (SELECT corgipile.model_info(corgipile.sgd(label, features_v, '{"shuffle": "mrs", "max_epochs": 1}')) AS m FROM dense) x;
-- Sparse features, weights, held-out rows, a filter, text targets and values out of line in each.
CREATE TABLE long AS SELECT id, array_fill(noise(id, 3), ARRAY[700]) AS features_v, CASE WHEN id % 2 = 0 THEN 'even' ELSE 'odd' END AS label, id % 3 AS w
FROM generate_series(1, 300) AS id;
ALTER TABLE long ALTER features_v SET STORAGE EXTERNAL;
UPDATE long SET features_v = array_append(features_v, (id % 2)::real);
SELECT s AS strategy,
       (SELECT corgipile.model_info(corgipile.sgd(label, features_k, features_v, jsonb_build_object('shuffle', s, 'max_epochs', 2), id % 2)) ->> 'rows' FROM sparse WHERE id > 1000) AS sparse,
       (SELECT (corgipile.model_info(m) ->> 'rows')::int || ' + ' || (corgipile.model_info(m) ->> 'rows_held_out')::int
        FROM (SELECT corgipile.sgd(label, features_v, jsonb_build_object('shuffle', s, 'max_epochs', 2, 'eval_fraction', 0.2)) AS m FROM dense) x) AS held_out,
       (SELECT corgipile.model_info(corgipile.sgd(label, features_v, jsonb_build_object('shuffle', s, 'max_epochs', 30, 'learning_rate', 0.01), w)) #> '{history,-1,accuracy}' FROM long) AS long_rows
FROM unnest('{corgipile,none,once,epoch,sliding_window}'::text[]) WITH ORDINALITY AS s(s, n) ORDER BY n;
-- EXPLAIN.
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT corgipile.sgd(label, features_v, '{"shuffle": "once", "max_epochs": 3, "learning_rate": 0.1}') FROM dense;
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT corgipile.sgd(label, features_v, '{"shuffle": "epoch", "max_epochs": 3, "learning_rate": 0.1}') FROM dense;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v, '{"shuffle": "sliding_window"}') FROM dense;
-- The sort keeps to its memory and spills; a joined input is sorted too; a parameter starts it anew.
SET corgipile.memory_limit = '200kB';
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT corgipile.sgd(label, features_v, '{"shuffle": "once", "max_epochs": 2, "learning_rate": 0.1}') FROM dense;
SET temp_file_limit = '64kB';
SELECT try($$ SELECT corgipile.sgd(label, features_v, '{"shuffle": "once"}') FROM dense $$);
RESET temp_file_limit;
RESET corgipile.memory_limit;
SELECT corgipile.model_info(corgipile.sgd(a.label, b.features_v, '{"shuffle": "epoch", "max_epochs": 2}')) ->> 'rows' AS joined FROM dense a JOIN dense b USING (id);
SELECT below, (SELECT corgipile.model_info(corgipile.sgd(label, features_v, '{"shuffle": "once", "max_epochs": 2}')) ->> 'rows' FROM dense WHERE id < below) AS rows
FROM unnest('{1000,2000,500}'::int[]) AS below;
-- A third value that comes late: the sort begins anew with the training.
SELECT corgipile.model_info(corgipile.sgd(label, features_v, '{"shuffle": "none", "max_epochs": 2, "buffer_size": "8kB"}')) ->> 'loss' AS loss,
       corgipile.model_info(corgipile.sgd(label, features_v, '{"shuffle": "epoch", "max_epochs": 2, "buffer_size": "8kB"}')) ->> 'rows' AS rows FROM late;
-- auto: none for a shuffled table, corgipile for clustered ones; by label, by a feature, by a rare class.
CREATE TABLE shuffled AS SELECT * FROM dense ORDER BY hashint4(id);
CREATE TABLE by_feature AS SELECT * FROM dense ORDER BY features_v[3];
CREATE TABLE rare_last AS SELECT id, features_v, id > 3900 AS label FROM shuffled ORDER BY id > 3900;
CREATE TABLE flowers_shuffled AS SELECT * FROM flowers ORDER BY hashint4(id);
SELECT train_sgd('shuffled', model_name => 'auto shuffled') IS NOT NULL AND train_sgd('dense', model_name => 'auto dense') IS NOT NULL
   AND train_sgd('by_feature', model_name => 'auto by_feature') IS NOT NULL AND train_sgd('rare_last', model_name => 'auto rare') IS NOT NULL
   AND train_sgd('sparse', model_name => 'auto sparse') IS NOT NULL AND train_sgd('flowers', 'kind', model_name => 'auto flowers') IS NOT NULL
   AND train_sgd('flowers_shuffled', 'kind', model_name => 'auto flowers shuffled') IS NOT NULL
   AND train_sgd('line', 'y', '{x}', model_name => 'auto line') IS NOT NULL AND train_sgd('parts', model_name => 'auto parts') IS NOT NULL AS trained;
SELECT model_name, shuffle, round(clustering::numeric, 1) AS clustering, shuffle_reason FROM corgipile.models WHERE model_name LIKE 'auto %' ORDER BY model_id;
SELECT shuffle, clustering, shuffle_reason FROM corgipile.models WHERE model_name = 'first';
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v, '{"learning_rate": 0.1}') FROM shuffled;
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT corgipile.sgd(label, features_v, '{"learning_rate": 0.1, "max_epochs": 3}') FROM shuffled;
RESET client_min_messages;
\set VERBOSITY terse
SELECT train_sgd('shuffled', max_epochs => 1, learning_rate => 0.1, average => false);
SET corgipile.shuffle = 'block_only';
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v) FROM dense;
SET corgipile.shuffle = 'random';
RESET corgipile.shuffle;
-- What makes no sense.
\a\t
SELECT try($$ SELECT train_sgd('dense', mrs_ratio => 2) $$);
SELECT try($$ SELECT train_sgd('dense', shuffle => 'mrs', mrs_ratio => -1) $$);
SELECT try($$ SELECT train_sgd('dense', shuffle => 'random') $$);
SELECT try($$ SELECT corgipile.sgd(label, features_v, '{"shuffle": "mrs"}') FROM dense GROUP BY id % 2 $$);
SELECT try($$ SELECT train_sgd('dense', shuffle => 'once', buffer_size => '100MB') $$);
INSERT INTO shuffled VALUES (9999, '{1,2}', 0);
SELECT try($$ SELECT train_sgd('shuffled', shuffle => 'once') $$);
DELETE FROM shuffled WHERE id = 9999;
SET corgipile.async_compute = off;
SELECT s, info(jsonb_build_object('shuffle', s, 'max_epochs', 2)) ->> 'rows' AS rows FROM unnest('{once,epoch,sliding_window,mrs}'::text[]) AS s;
RESET corgipile.async_compute;
-- ---- The cache of decoded tuples changes nothing but the time.
\a\t
CREATE FUNCTION with_and_without(options jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    dense text;
    sparse text;
BEGIN
    SELECT CASE WHEN model_vector(corgipile.sgd(label, features_v, options || '{"cache": true}')) = model_vector(corgipile.sgd(label, features_v, options || '{"cache": false}'))
           THEN 'same' ELSE 'other' END INTO dense FROM dense WHERE id % 7 > 0;
    SELECT CASE WHEN model_vector(corgipile.sgd(label, features_k, features_v, options || '{"cache": true}', id % 4)) = model_vector(corgipile.sgd(label, features_k, features_v, options || '{"cache": false}', id % 4))
           THEN 'same' ELSE 'other' END INTO sparse FROM sparse;
    RETURN dense || ', ' || sparse;
END $$;
SELECT s AS strategy, with_and_without(o) AS plain, with_and_without(o || '{"eval_fraction": 0.2}') AS held_out, with_and_without(o || '{"optimizer": "adagrad", "batch_size": 8}') AS adagrad
FROM unnest('{corgipile,block_only,tuple_only,none,once}'::text[]) WITH ORDINALITY AS s(s, n),
     LATERAL (SELECT jsonb_build_object('shuffle', s, 'max_epochs', 4, 'tolerance', 0, 'buffer_size', '16kB', 'block_size', '8kB') AS o) AS options ORDER BY n;
SET corgipile.async_compute = off;
SELECT with_and_without('{"max_epochs": 4, "buffer_size": "16kB"}') AS without_the_thread;
RESET corgipile.async_compute;
SELECT corgipile.model_info(corgipile.sgd(label, features_v, '{"final_loss": true, "cache": true}')) -> 'measured' = corgipile.model_info(corgipile.sgd(label, features_v, '{"final_loss": true, "cache": false}')) -> 'measured' AS same_final_loss FROM dense;
SELECT model_vector(corgipile.sgd(a.label, b.features_v, '{"max_epochs": 3, "cache": true}')) = model_vector(corgipile.sgd(a.label, b.features_v, '{"max_epochs": 3, "cache": false}')) AS joined FROM dense a JOIN dense b USING (id);
SELECT train_sgd('dense', model_name => 'kept', max_epochs => 2) > 0 AND train_sgd('dense', model_name => 'not kept', max_epochs => 2, cache => false) > 0 AS trained;
SELECT model_name, cache_bytes, shuffle FROM corgipile.models WHERE model_name IN ('kept', 'not kept') ORDER BY model_id;
-- Where it does not fit it is left out, or refused if it was asked for.
SET corgipile.memory_limit = '100kB';
SELECT corgipile.model_info(corgipile.sgd(label, features_v, '{"max_epochs": 3}')) ->> 'cache_bytes' AS none FROM dense;
SELECT try($$ SELECT corgipile.sgd(label, features_v, '{"max_epochs": 3, "cache": true}') FROM dense $$);
RESET corgipile.memory_limit;
SELECT try($$ SELECT train_sgd('dense', shuffle => 'mrs', cache => true) $$);
-- ---- Nobody trains now; what the columns are.
SELECT * FROM corgipile.training_progress;
-- ---- What each operator cost. An epoch over the cache neither scans nor decodes.
SELECT epoch, cached, operator, completions, visit_ratio, bytes_per_element, rate > 0 AS has_rate, theta >= 0 AS has_theta, pages_hit + pages_read AS pages
FROM corgipile.trace JOIN corgipile.models USING (model_id) WHERE model_name = 'kept' ORDER BY epoch, operator COLLATE "C";
SELECT train_sgd('dense', model_name => 'batches', max_epochs => 2, batch_size => 8, cache => false) > 0 AS trained;
SELECT epoch, operator, completions, visit_ratio FROM corgipile.trace JOIN corgipile.models USING (model_id) WHERE model_name = 'batches' ORDER BY epoch, operator COLLATE "C";
SELECT model_name, predicted > 0 AND measured > 0 AND best > 0 AS rates, held_down_by IS NOT NULL AS held_down,
       with_one_core_more >= 0.999 AND with_twice_the_memory >= 0.999 AND with_twice_the_bandwidth >= 0.999 AS more_is_not_less
FROM corgipile.tuning JOIN corgipile.models USING (model_id) WHERE model_name IN ('kept', 'not kept', 'batches') ORDER BY model_id;
SELECT jsonb_object_keys(corgipile.trace_json('kept')) AS parts ORDER BY 1;
SET corgipile.trace = off;
SELECT jsonb_array_length(corgipile.trace_json(train_sgd('dense', max_epochs => 2)) -> 'epochs') AS none;
RESET corgipile.trace;
