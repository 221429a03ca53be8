-- What is planned, shown and kept. Rates differ from run to run; what is looked at here does not.
SET client_min_messages = warning;
-- Large enough to be looked at: 40,000 rows of 100 features in blocks of their own label.
CREATE TABLE large AS SELECT id / 20001 AS label, id, ARRAY(SELECT noise(id, j) + id / 20001 FROM generate_series(1, 100 + id * 0) j) AS features_v
FROM generate_series(1, 40000) AS id;
VACUUM ANALYZE large;
SELECT pg_table_size('large') > 16 << 20 AS large_enough;
-- Advice without training.
SELECT section, item, value IS NOT NULL AS has_value, unit, note IS NOT NULL AS has_note FROM corgipile.advise('large');
SELECT item, round(value) AS value, unit, note FROM corgipile.advise('large') WHERE section = 'configuration' OR item = 'decoded tuples';
SELECT abs(value / 40000 - 1) < 0.02 AS rows_within_2_percent FROM corgipile.advise('large') WHERE item = 'rows';
-- What is given stays, what does not fit is an error, an unknown option too.
SELECT item, value, note FROM corgipile.advise('large', options => '{"block_size": "64kB", "buffer_size": "8MB", "cache": false, "shuffle": "block_only"}')
WHERE section = 'configuration';
SET corgipile.memory_limit = '24MB';
SELECT * FROM corgipile.advise('large', options => '{"cache": true}');
SELECT item, note FROM corgipile.advise('large') WHERE item = 'cache';
RESET corgipile.memory_limit;
SELECT * FROM corgipile.advise('large', options => '{"buffer": "8MB"}');
SELECT * FROM corgipile.advise('large', options => '[1]');
SELECT * FROM corgipile.advise('large', 'no_such');
SELECT * FROM corgipile.advise(NULL);
CREATE TABLE nothing (LIKE large);
SELECT * FROM corgipile.advise('nothing');
CREATE VIEW joined AS SELECT a.label, a.features_v FROM large a JOIN large b USING (id);
SELECT * FROM corgipile.advise('joined');
-- Small tables are looked at for advice only.
SELECT count(*) > 10 AS lines FROM corgipile.advise('dense');
-- The plan is kept with the model, beside what came of it.
SELECT train_sgd('large', max_epochs => 3, tolerance => 0) AS id \gset
SELECT planned_block_size, planned_buffer_size, planned_cache, on_disk, abs(size_error) < 0.02 AS size_within_2_percent,
       predicted > 0 AS predicted, measured > 0 AS measured, planned_for = ANY ('{scanning and decoding in one thread,shuffling and training in one thread,the number of cores}') AS limit_known
FROM corgipile.tuning WHERE model_id = :id;
SELECT (params ->> 'block_size')::int AS block_size, (params ->> 'buffer_size')::int AS buffer_size, cache_bytes > 0 AS cached, blocks_per_buffer > 50 AS many FROM corgipile.models WHERE model_id = :id;
SELECT epoch, operator, completions, cached, visit_ratio, detoasted_bytes > 0 AS detoasted FROM corgipile.trace WHERE model_id = :id AND epoch < 3 ORDER BY epoch, operator;
-- Same seed, same bits, whatever the looks have seen; given sizes give the same as the same sizes chosen.
SELECT train_sgd('large', max_epochs => 3, tolerance => 0) AS again \gset
SELECT train_sgd('large', max_epochs => 3, tolerance => 0, cache => false, shuffle => 'corgipile',
    block_size => (SELECT planned_block_size / 1024 || 'kB' FROM corgipile.tuning WHERE model_id = :id),
    buffer_size => (SELECT planned_buffer_size / 1024 || 'kB' FROM corgipile.tuning WHERE model_id = :id)) AS given \gset
SELECT model_vector(:id) = model_vector(:again) AS again, model_vector(:id) = model_vector(:given) AS given;
-- Values out of line belong to their block: a buffer holds many blocks.
CREATE TABLE out_of_line (label int, features_v real[]);
ALTER TABLE out_of_line ALTER features_v SET STORAGE EXTERNAL;
INSERT INTO out_of_line SELECT id / 3001, ARRAY(SELECT noise(id, j) FROM generate_series(1, 1000 + id * 0) j) FROM generate_series(1, 6000) AS id;
VACUUM ANALYZE out_of_line;
SELECT train_sgd('out_of_line', max_epochs => 2) AS id \gset
SELECT planned_block_size, planned_buffer_size, abs(size_error) < 0.05 AS size_within_5_percent FROM corgipile.tuning WHERE model_id = :id;
SELECT blocks_per_buffer > 5 AS many FROM corgipile.models WHERE model_id = :id;
SELECT detoasted_bytes / 24000000 AS times FROM corgipile.trace WHERE model_id = :id AND operator = 'decode';
-- The records in EXPLAIN, with digits masked.
CREATE FUNCTION masked(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
    FOR line IN EXECUTE query LOOP
        IF line ~ 'Planned|Epoch ' THEN RETURN NEXT regexp_replace(regexp_replace(btrim(line), '[0-9]+\.[0-9]+', 'N', 'g'), 'held down by.*', 'held down by ...'); END IF;
    END LOOP;
END $$;
SELECT masked('EXPLAIN (ANALYZE, COSTS OFF) SELECT corgipile.sgd(label, features_v, ''{"max_epochs": 2}'') FROM large');
-- Disks.
SELECT tablespace, block_size, parallelism, bytes_per_second > 1e5 AS sane FROM corgipile.probe_disk(seconds => 0.3) WHERE parallelism = 1 ORDER BY block_size;
SELECT count(*) > 12 AS kept, count(DISTINCT tablespace) FROM corgipile.disks;
SELECT * FROM corgipile.probe_disk('no_such');
SELECT * FROM corgipile.probe_disk('pg_global');
SELECT * FROM corgipile.probe_disk(seconds => 0);
SELECT * FROM corgipile.probe_disk(seconds => 'NaN');
DELETE FROM corgipile.disks;
DROP TABLE large, nothing, out_of_line CASCADE;
