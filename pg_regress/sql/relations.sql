-- Relations of every kind. Partitions, and children of a table, are read in one order of blocks over all of them.
-- Ids are the same whatever ran before.
SELECT setval('corgipile.model_id_seq', 10000) \g /dev/null
SET client_min_messages = warning;
CREATE SCHEMA relations;
SET search_path = relations, public;
CREATE VIEW fine AS SELECT '{"max_epochs": 3, "block_size": "8kB", "buffer_size": "64kB", "cache": false}'::jsonb AS options;
CREATE TABLE whole AS SELECT id, label, features_v FROM dense;
SELECT max((ctid::text::point)[1])::int AS lines FROM whole \gset
SELECT :lines > 50 AS many_lines_a_page;
-- The same rows with a partition's border where a page ends: the same layout of blocks. Columns in another order, one that
-- is gone, partitions of partitions.
CREATE TABLE parts (id int, label int, features_v real[]) PARTITION BY RANGE (label, id);
CREATE FUNCTION bound(page int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE bound text;
BEGIN
    SELECT format('(%s, %s)', label, id) INTO bound FROM whole WHERE ctid = format('(%s,1)', page)::tid;
    RETURN bound;
END $$;
SELECT format('CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (MINVALUE, MINVALUE) TO %s;
    CREATE TABLE parts_2 (label int, id int, gone int, features_v real[]);
    ALTER TABLE parts_2 DROP COLUMN gone;
    ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM %1$s TO %s;
    CREATE TABLE parts_3 PARTITION OF parts FOR VALUES FROM %2$s TO (MAXVALUE, MAXVALUE) PARTITION BY RANGE (label, id);
    CREATE TABLE parts_3a PARTITION OF parts_3 FOR VALUES FROM %2$s TO %s;
    CREATE TABLE parts_3b PARTITION OF parts_3 DEFAULT', bound(7), bound(8), bound(20)) AS parts \gset
:parts;
INSERT INTO parts SELECT * FROM whole;
SELECT relname, pg_relation_size(oid) / 8192 AS pages FROM pg_class WHERE relname LIKE 'parts\__' OR relname LIKE 'parts\___' ORDER BY 1;
CREATE TABLE above (id int, label int, features_v real[]);
CREATE TABLE beneath (more text) INHERITS (above);
CREATE TABLE far_beneath (label int, yet_more text, id int) INHERITS (beneath);
INSERT INTO above SELECT * FROM whole WHERE (ctid::text::point)[0] < 10;
INSERT INTO beneath SELECT id, label, features_v FROM whole WHERE (ctid::text::point)[0] >= 10 AND (ctid::text::point)[0] < 15;
INSERT INTO far_beneath SELECT id, label, features_v FROM whole WHERE (ctid::text::point)[0] >= 15;
ANALYZE whole, parts, above;
CREATE FUNCTION trained(source regclass, more jsonb, condition text DEFAULT 'true') RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE vector text;
BEGIN
    EXECUTE format('SELECT model_vector(corgipile.sgd(label, features_v, %L))::text FROM %s WHERE %s', (SELECT options FROM fine) || more, source, condition) INTO vector;
    RETURN sha256(vector::bytea);
END $$;
SELECT more, trained('whole', more) = trained('parts', more) AS parts, trained('whole', more) = trained('above', more) AS children
FROM unnest(ARRAY['{}', '{"shuffle": "none"}', '{"shuffle": "block_only"}', '{"shuffle": "once"}', '{"shuffle": "epoch"}', '{"shuffle": "sliding_window"}',
    '{"shuffle": "mrs"}', '{"eval_fraction": 0.3}', '{"shuffle": "once", "eval_fraction": 0.3}', '{"cache": true}', '{"shuffle": "auto"}',
    '{"loss": "hinge", "seed": 7}']::jsonb[]) AS more;
-- With a filter that cannot prune.
SELECT trained('whole', '{}', 'id % 5 <> 0') = trained('parts', '{}', 'id % 5 <> 0') AS parts;
-- Pruning stays; nothing is read from a table that cannot hold a row.
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v, '{"max_epochs": 2, "block_size": "8kB"}') FROM parts;
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT corgipile.sgd(label, features_v, '{"max_epochs": 2, "block_size": "8kB", "loss": "squared_error", "learning_rate": 0.01, "cache": false}') FROM parts WHERE label > 0;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v, '{"max_epochs": 2}') FROM parts WHERE label > 5;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v, '{"max_epochs": 2, "block_size": "8kB"}') FROM above;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v, '{"max_epochs": 2, "block_size": "8kB"}') FROM ONLY above;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, x, '{"max_epochs": 2, "block_size": "8kB"}') FROM (SELECT label, array_append(features_v, 1) AS x FROM parts WHERE id > 7) AS more;
SELECT train_sgd('parts', model_name => 'of parts') > 0 AS trained;
SELECT rows_used, blocks > 1 AS in_blocks, shuffle FROM corgipile.models WHERE model_name = 'of parts';
SELECT count(*) FROM parts PREDICT BY 'of parts';
SELECT tableoid::regclass, count(predict('of parts', features_v)) FROM parts GROUP BY 1 ORDER BY 1;
-- As columns of any type, and the place of a bad row.
SELECT train_sgd('parts', 'label', '{id,features_v}', model_name => 'columns of parts', filter => 'id % 3 = 0') > 0 AS trained;
UPDATE parts_2 SET features_v = '{1,NaN,3}' WHERE ctid = '(0,5)';
SELECT try($$SELECT corgipile.sgd(label, features_v) FROM parts$$);
SELECT try($$SELECT corgipile.sgd(label, features_v, '{"shuffle": "once"}') FROM parts$$);
SELECT try($$SELECT train_sgd('parts', 'label', '{id,features_v}')$$);
DELETE FROM parts WHERE features_v[2] = 'NaN';
-- Plans that are kept: a partition that comes, goes, or is written to.
PREPARE training AS SELECT corgipile.model_info(corgipile.sgd(label, features_v, '{"max_epochs": 1}')) ->> 'rows' AS rows FROM parts;
SET plan_cache_mode = force_generic_plan;
EXECUTE training;
INSERT INTO parts VALUES (-1, 0, '{1,2,3}');
EXECUTE training;
ALTER TABLE parts DETACH PARTITION parts_2;
EXECUTE training;
DROP TABLE parts_2;
EXECUTE training;
PREPARE pruned(int) AS SELECT corgipile.model_info(corgipile.sgd(label, features_v, '{"max_epochs": 1, "loss": "squared_error"}')) ->> 'rows' AS rows FROM parts WHERE label >= $1;
EXECUTE pruned(1);
EXECUTE pruned(0);
RESET plan_cache_mode;
-- Rights and row security are those of the table that is named.
CREATE ROLE reader_of_parts;
GRANT SELECT ON parts TO reader_of_parts;
ALTER TABLE parts ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON parts USING (id % 7 = 0);
GRANT USAGE ON SCHEMA relations TO reader_of_parts;
SET ROLE reader_of_parts;
SELECT corgipile.model_info(corgipile.sgd(label, features_v, '{"max_epochs": 1}')) ->> 'rows' AS rows FROM parts;
SELECT try('SELECT corgipile.sgd(label, features_v) FROM parts_1');
RESET ROLE;
SELECT count(*) FROM parts WHERE id % 7 = 0;
-- Materialized views, unlogged and temporary tables, generated columns, system columns.
CREATE MATERIALIZED VIEW kept AS TABLE whole;
CREATE UNLOGGED TABLE fleeting AS TABLE whole;
CREATE TEMP TABLE passing_by AS TABLE whole;
CREATE TABLE computed (id int, label int, a real, features_v real[] GENERATED ALWAYS AS (ARRAY[a, a * a]) STORED);
INSERT INTO computed SELECT id, label, features_v[1] FROM whole;
SELECT source, trained(source, '{}') = trained('whole', '{}') AS same FROM unnest('{kept,fleeting,passing_by}'::regclass[]) AS source;
SELECT train_sgd('computed') > 0 AS trained;
SELECT corgipile.model_info(corgipile.sgd(label, ARRAY[(ctid::text::point)[0]], '{"max_epochs": 1}'::jsonb)) ->> 'rows' AS rows FROM parts WHERE tableoid <> 'parts_1'::regclass;
SELECT corgipile.model_info(corgipile.sgd(label, ARRAY[xmin::text::real], '{"max_epochs": 1}'::jsonb)) ->> 'rows' AS rows FROM parts;
-- Foreign tables, alone and as partitions, are read by their own scans, and that is said. (The server `files` is of an earlier test.)
RESET client_min_messages;
\set program 'seq 1 4000 | awk \'{ l = $1 > 2000; printf "%d,%d,\\"{%f,%f,1}\\"\\n", $1, l, l + ($1 * 7 % 13) / 13, ($1 % 11) / 11 }\''
CREATE FOREIGN TABLE far_away (id int, label int, features_v real[]) SERVER files OPTIONS (program :'program', format 'csv');
SELECT * FROM far_away LIMIT 2;
\set VERBOSITY terse
SELECT corgipile.model_info(corgipile.sgd(label, features_v, '{"max_epochs": 1}')) ->> 'rows' AS rows FROM far_away;
CREATE TABLE half (id int, label int, features_v real[]) PARTITION BY LIST (label);
CREATE TABLE half_here PARTITION OF half DEFAULT;
CREATE FOREIGN TABLE half_there PARTITION OF half FOR VALUES IN (1) SERVER files OPTIONS (program :'program', format 'csv');
INSERT INTO half_here SELECT * FROM whole WHERE label = 0;
SELECT train_sgd('far_away', max_epochs => 1, model_name => 'far table') > 0 AS trained;
SELECT train_sgd('half', max_epochs => 1, model_name => 'half') > 0 AS trained;
SELECT train_sgd('half', max_epochs => 1, model_name => 'once', shuffle => 'once') > 0 AS trained;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v, '{"max_epochs": 2}') FROM half;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v, '{"max_epochs": 2, "block_size": "8kB", "loss": "squared_error"}') FROM half WHERE label = 0;
SET client_min_messages = warning;
DROP OWNED BY reader_of_parts;
DROP ROLE reader_of_parts;
-- Partitions by hash, and partitions of partitions of another kind: the rows of one table in the same order of blocks.
CREATE TABLE hashed (id int, label int, features_v real[]) PARTITION BY HASH (id);
CREATE TABLE hashed_0 PARTITION OF hashed FOR VALUES WITH (MODULUS 2, REMAINDER 0) PARTITION BY LIST (label);
CREATE TABLE hashed_0_0 PARTITION OF hashed_0 FOR VALUES IN (0);
CREATE TABLE hashed_0_1 PARTITION OF hashed_0 FOR VALUES IN (1);
CREATE TABLE hashed_1 PARTITION OF hashed FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO hashed SELECT i, i % 2, ARRAY[i % 2 + sin(i), cos(i)] FROM generate_series(1, 4000) AS i;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v) FROM hashed;
SELECT train_sgd('hashed', model_name => 'hashed', max_epochs => 3) > 0 AS trained;
SELECT rows_used FROM corgipile.models WHERE model_name = 'hashed' AND source = 'relations.hashed';
-- Another access method's own scan.
CREATE ACCESS METHOD other_heap TYPE TABLE HANDLER heap_tableam_handler;
CREATE TABLE otherwise USING other_heap AS SELECT * FROM hashed;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v) FROM otherwise;
SET client_min_messages = notice;
\set VERBOSITY terse
SELECT train_sgd('otherwise', max_epochs => 3) > 0 AS trained \gset
SET client_min_messages = warning;
SELECT rows_used FROM corgipile.models WHERE source = 'relations.otherwise';
