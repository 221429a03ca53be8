-- Everything that can be wrong: an SQLSTATE, what and where, and the way out.
\a\t
SET client_min_messages = warning;
\echo -- relations and columns
SELECT try($$ SELECT train_sgd('no_such_table') $$);
SELECT try($$ SELECT train_sgd('dense_id_index') $$);
CREATE INDEX dense_id_index ON dense (id);
SELECT try($$ SELECT train_sgd('dense_id_index') $$);
DROP INDEX dense_id_index;
SELECT try($$ SELECT train_sgd('dense', 'no_such_column') $$);
SELECT try($$ SELECT train_sgd('dense', features => '{nothing}') $$);
SELECT try($$ SELECT train_sgd('dense', features => '{id,features_v,label}') $$);
SELECT try($$ SELECT train_sgd('dense', features => '{}') $$);
SELECT try($$ SELECT train_sgd('line') $$);
SELECT try($$ SELECT train_sgd('line', 'y') $$);
SELECT try($$ SELECT train_sgd('dense', features => '{id}') $$);
SELECT try($$ SELECT train_sgd('dense', features => '{features_v,features_v}') $$);
SELECT try($$ SELECT train_sgd(NULL) $$);
\echo -- models
SELECT try($$ SELECT predict(12345, '{1}'::real[]) $$);
SELECT try($$ SELECT predict('nobody', '{1}'::real[]) $$);
SELECT try($$ SELECT * FROM dense PREDICT BY 'nobody' $$);
SELECT try($$ SELECT drop_model('nobody') $$);
SELECT try($$ SELECT train_sgd('dense', model_name => 'svm') $$);
SELECT try($$ SELECT train_sgd('dense', model_name => '17') $$);
SELECT try($$ SELECT train_sgd('dense', model_name => '') $$);
SELECT try($$ SELECT predict('svm', '{1,2}'::real[]) $$);
SELECT try($$ SELECT predict('svm', '{1,2,NaN}'::real[]) $$);
SELECT try($$ SELECT predict('svm', '{1,2,NULL}'::real[]) $$);
SELECT try($$ SELECT predict('svm', '{{1,2,3}}'::real[]) $$);
SELECT try($$ SELECT predict('svm', '{1,2,3}'::text[]) $$);
SELECT try($$ SELECT predict('svm', '{2,1}'::int[], '{1,1}'::real[]) $$);
SELECT try($$ SELECT predict('svm', '{0}'::int[], '{1}'::real[]) $$);
SELECT try($$ SELECT predict('svm', '{1,2}'::int[], '{1}'::real[]) $$);
SELECT try($$ SELECT predict('svm', line) FROM line $$);
SELECT try($$ SELECT predict_value('svm', '{1,2,3}'::real[]) $$);
SELECT try($$ SELECT predict_proba('svm', '{1,2,3}'::real[], 'maybe') $$);
SELECT try($$ SELECT * FROM line PREDICT BY 'svm' $$);
SELECT try($$ SELECT '\x00'::corgipile.model $$);
SELECT try($$ SELECT ''::corgipile.model $$);
SELECT try($$ SELECT 'nonsense'::corgipile.model $$);
SELECT try($$ SELECT (overlay(m::text placing '00' from 60))::corgipile.model FROM kept $$);
\echo -- rows
CREATE TABLE bad (id int, k int[], v real[], label int);
CREATE FUNCTION train_bad(k text, v text, label text, options jsonb DEFAULT '{}') RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE bad;
    INSERT INTO bad VALUES (1, '{1,2}', '{1,2}', 0), (2, '{1,2}', '{3,4}', 1), (3, k::int[], v::real[], label::int);
    RETURN try(format('SELECT model_vector(corgipile.sgd(label, v, %L)) FROM bad', options)) || E'\n' ||
           try(format('SELECT model_vector(corgipile.sgd(label, k, v, %L)) FROM bad', options));
END $$;
SELECT train_bad('{1,2}', '{5,6}', '1');
SELECT train_bad('{1,2}', '{5,6}', NULL);
SELECT train_bad('{1,2}', NULL, '1');
SELECT train_bad(NULL, '{5,6}', '1');
SELECT train_bad('{1,2}', '{5,NULL}', '1');
SELECT train_bad('{1,NULL}', '{5,6}', '1');
SELECT train_bad('{1,2}', '{5,NULL}', NULL, '{"on_null": "skip"}');
SELECT train_bad(NULL, NULL, NULL, '{"on_null": "skip"}');
SELECT train_bad('{1,2}', '{NaN,6}', '1');
SELECT train_bad('{1,2}', '{5,-Infinity}', '1');
SELECT train_bad('{1,2}', '{5,6,7}', '1');
SELECT train_bad('{1,2}', '{}', '1');
SELECT train_bad('{{1,2}}', '{{5,6}}', '1');
SELECT train_bad('{0,2}', '{5,6}', '1');
SELECT train_bad('{-3,2}', '{5,6}', '1');
SELECT train_bad('{2,2}', '{5,6}', '1');
SELECT train_bad('{2,1}', '{5,6}', '1');
SELECT train_bad('{1,2147483647}', '{5,6}', '1');
SELECT train_bad('{1,2}', '{5,6}', '2', '{"loss": "hinge"}');
SELECT try($$ SELECT corgipile.sgd(label, ARRAY['a']) FROM bad $$);
SELECT try($$ SELECT corgipile.sgd(label, ARRAY[label::numeric]) FROM bad $$);
SELECT try($$ SELECT corgipile.sgd(label, ARRAY[1e300::float8 * label]) FROM bad $$);
SELECT try($$ SELECT corgipile.sgd('NaN'::float8, v) FROM bad $$);
SELECT try($$ SELECT corgipile.sgd('Infinity'::numeric, v) FROM bad $$);
SELECT try($$ SELECT corgipile.sgd(1e300, v, '{"loss": "linear"}') FROM bad $$);
SELECT try($$ SELECT corgipile.sgd(label::text, v, '{"loss": "squared_error"}') FROM bad $$);
SELECT try($$ SELECT corgipile.sgd(id::text, v, '{"loss": "log_loss"}') FROM bad $$);
SELECT try($$ SELECT corgipile.sgd(label = 1, v, '{"loss": "linear"}') FROM bad $$);
SELECT try($$ SELECT corgipile.sgd(label, ARRAY[]::real[]) FROM bad $$);
SELECT try($$ SELECT g, corgipile.sgd(y, x) FROM (VALUES (1, 0, '{}'::real[]), (1, 1, '{1}'), (1, 0, '{2}')) v(g, y, x) GROUP BY g $$);
\echo -- tiny tables: 0, 1 and 2 rows, one class
TRUNCATE bad;
SELECT try($$ SELECT train_sgd('bad', features => '{v}') $$);
INSERT INTO bad VALUES (1, '{1}', '{1}', 0);
SELECT try($$ SELECT train_sgd('bad', features => '{v}') $$);
SELECT try($$ SELECT train_sgd('bad', features => '{k,v}') $$);
SELECT try($$ SELECT train_sgd('bad', features => '{v}', loss => 'squared_error') $$);
INSERT INTO bad VALUES (2, '{1}', '{2}', 1);
SELECT try($$ SELECT train_sgd('bad', features => '{v}') $$);
UPDATE bad SET label = 1;
SELECT try($$ SELECT train_sgd('bad', features => '{v}') $$);
SELECT try($$ SELECT corgipile.sgd(label, v) FROM bad GROUP BY k $$);
UPDATE bad SET label = NULL;
SELECT try($$ SELECT train_sgd('bad', features => '{v}', on_null => 'skip') $$);
\echo -- options
SELECT try($$ SELECT corgipile.sgd(label, features_v, '{"epochs": 3}') FROM dense $$);
SELECT try($$ SELECT corgipile.sgd(label, features_v, '[]') FROM dense $$);
SELECT try($$ SELECT corgipile.sgd(label, features_v, '{"max_epochs": "3"}') FROM dense $$);
SELECT try($$ EXPLAIN SELECT corgipile.sgd(label, features_v, '{"max_epochs": 0}') FROM dense $$);
SELECT try($$ SELECT corgipile.sgd(label, features_v, '{"shuffle": "random"}') FROM dense GROUP BY id % 2 $$);
SELECT try($$ SELECT train_sgd('dense', epochs => 3) $$);
SELECT try($$ SELECT train_sgd('dense', max_epochs => -1) $$);
SELECT try($$ SELECT train_sgd('dense', learning_rate => 'NaN') $$);
SELECT try($$ SELECT train_sgd('dense', learning_rate => -0.1) $$);
SELECT try($$ SELECT train_sgd('dense', decay => 'Infinity') $$);
SELECT try($$ SELECT train_sgd('dense', l2_reg => -1) $$);
SELECT try($$ SELECT train_sgd('dense', loss => 'poisson') $$);
SELECT try($$ SELECT train_sgd('dense', on_null => 'ignore') $$);
SELECT try($$ SELECT train_sgd('dense', schedule => 'cosine') $$);
SELECT try($$ SELECT train_sgd('dense', optimizer => 'lbfgs') $$);
SELECT try($$ SELECT train_sgd('dense', l1_reg => -1) $$);
SELECT try($$ SELECT train_sgd('dense', epsilon => 0.1) $$);
SELECT try($$ SELECT train_sgd('dense', schedule => 'constant', decay => 0.5) $$);
SELECT try($$ SELECT train_sgd('dense', class_weight => 'equal') $$);
SELECT try($$ SELECT train_sgd('dense', class_weight => '{"2": 3}') $$);
SELECT try($$ SELECT train_sgd('dense', class_weight => 'balanced', loss => 'huber') $$);
SELECT try($$ SELECT train_sgd('line', 'y', '{x}', class_weight => 'balanced') $$);
SELECT try($$ SELECT train_sgd('dense', batch_size => 0) $$);
SELECT try($$ SELECT train_sgd('dense', block_size => '10') $$);
SELECT try($$ SELECT train_sgd('dense', buffer_size => '1kB') $$);
SELECT try($$ SET corgipile.memory_limit = '1kB' $$);
SELECT try($$ SET corgipile.no_such_setting = 1 $$);
\echo -- divergence and memory
SELECT try($$ SELECT train_sgd('line', 'y', '{x}', learning_rate => 1000) $$);
SELECT try($$ SELECT train_sgd('dense', block_size => '10MB', buffer_size => '1MB') $$);
SELECT try($$ SELECT train_sgd('dense', buffer_size => '10GB') $$);
SET corgipile.memory_limit = '64kB';
SELECT try($$ SELECT train_sgd('dense', block_size => '10MB') $$);
SELECT try($$ SELECT corgipile.sgd(label, features_v) FROM dense GROUP BY id % 1 $$);
SELECT try($$ SELECT corgipile.sgd(label, '{5000}'::int[], '{1}'::real[]) FROM dense $$);
SELECT try($$ SELECT corgipile.sgd(label, array_fill(1::real, ARRAY[3000])) FROM dense $$);
SELECT try($$ SELECT corgipile.sgd(label, array_fill(1::real, ARRAY[30000])) FROM dense $$);
SELECT try($$ SELECT corgipile.sgd(label, features_v) FROM dense $$);
RESET corgipile.memory_limit;
\echo -- read only
BEGIN READ ONLY;
SELECT try($$ SELECT train_sgd('dense') $$);
SELECT try($$ SELECT drop_model('svm') $$);
SELECT predict('svm', '{2,0,1}'::real[]) IN ('0', '1');
ROLLBACK;
\echo -- errors of others keep their text and context
CREATE FUNCTION oops(i int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN 1 / (i - 7) > 0; END $$;
\set VERBOSITY default
SELECT corgipile.sgd(label, features_v) FROM dense WHERE oops(id) IS NOT NULL;
SELECT 'the server is still up';
