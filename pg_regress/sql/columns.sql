-- Features made of columns of every type.
-- Ids are the same whatever ran before.
SELECT setval('corgipile.model_id_seq', 5000) \g /dev/null
\set SHOW_CONTEXT never
\set VERBOSITY terse
SET client_min_messages = warning;
SET timezone = 'UTC';
CREATE TYPE grade AS ENUM ('poor', 'fair', 'good');
CREATE DOMAIN percent AS numeric CHECK (VALUE BETWEEN 0 AND 100);
CREATE TABLE kinds (
    id bigserial PRIMARY KEY, numbered int GENERATED ALWAYS AS IDENTITY,
    i2 smallint, i4 integer, i8 bigint, n numeric, f4 real, f8 double precision, b boolean, pc percent,
    t text, vc varchar(10), c char(6), u uuid, ip inet, g grade,
    d date, ts timestamp, tz timestamptz, tm time, iv interval,
    a4 real[], a8 double precision[], ai integer[], doc json, twice double precision GENERATED ALWAYS AS (f8 * 2) STORED,
    y boolean, z text, amount numeric);
INSERT INTO kinds (i2, i4, i8, n, f4, f8, b, pc, t, vc, c, u, ip, g, d, ts, tz, tm, iv, a4, a8, ai, doc, y, z, amount)
SELECT i % 7, i, i * 1000000000::bigint, i / 3.0, i % 11, sin(i), i % 3 = 0, i % 101,
       'text ' || i % 4, 'v' || i % 5, 'c' || i % 3, md5((i % 6)::text)::uuid, ('10.0.0.' || i % 5)::inet, (enum_range(NULL::grade))[1 + i % 3],
       date '2024-01-01' + i, timestamp '2024-01-01' + i * interval '1 hour', timestamptz '2024-01-01' + i * interval '1 hour', time '00:00' + i * interval '7 min', i * interval '1 hour',
       ARRAY[i % 2, i % 5], ARRAY[i % 3], ARRAY[i % 2, i % 3, i % 4], '{}', i % 2 = 0, (ARRAY['x', 'y', 'z'])[1 + i % 3], i * 1.5
FROM generate_series(1, 600) AS i;
ALTER TABLE kinds ADD COLUMN gone text;
ALTER TABLE kinds DROP COLUMN gone;
-- Everything at once: what is left out is said.
RESET client_min_messages;
SELECT train_sgd('kinds', 'y', model_name => 'all kinds', exclude => '{z}') AS trained \gset
SET client_min_messages = warning;
SELECT column_name, column_type, encoding, features, on_null FROM corgipile.model_encoding('all kinds');
SELECT count(*) FILTER (WHERE prediction = y) > 590 AS right, pg_typeof(min(prediction::int)) FROM kinds PREDICT BY 'all kinds';
-- A target of any type, in its own values.
SELECT train_sgd('kinds', 'z', '{t,c,g,vc}', model_name => 'z') > 0 AS trained;
SELECT train_sgd('kinds', 'g', '{i4,z}', model_name => 'g') > 0 AS trained;
SELECT count(*) FILTER (WHERE prediction = g) AS right, pg_typeof(max(prediction)) FROM kinds PREDICT BY 'g';
SELECT train_sgd('kinds', 'd', '{z,y}', model_name => 'd', loss => 'softmax', filter => 'i4 <= 4') > 0 AS trained;
SELECT pg_typeof(prediction) AS type, count(*) FROM kinds PREDICT BY 'd' WHERE i4 <= 4 GROUP BY 1;
SELECT train_sgd('kinds', 'amount', '{n,t}', model_name => 'amount') > 0 AS trained;
SELECT r2_score > 0.99 AS good FROM evaluate_sgd('amount', 'kinds');
-- The same numbers by every way.
SELECT count(*) AS rows, bool_and(predict('z', k) = p.prediction::text) AS class, bool_and(predict_proba('z', k) = p.probability) AS probability,
       bool_and((SELECT sum(e.contribution) FROM explain_prediction('z', k) AS e) BETWEEN predict_score('z', k) - 1e-5 AND predict_score('z', k) + 1e-5) AS adds_up
FROM kinds AS k JOIN (SELECT id, prediction, probability FROM kinds PREDICT BY 'z') AS p USING (id) WHERE id <= 50;
-- Each encoding with each kind of column, with and without NULL.
CREATE TABLE holes AS SELECT id, y, CASE WHEN id % 10 > 0 THEN f8 END AS f8, CASE WHEN id % 9 > 0 THEN t END AS t, CASE WHEN id % 8 > 0 THEN g END AS g,
       CASE WHEN id % 7 > 0 THEN ts END AS ts, CASE WHEN id % 6 > 0 THEN a4 END AS a4, i4 FROM kinds;
CREATE FUNCTION encoded(col text, how text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE id bigint; said text;
BEGIN
    id := train_sgd('holes', 'y', ARRAY[col, 'i4'], encode => how::jsonb, max_epochs => 1);
    EXECUTE format('SELECT e.encoding || '' '' || e.features || '' '' || e.on_null || '' rows '' || m.rows_used || '' predicted '' || (SELECT count(predict(%s::bigint, h)) FROM holes h)
        FROM corgipile.model_encoding(%s) e, corgipile.models m WHERE m.model_id = %s LIMIT 1', id, id, id) INTO said;
    PERFORM drop_model(id);
    RETURN said;
EXCEPTION WHEN OTHERS THEN
    RETURN sqlstate || ' ' || sqlerrm;
END $$;
SELECT col, kind, on_null, is_null, encoded(col, json_build_object(col, json_build_object('encode', kind, 'on_null', on_null, 'is_null', is_null))::text)
FROM unnest('{f8,t,g,ts,a4}'::text[]) AS col, unnest('{number,one_hot,one_hot:2,hash:16,ordinal,seconds,cyclic}'::text[]) AS kind,
     (VALUES ('mean', true), ('zero', false), ('skip', false), ('error', false)) AS r(on_null, is_null) ORDER BY 1, 2, 3;
SELECT encoded(col, '{}') FROM unnest('{f8,t,g,ts,a4}'::text[]) AS col;
-- NULL at prediction: as the model has it.
SELECT train_sgd('holes', 'y', '{f8,t}', on_null => 'skip', model_name => 'skips') > 0 AS trained;
SELECT rows_used, rows_skipped FROM corgipile.models WHERE model_name = 'skips';
SELECT count(*), count(prediction), count(*) FILTER (WHERE prediction IS NULL AND f8 IS NOT NULL AND t IS NOT NULL) AS wrong FROM holes PREDICT BY 'skips';
SELECT rows FROM evaluate_sgd('skips', 'holes');
-- Rows of another table, in another order, with more columns; and without one.
SELECT predict('z', x) = predict('z', k) AS same FROM kinds k, LATERAL (SELECT vc, 1 AS more, c::text, g, t::varchar) AS x WHERE id = 7;
SELECT predict('z', x) FROM kinds k, LATERAL (SELECT vc, g, t) AS x WHERE id = 7;
-- A category that was never seen has weight 0.
SELECT predict_score('z', x) IS NOT NULL AS predicted FROM (SELECT 'never'::text AS t, 'never'::text AS c, 'good'::grade AS g, 'never'::varchar AS vc) AS x;
-- Tables that change.
ALTER TABLE holes RENAME COLUMN f8 TO f9;
SELECT count(*) FROM holes PREDICT BY 'skips';
SELECT predict('skips', h) FROM holes h LIMIT 1;
ALTER TABLE holes RENAME COLUMN f9 TO f8;
ALTER TABLE holes ALTER f8 TYPE text;
SELECT count(prediction) FROM holes PREDICT BY 'skips';
ALTER TABLE holes ALTER f8 TYPE numeric USING f8::numeric, ADD COLUMN added int;
SELECT count(prediction) FROM holes PREDICT BY 'skips';
-- Views, partitions, inheritance, temporary tables.
CREATE VIEW seen_kinds AS SELECT f8 + 1 AS f8, t, y FROM kinds WHERE id > 100;
CREATE TABLE kind_parts (y boolean, t text, f8 float8) PARTITION BY LIST (y);
CREATE TABLE parts_yes PARTITION OF kind_parts FOR VALUES IN (true);
CREATE TABLE parts_no (f8 float8, gone int, y boolean, t text);
ALTER TABLE parts_no DROP COLUMN gone;
ALTER TABLE kind_parts ATTACH PARTITION parts_no FOR VALUES IN (false);
INSERT INTO kind_parts SELECT y, t, f8 FROM kinds;
CREATE TEMP TABLE passing AS SELECT y, t, f8 FROM kinds;
SELECT count(train_sgd(r, 'y', model_name => 'of ' || r)) FROM unnest('{seen_kinds,kind_parts,passing}'::regclass[]) AS r;
SELECT model_name, rows_used, features FROM corgipile.models WHERE model_name IN ('of seen_kinds', 'of kind_parts', 'of passing') ORDER BY 1;
SELECT count(prediction) FROM kind_parts PREDICT BY 'of kind_parts';
-- The score as an expression: what predict_score gives, for every kind of column and encoding, and NULL where it gives NULL.
CREATE FUNCTION expression_differs(m text, source regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE expression text; said text;
BEGIN
    SELECT score_sql INTO expression FROM export_model_sql(m) WHERE class IS NULL;
    EXECUTE format('SELECT format(''%%s rows, %%s scores, %%s differ'', count(*), count(e), count(*) FILTER (WHERE e IS DISTINCT FROM p AND (abs(e - p) <= 1e-5 * (1 + abs(p))) IS NOT TRUE))
                    FROM (SELECT (%s) AS e, predict_score(%L, s) AS p FROM %s AS s) AS x', expression, m, source) INTO said;
    RETURN said;
END $$;
CREATE FUNCTION expression_of(source regclass, col text, how text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE said text;
BEGIN
    PERFORM train_sgd(source, 'y', ARRAY[col], encode => how::jsonb, max_epochs => 2, model_name => 'for expression');
    said := expression_differs('for expression', source);
    PERFORM drop_model('for expression');
    RETURN said;
EXCEPTION WHEN OTHERS THEN
    RETURN sqlstate || ' ' || sqlerrm;
END $$;
SELECT expression_differs('all kinds', 'kinds'), expression_differs('skips', 'holes');
SET timezone = 'Asia/Tokyo';
SET datestyle = 'German';
SELECT col, kind, expression_of('kinds', col, json_build_object(col, kind)::text)
FROM unnest('{i2,i8,n,f4,b,pc,t,vc,c,u,ip,g,d,ts,tz,tm,iv,a4,a8,ai}'::text[]) AS col, unnest('{number,one_hot,one_hot:2,ordinal,seconds,cyclic}'::text[]) AS kind
WHERE (kind IN ('number', 'ordinal')) <= (col NOT IN ('t', 'vc', 'c', 'u', 'ip')) AND (kind IN ('seconds', 'cyclic')) <= (col IN ('d', 'ts', 'tz', 'tm', 'iv')) AND (col IN ('a4', 'a8', 'ai')) <= (kind = 'number') ORDER BY 1, 2;
RESET timezone;
RESET datestyle;
SELECT col, on_null, is_null, expression_of('holes', col, json_build_object(col, json_build_object('on_null', on_null, 'is_null', is_null))::text)
FROM unnest('{f8,t,g,ts,a4}'::text[]) AS col, (VALUES ('mean', true), ('mean', false), ('zero', true), ('zero', false), ('skip', false)) AS r(on_null, is_null) ORDER BY 1, 2, 3;
SELECT class, score_sql IS NOT NULL AS written FROM export_model_sql('z');
SELECT * FROM same_classes('z', 'kinds');
SELECT train_sgd('kinds', 'y', '{t}', encode => '{"t": "hash:64"}', model_name => 'hashed t') > 0 AS trained;
-- Where predict_score is an error, the expression is NULL, also in other sessions' settings.
CREATE TABLE odd (y boolean, f float8, n numeric, at timestamp, a float8[], g grade);
INSERT INTO odd SELECT i % 2 = 0, i % 7, i % 5, timestamp '2024-01-01' + i * interval '1 hour', ARRAY[i % 3, i % 4], (enum_range(NULL::grade))[1 + i % 3] FROM generate_series(1, 100) AS i;
SELECT train_sgd('odd', 'y', max_epochs => 1, model_name => 'odd') > 0 AS trained;
SELECT train_sgd('odd', 'y', '{a}', encode => NULL, max_epochs => 1, model_name => 'odd array') > 0 AS trained;
SELECT expression_differs('odd', 'odd'), expression_differs('odd array', 'odd');
CREATE TABLE odder AS SELECT o.y, f, n, at, a, 'good'::grade AS g FROM (VALUES (true, 'NaN'::float8, 1::numeric, timestamp '2024-01-01', '{1,2}'::float8[]), (true, 1, 1e400, '2024-01-01', '{1,2}'),
    (true, 1, 'NaN', '2024-01-01', '{1,2}'), (true, 1, 1, 'infinity', '{1,2}'), (true, 1, 1, '2024-01-01', '{1,NaN}'), (true, 1, 1, '2024-01-01', '{{1,2}}'), (true, 'Infinity', 1, '2024-01-01', '{1}')) AS o(y, f, n, at, a);
SELECT format('SELECT count(*), count(%s) AS scores, count(%s) AS of_arrays FROM odder', (SELECT score_sql FROM export_model_sql('odd')), (SELECT score_sql FROM export_model_sql('odd array'))) AS query \gset
:query;
SELECT predict('odd', o) FROM odder AS o WHERE array_ndims(a) = 2;
SELECT train_sgd('odder', 'y', '{a}', encode => '{}', filter => 'array_ndims(a) = 2');
-- Domains over times.
CREATE DOMAIN opening AS time;
CREATE DOMAIN lasting AS interval;
CREATE TABLE shops AS SELECT i % 2 = 0 AS y, (time '08:00' + i % 5 * interval '1 h')::opening AS opens, (i % 5 * interval '1 h')::lasting AS lasts FROM generate_series(1, 100) AS i;
SELECT train_sgd('shops', 'y', max_epochs => 1, model_name => 'shops') > 0 AS trained;
SELECT count(prediction) FROM shops PREDICT BY 'shops';
SELECT predict('shops', x) FROM (SELECT timestamp '2024-01-01' AS opens, interval '1 h' AS lasts) AS x;
SELECT predict('shops', x) FROM (SELECT time '08:00' AS opens, 5 AS lasts) AS x;
SELECT predict('shops', x) IN ('true', 'false', 't', 'f') AS predicted FROM (SELECT time '08:00' AS opens, interval '1 h' AS lasts) AS x;
-- NaN is as NULL where that is no error.
CREATE TABLE nans AS SELECT i AS id, i % 2 = 0 AS y, CASE WHEN i % 10 = 0 THEN 'NaN'::float8 ELSE i % 7 END AS f, CASE WHEN i % 15 = 0 THEN '{1,NaN}'::real[] ELSE ARRAY[i % 3, i % 4] END AS a FROM generate_series(1, 300) AS i;
SELECT train_sgd('nans', 'y', '{f,a}', max_epochs => 1);
SELECT train_sgd('nans', 'y', '{f,a}', max_epochs => 1, on_null => how, model_name => 'nan ' || how) > 0 AS trained FROM unnest('{skip,zero,mean}'::text[]) AS how;
SELECT train_sgd('nans', 'y', '{a}', max_epochs => 1);
SELECT train_sgd('nans', 'y', '{a}', max_epochs => 1, on_null => 'skip', model_name => 'nan arrays') > 0 AS trained;
SELECT model_name, rows_used, rows_skipped FROM corgipile.models WHERE model_name LIKE 'nan %' ORDER BY 1;
SELECT count(predict('nan skip', n)) AS skip, count(predict('nan zero', n)) AS zero, count(predict('nan mean', n)) AS mean, count(predict('nan arrays', a)) AS arrays FROM nans AS n;
SELECT predict_score('nan mean', n) = predict_score('nan mean', x) AS as_null FROM nans AS n, LATERAL (SELECT NULL::float8 AS f, n.a) AS x WHERE n.id = 10;
SELECT expression_differs('nan mean', 'nans') AS differs;
SELECT predict('nan skip', x) FROM (SELECT 'Infinity'::float8 AS f, '{1,1}'::real[] AS a) AS x;
-- A row that is left out for its numbers says nothing of the next one's label.
CREATE TABLE gaps AS SELECT i AS id, CASE WHEN i % 4 IN (1, 2) THEN 'no' ELSE 'yes' END AS label, CASE WHEN i % 2 = 0 THEN '{NULL}'::int[] ELSE ARRAY[1 + i % 4 / 2] END AS features_k, '{1}'::real[] AS features_v FROM generate_series(1, 400) AS i;
SELECT train_sgd('gaps', on_null => 'skip', model_name => 'gaps') > 0 AS trained;
SELECT rows, accuracy FROM evaluate_sgd('gaps', 'gaps', 'id % 2 = 1');
-- Arrays that are features as they stand, and what is asked of columns.
SELECT train_sgd('dense', on_null => 'mean', max_epochs => 1, model_name => 'dense mean') > 0 AS trained;
SELECT column_name, features FROM corgipile.model_encoding('dense mean');
SELECT train_sgd('gaps', on_null => 'mean');
SELECT train_sgd('gaps', 'label', '{features_k,features_v,id}', filter => 'id % 2 = 1');
-- Of a primary key of several columns, what numbers rows is no feature.
CREATE TABLE ordered (id bigint, placed_at timestamptz, amount numeric, y boolean, PRIMARY KEY (id, placed_at)) PARTITION BY RANGE (placed_at);
CREATE TABLE ordered_1 PARTITION OF ordered FOR VALUES FROM ('2024-01-01') TO ('2024-01-05');
CREATE TABLE ordered_2 PARTITION OF ordered DEFAULT;
INSERT INTO ordered SELECT i, timestamptz '2024-01-01' + i * interval '1 hour', i % 11, i % 2 = 0 FROM generate_series(1, 200) AS i;
SELECT train_sgd('ordered', 'y', max_epochs => 1, model_name => 'ordered') > 0 AS trained;
SELECT column_name FROM corgipile.model_encoding('ordered');
-- A model of columns, exported and imported, predicts the same; what is no encoding is refused.
SELECT import_model(export_model('all kinds'), 'all kinds again') + import_model(export_model('z'), 'z again') > 0 AS imported;
SELECT count(*) AS rows, bool_and(predict_score('all kinds', k) = predict_score('all kinds again', k)) AS same, bool_and(predict('z', k) = predict('z again', k)) AS classes FROM kinds AS k;
SELECT import_model(jsonb_set(export_model('z'), '{header,encoding,columns,0,kind}', value)) FROM jsonb_array_elements('["no kind"]') AS value;
SELECT import_model(jsonb_set(export_model('z'), '{header,encoding,columns,0,kind}', '{"hash": {"buckets": 4294967295}}'));
SELECT import_model(jsonb_set(export_model('z'), '{header,encoding,columns}', '[]'));
SELECT import_model(jsonb_set(export_model('z'), '{header,encoding}', '7'));
-- What cannot be.
CREATE FUNCTION refused(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE hint text;
BEGIN EXECUTE query; RETURN 'no error';
EXCEPTION WHEN OTHERS THEN GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT; RETURN sqlstate || ' ' || sqlerrm || E'\n  ' || hint; END $$;
SELECT refused(q) FROM unnest(ARRAY[
    $$SELECT train_sgd('kinds', 'y', '{doc}')$$, $$SELECT train_sgd('kinds', 'y', '{y,t}')$$, $$SELECT train_sgd('kinds', 'y', '{t,t}')$$, $$SELECT train_sgd('kinds', 'y', '{t}', exclude => '{t}')$$,
    $$SELECT train_sgd('kinds', 'y', exclude => '{nothing}')$$, $$SELECT train_sgd('kinds', 'y', '{t}', encode => '{"b": "hash"}')$$, $$SELECT train_sgd('kinds', 'y', '{t}', encode => '{"t": "hashed"}')$$,
    $$SELECT train_sgd('kinds', 'y', '{t}', encode => '[]')$$, $$SELECT train_sgd('kinds', 'y', '{t}', on_null => 'nothing')$$, $$SELECT train_sgd('kinds', 'y', '{t}', filter => 'no such thing')$$,
    $$SELECT train_sgd('kinds', 'y', '{t}', filter => 'false')$$, $$SELECT train_sgd('kinds', 'z', '{t}', loss => 'squared_error')$$, $$SELECT predict('z', ARRAY[1,2])$$,
    $$SELECT train_sgd('kinds', 'z', warm_start => 'z', encode => '{}')$$, $$SELECT train_sgd('kinds', 'z', '{t}', warm_start => 'z')$$,
    $$SELECT train_sgd('kinds', 'g', warm_start => 'z')$$, $$SELECT export_model_sql('hashed t')$$,
    $$SELECT train_sgd('one', 'y')$$, $$CREATE TABLE generated (t text, p text GENERATED ALWAYS AS (predict('z', ROW(t))) STORED)$$,
    $$CREATE INDEX ON kinds (predict('z', kinds))$$]) AS q;
INSERT INTO kinds (f8, y, z) VALUES ('NaN', true, 'x');
SELECT refused($$SELECT train_sgd('kinds', 'y', '{f8}')$$);
DELETE FROM kinds WHERE f8 = 'NaN';
UPDATE kinds SET a4 = ARRAY[1] WHERE id = 5;
SELECT refused($$SELECT train_sgd('kinds', 'y', '{a4,i4}')$$);
SELECT train_sgd('kinds', 'z', warm_start => 'z', max_epochs => 1) > 0 AS warm;
-- Many columns, many categories.
SELECT format('CREATE TABLE wide_columns AS SELECT i %% 2 AS y, %s FROM generate_series(1, 300) AS i', string_agg(format('(i * %s %% 17)::real AS c%s', n, n), ', ')) AS query FROM generate_series(1, 1000) AS n \gset
:query;
SELECT train_sgd('wide_columns', 'y', max_epochs => 2, model_name => 'wide columns') > 0 AS trained;
SELECT count(prediction) FROM wide_columns PREDICT BY 'wide columns';
CREATE TABLE many_categories AS SELECT i % 2 AS y, 'category ' || i % 100000 AS c FROM generate_series(1, 200000) AS i;
SELECT train_sgd('many_categories', 'y', '{c}', encode => '{"c": "one_hot"}', max_epochs => 2, model_name => 'many') > 0 AS trained;
SELECT encoding FROM corgipile.model_encoding('many');
SELECT count(*) FILTER (WHERE prediction = y) AS right FROM many_categories PREDICT BY 'many';
SELECT train_sgd('many_categories', 'y', '{c}', max_epochs => 2, model_name => 'hashed') > 0 AS trained;
SELECT encoding FROM corgipile.model_encoding('hashed');
DROP TABLE many_categories, wide_columns;
-- What nobody should do with the functions underneath: an error, or NULL, never more.
\set one '{"columns": [{"name": "a", "type": "text", "kind": {"hash": {"buckets": 10}}, "on_null": "error"}], "sparse": true}'
SELECT corgipile.encode_sparse(:'one', 'x'::text);
SELECT corgipile.encode_sparse(:'one', r) FROM (VALUES (ROW('abc'::text)), (ROW(1234567::bigint))) AS v(r);
SELECT corgipile.encode_sparse(:'one', r) IS NULL AS none FROM (VALUES (NULL), (ROW('abc'::text)), (NULL)) AS v(r);
SELECT corgipile.columns_score('z', r) FROM (VALUES (ROW('a'::text, 'b'::text, 'good'::grade, 'c'::varchar)), (ROW(1::bigint, 2::bigint, 3::bigint, 4::bigint))) AS v(r);
SELECT corgipile.columns_score('z', r) IS NULL AS none FROM (VALUES (NULL), (ROW('a'::text, 'b'::text, 'good'::grade, 'c'::varchar)), (NULL)) AS v(r);
SELECT corgipile.encode_dense(:'one', 'x'::text);
SELECT corgipile.encode_sparse(:'one', 1, 2);
SELECT corgipile.encode_sparse(:'one', VARIADIC ARRAY['x']);
SELECT corgipile.encode_sparse(NULL, 'x'::text) IS NULL AS none;
SELECT corgipile.encode_sparse(e::jsonb, 'x'::text) FROM (SELECT (ARRAY[:'one'])[1 + random()::int / 2] AS e) AS x;
SELECT corgipile.encode_sparse(replace(:'one', '10', n)::jsonb, 'x'::text) FROM unnest('{0}'::text[]) AS n;
SELECT corgipile.encode_sparse(replace(:'one', '10', '0')::jsonb, 'x'::text);
SELECT corgipile.encode_dense(replace(replace(:'one', '10', '4294967295'), 'true', 'false')::jsonb, 'x'::text);
SELECT corgipile.encode_sparse('{"columns": 7}', 'x'::text);
SELECT corgipile.encode_sparse('{"columns": [], "sparse": true}');
SELECT corgipile.sgd(y, bytes, '{}') FROM (VALUES (true, '\x01'::bytea), (false, '\x00')) AS v(y, bytes);
SELECT corgipile.sgd(y, bytes, '{}') FROM (VALUES (true, '\x0000000000000000'::bytea), (false, '\xffffffff00000000')) AS v(y, bytes);
SELECT corgipile.learn_encoding('{}', NULL, NULL, 1);
SELECT corgipile.columns_predict('z');
SELECT corgipile.columns_predict('z', 1);
SELECT corgipile.columns_predict('z', 'a'::text, 1, 'good'::grade, now());
-- Numerics are read as a cast reads them.
\set one_number '{"columns": [{"name": "a", "type": "numeric", "kind": {"number": {"mean": 0, "deviation": 1}}, "on_null": "zero"}], "sparse": false}'
SELECT count(*), count(*) FILTER (WHERE encode_dense[1] IS DISTINCT FROM n::float8::real) AS differ
FROM (SELECT n, corgipile.encode_dense(:'one_number', n) FROM (
    SELECT (sin(i) * 10 ^ (i % 44 - 22))::numeric(60, 30) AS n FROM generate_series(1, 20000) AS i
    UNION ALL SELECT round((sin(i) * 10 ^ (i % 12))::numeric, i % 5 - 2) FROM generate_series(1, 20000) AS i
    UNION ALL SELECT unnest('{0,0.00,-0.0,1,-1,9999,10000,-10000,100000000,9007199254740992,9007199254740993,-9007199254740994.5,9999999999999999,0.1,0.0001,0.00001,123e18,1e22,1e23,1e-22,1e-23,1e38,-1e-30}'::numeric[])) AS x) AS y;
SELECT corgipile.encode_dense(:'one_number', 'NaN'::numeric);
SELECT corgipile.encode_dense(:'one_number', '-Infinity'::numeric);
-- Models that do not go with each other.
SELECT train_sgd('dense', model_name => 'of arrays', max_epochs => 1) > 0 AS trained;
SELECT refused($$SELECT train_sgd('kinds', 'i2', '{i4,i8,n}', warm_start => 'of arrays', loss => 'log_loss')$$);
SELECT train_sgd('dense', 'label', '{features_v}', encode => '{}', model_name => 'of elements', max_epochs => 1) > 0 AS trained;
SELECT train_sgd('dense', warm_start => 'of elements', max_epochs => 1) > 0 AS goes_on;
SELECT refused($$SELECT corgipile.sgd(label, features_v, '{"warm_start": "of elements"}') FROM dense$$);
-- Categories are the same whatever the session's settings.
SELECT train_sgd('holes', 'y', '{ts,i4}', encode => '{"i4": "hash:64"}', filter => 'ts IS NOT NULL', model_name => 'settings') > 0 AS trained;
CREATE TABLE settings AS SELECT id, y, f4, tz, tm, iv FROM kinds;
SELECT train_sgd('settings', 'y', '{f4,tz}', encode => '{"f4": "one_hot", "tz": "one_hot"}', model_name => 'of settings') > 0 AS trained;
SELECT md5(string_agg(predict_score('of settings', s)::text, ',' ORDER BY id)) AS before FROM settings s \gset
SET timezone = 'Asia/Tokyo'; SET datestyle = 'German'; SET extra_float_digits = -5;
SELECT md5(string_agg(predict_score('of settings', s)::text, ',' ORDER BY id)) = :'before' AS same FROM (SELECT id, f4, tz FROM settings) AS s, set_config('extra_float_digits', '1', true) AS c;
RESET timezone; RESET datestyle; RESET extra_float_digits;
SELECT train_sgd('settings', 'y', '{tm,iv}', model_name => 'of times') > 0 AS trained;
SELECT predict('of times', x) FROM (SELECT now() AS tm, interval '1 day' AS iv) AS x;
SELECT predict('of times', x) FROM (SELECT time '12:00' AS tm, 1 AS iv) AS x;
SELECT refused($$SELECT train_sgd('huge', 'y', '{x}') FROM (SELECT 1) AS one$$) FROM (SELECT 1) AS two;
CREATE TABLE huge AS SELECT i % 2 = 0 AS y, CASE i % 2 WHEN 0 THEN 1.7e308 ELSE -1.7e308 END::float8 AS x FROM generate_series(1, 10) AS i;
SELECT refused($$SELECT train_sgd('huge', 'y', '{x}')$$);
-- Two calls for one row score it once. Neighbours that differ in one column only, or not at all, stay apart; values in line,
-- compressed and out of line; and a call that some rows are not asked for.
CREATE TABLE alike AS SELECT i AS id, (i % 3)::text AS y, repeat('a', i % 2) || repeat('b', i % 5 / 4 * 17) AS a, CASE i % 7 WHEN 0 THEN NULL ELSE (i % 3)::numeric END AS b,
    ARRAY[i % 2, (i % 11 = 0)::int]::real[] AS c, timestamptz '2026-01-01 UTC' + i / 40 * interval '1 hour' AS d, i % 4 = 0 AS e
    FROM generate_series(1, 400) AS i ORDER BY i / 50, md5(i::text);
INSERT INTO alike SELECT 1000 + i, i % 3, repeat(CASE WHEN i % 2 = 0 THEN 'long' ELSE 'longer' END, 1000), 1, '{1,2}', '2026-01-01', true FROM generate_series(1, 20) AS i;
ALTER TABLE alike ALTER a SET STORAGE EXTERNAL;
INSERT INTO alike SELECT 2000 + i, i % 3, repeat(CASE WHEN i % 2 = 0 THEN 'long' ELSE 'longer' END, 1000), 1, '{1,2}', '2026-01-01', true FROM generate_series(1, 20) AS i;
SELECT train_sgd('alike', 'y', '{a,b,c,d,e}', on_null => 'mean', model_name => 'alike', max_epochs => 2) > 0 AS trained;
CREATE TEMP TABLE alone AS SELECT id, predict_proba('alike', t) AS p FROM alike AS t;
SELECT count(*), count(*) FILTER (WHERE probability <> p) AS differ, count(DISTINCT p) > 30 AS various
    FROM (SELECT id, prediction, probability FROM alike PREDICT BY 'alike') AS x JOIN alone USING (id) WHERE prediction IS NOT NULL;
SELECT count(p0) AS both, count(p1) AS one, count(*) FILTER (WHERE p0 <> p OR p1 <> p) AS differ FROM (
    SELECT id, CASE id % 2 WHEN 0 THEN predict_proba('alike', t) END AS p0, CASE WHEN id % 3 < 2 THEN predict_proba('alike', t) END AS p1, predict('alike', t) FROM alike AS t OFFSET 0) AS x
    JOIN alone USING (id);
SELECT predict_proba('alike', t) = predict_proba('alike', t) AS same_of_a_long_one FROM (SELECT repeat('long', 100000) AS a, 1.0 AS b, '{1,2}'::real[] AS c, now() AS d, true AS e) AS t;
CREATE TABLE of_arrays AS SELECT id, y AS label, c || e::int::real AS features_v, CASE WHEN e THEN '{1,2}'::int[] ELSE '{1,3}' END AS features_k, c AS v FROM alike;
SELECT train_sgd('of_arrays', 'label', '{features_v}', model_name => 'alike arrays', max_epochs => 2) > 0 AS dense, train_sgd('of_arrays', 'label', '{features_k,v}', model_name => 'alike pairs', max_epochs => 2) > 0 AS sparse;
CREATE TEMP TABLE alone_arrays AS SELECT id, predict_proba('alike arrays', features_v) AS p FROM of_arrays;
CREATE TEMP TABLE alone_pairs AS SELECT id, predict_proba('alike pairs', features_k, v) AS p FROM of_arrays;
SELECT count(*), count(*) FILTER (WHERE probability <> p) AS differ, count(DISTINCT p) FROM (SELECT * FROM of_arrays PREDICT BY 'alike arrays') AS x JOIN alone_arrays USING (id) WHERE prediction IS NOT NULL;
SELECT count(*), count(*) FILTER (WHERE probability <> p) AS differ, count(DISTINCT p) FROM (SELECT * FROM of_arrays PREDICT BY 'alike pairs') AS x JOIN alone_pairs USING (id) WHERE prediction IS NOT NULL;
-- Sparse pairs beside other columns: an array that numbers the elements of another, by the usual names or as encode says.
CREATE TABLE docs AS SELECT i AS id, i > 1000 AS label, ARRAY[1 + i % 7, 10 + (i > 1000 AND i % 10 < 8)::int, 20 + i % 40] AS features_k, '{1,2,0.5}'::real[] AS features_v,
    (i * 7919 % 1000) * 40.0 + CASE WHEN i > 1000 THEN 9000 ELSE 0 END AS price, 'c' || i % 4 AS color FROM generate_series(1, 2000) AS i;
CREATE TABLE words AS SELECT id, color, label, features_k AS words, features_v AS counts, price FROM docs;
SELECT train_sgd('docs', 'label', '{features_v,price,color,features_k}', model_name => 'docs') > 0 AS usual,
       train_sgd('words', 'label', encode => '{"counts": {"indices": "words"}}', exclude => '{id}', model_name => 'words') > 0 AS asked;
SELECT column_name, encoding, features, on_null FROM corgipile.model_encoding('docs');
SELECT column_name, encoding, features, on_null FROM corgipile.model_encoding('words');
SELECT m AS model, count(*) AS rows, count(*) FILTER (WHERE prediction = actual) > 1800 AS good FROM (
    SELECT 'docs' AS m, prediction, label AS actual FROM docs PREDICT BY 'docs' UNION ALL SELECT 'words', prediction, label FROM words PREDICT BY 'words') AS x GROUP BY m ORDER BY m;
SELECT max(abs((SELECT sum(contribution) FROM explain_prediction('docs', d)) - predict_score('docs', d))) < 1e-5 AS adds_up FROM (SELECT * FROM docs LIMIT 50) AS d;
SELECT name FROM corgipile.model_features('docs') WHERE feature IN (10, 59, 60) ORDER BY feature;
SELECT refused(q) FROM unnest(ARRAY[
    $$SELECT train_sgd('words', 'label', encode => '{"counts": {"indices": "color"}}')$$,
    $$SELECT train_sgd('words', 'label', '{counts,price}', encode => '{"counts": {"indices": "words"}}')$$,
    $$SELECT train_sgd('words', 'label', encode => '{"counts": {"indices": "words"}, "words": "one_hot"}')$$,
    $$SELECT train_sgd('words', 'label', encode => '{"counts": {"indices": "words", "encode": "number"}}')$$,
    $$SELECT train_sgd('words', 'label', encode => '{"counts": {"indices": "counts"}}')$$,
    $$SELECT export_model_sql('docs')$$]) AS q;
-- An element that was never seen has no weight; numbers that are none are errors, of the row; NULL is the column's.
SELECT predict_score('docs', a) = predict_score('docs', b) AS same FROM
    (SELECT '{10}'::int[] AS features_k, '{2}'::real[] AS features_v, 1.0 AS price, 'c1' AS color) AS a,
    (SELECT '{10,5000}'::int[] AS features_k, '{2,7}'::real[] AS features_v, 1.0 AS price, 'c1' AS color) AS b;
SELECT predict('docs', a) FROM (SELECT '{3,2}'::int[] AS features_k, '{2,1}'::real[] AS features_v, 1.0 AS price, 'c1' AS color) AS a;
SELECT predict('docs', a) FROM (SELECT '{0}'::int[] AS features_k, '{2}'::real[] AS features_v, 1.0 AS price, 'c1' AS color) AS a;
SELECT predict('docs', a) FROM (SELECT NULL::int[] AS features_k, '{2}'::real[] AS features_v, 1.0 AS price, 'c1' AS color) AS a;
INSERT INTO docs VALUES (0, true, '{3,2}', '{1,1}', 1, 'c1');
SELECT train_sgd('docs', 'label', '{features_k,features_v,price}');
UPDATE docs SET features_k = NULL WHERE id = 0;
SELECT train_sgd('docs', 'label', '{features_k,features_v,price}');
SELECT train_sgd('docs', 'label', '{features_k,features_v,price}', on_null => 'zero', model_name => 'docs zero') > 0 AS trained;
SELECT train_sgd('docs', 'label', warm_start => 'docs', filter => 'id > 0', max_epochs => 1) > 0 AS goes_on;
-- The encoding of one is not that of a sparse vector.
ALTER TABLE words ALTER words TYPE text USING 'x';
SELECT count(prediction) FROM words PREDICT BY 'words';
-- A dense table of the usual form has features_k, and leaves it NULL: a column without values, not numbers of elements.
CREATE TABLE empty_numbers AS SELECT i AS id, NULL::int[] AS features_k, ARRAY[i % 10 + CASE WHEN i > 500 THEN 3 ELSE 0 END, i % 7]::real[] AS features_v,
    i > 500 AS label, i % 3 AS extra FROM generate_series(1, 1000) AS i;
SET client_min_messages = warning;
SELECT train_sgd('empty_numbers', model_name => 'usual mean', on_null => 'mean') > 0 AS mean,
    train_sgd('empty_numbers', model_name => 'usual exclude', exclude => '{id}') > 0 AS exclude,
    train_sgd('empty_numbers', model_name => 'usual encode', encode => '{"features_v": {"on_null": "zero"}}') > 0 AS encode;
SELECT model_name, c ->> 'name' AS column, c ->> 'type' AS type FROM corgipile.models, jsonb_array_elements(corgipile.model_info(model_name) -> 'encoding' -> 'columns') AS c
    WHERE model_name LIKE 'usual %' ORDER BY model_id, c ->> 'name';
SELECT train_sgd('empty_numbers', 'label', '{features_k,features_v}', on_null => 'zero');
-- Rows to train on decide, not others.
UPDATE empty_numbers SET features_k = '{1,2}' WHERE id > 990 OR id < 10;
SELECT train_sgd('empty_numbers', filter => 'id BETWEEN 10 AND 990', model_name => 'usual filter', on_null => 'mean') > 0 AS trained;
SELECT train_sgd('empty_numbers', filter => 'id > 990 OR id < 10', model_name => 'usual numbers', on_null => 'zero') > 0 AS trained;
SELECT m, jsonb_array_length(corgipile.model_info(m) -> 'encoding' -> 'columns') AS columns FROM unnest('{usual filter,usual numbers}'::text[]) AS m;
-- With values that are NULL everywhere go their numbers.
CREATE TABLE no_counts AS SELECT id, ARRAY[1] AS k, NULL::real[] AS v, features_v[1]::float8 AS x, label FROM empty_numbers;
SELECT train_sgd('no_counts', model_name => 'no counts', encode => '{"v": {"indices": "k"}}', on_null => 'zero') > 0 AS trained;
SELECT c ->> 'name' AS column FROM jsonb_array_elements(corgipile.model_info('no counts') -> 'encoding' -> 'columns') AS c;
SELECT train_sgd('no_counts', 'label', '{x,k,v}', encode => '{"v": {"indices": "k"}}', on_null => 'zero');
CREATE TABLE counted AS SELECT id, color, label, features_k AS words, features_v AS counts, price FROM docs WHERE features_k IS NOT NULL;
-- What is asked of numbers is asked of their elements.
SELECT train_sgd('counted', 'label', '{words,counts,price}', encode => '{"counts": {"indices": "words"}, "words": {"is_null": true}}');
SELECT train_sgd('docs', 'label', '{features_k,features_v,price}', encode => '{"features_k": {"on_null": "mean"}}');
-- A model to start from has its columns in its own order.
SELECT train_sgd('counted', 'label', '{counts,price,color,words}', encode => '{"counts": {"indices": "words"}}', model_name => 'words twice', max_epochs => 1) > 0 AS trained;
SELECT train_sgd('counted', 'label', '{counts,price,color,words}', warm_start => 'words twice', max_epochs => 1) > 0 AS again;
SELECT train_sgd('counted', 'label', '{counts,price,words}', warm_start => 'words twice', max_epochs => 1);
-- Numbers that are nested are to blame themselves.
CREATE TABLE nested AS SELECT ARRAY[[1,2]] AS features_k, '{1,2}'::real[] AS features_v, 1.5 AS price, true AS label;
SELECT train_sgd('nested', 'label', '{features_k,features_v,price}');
-- A label that is renamed between two calls of one expression is read by its new name.
CREATE TYPE feeling AS ENUM ('sad', 'happy');
CREATE TABLE moods AS SELECT (ARRAY['sad', 'happy'])[1 + i % 2]::feeling AS mood, i % 2 = 1 AS label FROM generate_series(0, 199) AS i;
SELECT train_sgd('moods', model_name => 'moods') > 0 AS trained;
CREATE FUNCTION swapped() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    r moods;
BEGIN
    SELECT * INTO r FROM moods LIMIT 1;
    FOR i IN 1..2 LOOP
        RETURN NEXT format('%s %s', predict('moods', r), predict_proba('moods', r) > 0.5);
        IF i = 1 THEN
            ALTER TYPE feeling RENAME VALUE 'sad' TO 'other';
            ALTER TYPE feeling RENAME VALUE 'happy' TO 'sad';
            ALTER TYPE feeling RENAME VALUE 'other' TO 'happy';
        END IF;
    END LOOP;
END
$$;
SELECT swapped();
-- A domain is explained as what it is of; what only has the name of a vector is not one.
CREATE DOMAIN features AS real[];
CREATE DOMAIN a_mood AS moods;
CREATE DOMAIN amount AS int;
SELECT count(*) AS explained FROM explain_prediction('alike arrays', (SELECT features_v::features FROM of_arrays LIMIT 1));
SELECT count(*) AS explained FROM explain_prediction('moods', (SELECT m::moods::a_mood FROM moods AS m LIMIT 1));
SELECT explain_prediction('moods', 1::amount);
CREATE TYPE vector AS (x int);
SELECT explain_prediction('moods', ROW(1)::vector);
DROP TYPE vector;
RESET client_min_messages;
