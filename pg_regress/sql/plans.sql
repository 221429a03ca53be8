-- Where the nodes are used, and where not.
SET client_min_messages = warning;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v) FROM dense;
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF)
    SELECT corgipile.sgd(label, features_v, '{"max_epochs": 3, "loss": "hinge", "block_size": "16kB", "buffer_size": "32kB"}') FROM dense WHERE id > 1000;
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT corgipile.sgd(label, features_k, features_v, '{"max_epochs": 2, "shuffle": "none"}') FROM sparse;
EXPLAIN (COSTS OFF, FORMAT JSON) SELECT corgipile.sgd(label, features_v) FROM dense;
-- A filter, an expression above, expressions as arguments, views, a materialized view.
EXPLAIN (COSTS OFF) SELECT corgipile.model_info(corgipile.sgd(label * 2, features_v)) ->> 'loss' FROM dense WHERE id % 2 = 0;
CREATE VIEW seen AS SELECT label, features_v AS x FROM dense WHERE id < 3000;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, x) FROM seen;
CREATE MATERIALIZED VIEW stored AS SELECT * FROM seen;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, x) FROM stored;
-- A join and a subquery: no blocks, the buffer is shuffled all the same.
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(a.label, b.features_v) FROM dense a JOIN dense b USING (id);
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v) FROM (SELECT * FROM dense ORDER BY id LIMIT 100) AS s;
SELECT (corgipile.model_info(corgipile.sgd(a.label, b.features_v)) ->> 'rows')::int AS rows FROM dense a JOIN dense b USING (id);
-- A one-time filter stands between the nodes.
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v, '{"block_size": "32kB"}') FROM dense WHERE (SELECT true);
-- Partitioned and foreign tables by their own scans.
CREATE TABLE parts (id int, features_v real[], label int) PARTITION BY LIST (label);
CREATE TABLE parts0 PARTITION OF parts FOR VALUES IN (0);
CREATE TABLE parts1 PARTITION OF parts FOR VALUES IN (1);
INSERT INTO parts SELECT id, features_v, label FROM dense;
ANALYZE parts;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v) FROM parts;
SELECT train_sgd('parts', model_name => 'parts') > 0 AS trained;
SELECT accuracy('dense', model_id) > 75 AS good, blocks FROM corgipile.models WHERE model_name = 'parts';
CREATE EXTENSION file_fdw;
CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;
CREATE FOREIGN TABLE far (features_v real[], label text) SERVER files OPTIONS (program $$printf '{1,2}\tno\n{3,4}\tyes\n'$$);
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v) FROM far;
SELECT train_sgd('far', model_name => 'far') > 0 AS trained;
SELECT classes, rows_used FROM corgipile.models WHERE model_name = 'far';
-- Not ours: GROUP BY, FILTER, DISTINCT, ORDER BY, HAVING, two different trainings, another aggregate.
EXPLAIN (COSTS OFF) SELECT id % 3, corgipile.sgd(label, features_v) FROM dense GROUP BY 1;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v) FILTER (WHERE id > 3) FROM dense;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v ORDER BY id) FROM dense;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v) FROM dense HAVING count(*) > 1;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v), corgipile.sgd(label, features_v, '{"seed": 3}') FROM dense;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v), count(*) FROM dense;
-- The same call twice is one training.
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v) IS NULL, corgipile.model_send(corgipile.sgd(label, features_v)) IS NULL FROM dense;
-- Switches.
SET corgipile.enable_block_shuffle = off;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v) FROM dense;
SET corgipile.enable_sgd_node = off;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v) FROM dense;
RESET corgipile.enable_block_shuffle;
RESET corgipile.enable_sgd_node;
-- System columns that a virtual tuple can give, and others.
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v) FROM dense WHERE ctid::text <> '(5,1)';
SELECT (corgipile.model_info(corgipile.sgd(label, features_v)) ->> 'rows')::int = (SELECT count(*) FROM dense WHERE ctid >= '(5,1)') AS same
FROM dense WHERE ctid >= '(5,1)' AND tableoid = 'dense'::regclass;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v) FROM dense WHERE xmin IS NOT NULL;
-- An index is used where its rows fit into a buffer.
CREATE TABLE indexed AS SELECT i AS id, ARRAY[noise(i, 1)] AS features_v, i % 2 AS label FROM generate_series(1, 20000) i;
CREATE UNIQUE INDEX ON indexed (id);
ANALYZE indexed;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v) FROM indexed WHERE id < 100;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v) FROM indexed WHERE id < 19000;

-- Prepared statements (custom and generic plans), parameters in filter and options.
PREPARE train(int, jsonb) AS SELECT (corgipile.model_info(corgipile.sgd(label, features_v, $2)) -> 'params' ->> 'max_epochs') AS epochs,
    count(*) OVER () AS n FROM dense WHERE id > $1;
SET plan_cache_mode = force_generic_plan;
EXECUTE train(100, '{"max_epochs": 2}');
EXECUTE train(3000, '{"max_epochs": 4}');
EXPLAIN (COSTS OFF) EXECUTE train(100, '{"max_epochs": 2}');
SET plan_cache_mode = force_custom_plan;
EXECUTE train(100, '{"max_epochs": 2}');
RESET plan_cache_mode;
-- Cursors, PL/pgSQL, a correlated subquery that trains once a row.
BEGIN;
DECLARE c CURSOR FOR SELECT model_vector(corgipile.sgd(label, features_v)) IS NOT NULL AS trained FROM dense;
FETCH ALL FROM c;
MOVE BACKWARD ALL IN c;
FETCH ALL FROM c;
COMMIT;
DO $$
DECLARE
    m corgipile.model;
BEGIN
    FOR i IN 1..7 LOOP
        SELECT corgipile.sgd(label, features_v, jsonb_build_object('seed', i, 'max_epochs', 1)) INTO m FROM dense WHERE id > i;
        ASSERT (corgipile.model_info(m) -> 'params' ->> 'seed')::int = i;
        ASSERT (corgipile.model_info(m) ->> 'rows')::int = 4000 - i;
    END LOOP;
END $$;
SELECT n, (SELECT corgipile.model_info(corgipile.sgd(label, features_v, '{"max_epochs": 2}')) ->> 'rows' FROM dense WHERE id > n) AS rows
FROM (VALUES (0), (1000), (2000)) AS v(n);
-- The same over inputs that must be started anew: a hash join, an index scan.
SELECT n, (SELECT corgipile.model_info(corgipile.sgd(a.label, b.features_v, '{"max_epochs": 2}')) ->> 'rows'
           FROM dense a JOIN dense b USING (id) WHERE a.id > n) AS rows FROM (VALUES (0), (1000), (2000)) AS v(n);
SELECT n, (SELECT corgipile.model_info(corgipile.sgd(label, features_v, '{"max_epochs": 1}')) ->> 'rows'
           FROM indexed WHERE id < n) AS rows FROM (VALUES (100), (50)) AS v(n);
-- Volatile functions are evaluated once for a row, not once an epoch.
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v) FROM dense WHERE random() < 0.5;
CREATE SEQUENCE evaluations;
SELECT corgipile.sgd(label, features_v, '{"max_epochs": 4}') IS NOT NULL AS trained FROM dense WHERE nextval('evaluations') > 0;
SELECT last_value FROM evaluations;
-- Models per group, and the same epochs as a plain aggregate.
SELECT id % 2 AS g, (corgipile.model_info(m) ->> 'rows')::int AS rows, corgipile.model_info(m) ->> 'n_features' AS features
FROM (SELECT id / 2 AS id, corgipile.sgd(label, features_v) AS m FROM (SELECT id % 4 / 2 * 2 AS id, label, features_v FROM dense) x GROUP BY 1) y ORDER BY 1;
-- No rows, no model.
SELECT corgipile.sgd(label, features_v) IS NULL AS by_node FROM dense WHERE id < 0;
SELECT corgipile.sgd(label, features_v) FILTER (WHERE id < 0) IS NULL AS by_aggregate FROM dense;
-- The query level above and beside is PostgreSQL's.
WITH m AS (SELECT corgipile.sgd(label, features_v) AS model FROM dense)
SELECT count(*) FROM dense, m WHERE predict(m.model, features_v)::int = label HAVING count(*) > 3000;
INSERT INTO kept SELECT corgipile.sgd(label, features_v, '{"loss": "hinge"}') FROM dense;
SELECT DISTINCT corgipile.model_info(m) ->> 'loss' AS loss FROM kept ORDER BY 1;
