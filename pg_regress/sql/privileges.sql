-- The caller's own rights decide what is trained on; a model is its owner's.
SET client_min_messages = warning;
CREATE ROLE corgi_alice;
CREATE ROLE corgi_bob;
CREATE TABLE secrets (id int, tenant name, features_v real[], label int, hidden real[]);
INSERT INTO secrets SELECT i, CASE WHEN i % 2 = 0 THEN 'corgi_alice' ELSE 'corgi_bob' END, ARRAY[noise(i, 1) + i % 4 / 2], i % 4 / 2, '{1}'
FROM generate_series(1, 1000) i;
SET ROLE corgi_alice;
SELECT train_sgd('secrets');
RESET ROLE;
GRANT SELECT (features_v, label) ON secrets TO corgi_alice, corgi_bob;
SET ROLE corgi_alice;
SELECT train_sgd('secrets', features => '{hidden}');
SELECT train_sgd('secrets', model_name => 'alice') > 0 AS trained;
SELECT owner, model_name, rows_used FROM corgipile.models;
RESET ROLE;
-- Row security.
ALTER TABLE secrets ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON secrets USING (tenant = current_user);
GRANT SELECT ON secrets TO corgi_bob;
SET ROLE corgi_bob;
EXPLAIN (COSTS OFF) SELECT corgipile.sgd(label, features_v) FROM secrets;
SELECT train_sgd('secrets', model_name => 'bob') > 0 AS trained;
SELECT owner, model_name, rows_used FROM corgipile.models;
-- Another's model: not listed, not used, not dropped, and its bytes cannot be read.
SELECT count(*) FROM corgipile.training_history h JOIN corgipile.models m USING (model_id) WHERE m.model_name = 'alice';
SELECT predict('alice', '{1}'::real[]);
SELECT model_vector('alice');
SELECT corgipile.trace_json('alice');
SELECT train_sgd('secrets', warm_start => 'alice');
SELECT count(DISTINCT model_id) AS only_bobs FROM corgipile.trace;
SELECT count(DISTINCT model_id) AS only_bobs FROM corgipile.tuning;
SELECT corgipile.model_info('alice');
SELECT * FROM secrets PREDICT BY 'alice';
SELECT drop_model('alice');
SELECT * FROM corgipile.models_store;
DELETE FROM corgipile.models_store;
SELECT nextval('corgipile.model_id_seq');
SELECT predict('bob', '{1}'::real[]) AS own;
RESET ROLE;
-- Operators and types of the caller's own are not used with the store owner's rights, nor a domain's checks by readers.
RESET ROLE;
CREATE SCHEMA trap AUTHORIZATION corgi_bob;
SET ROLE corgi_bob;
CREATE FUNCTION trap.eq(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped as %', current_user; END $$;
CREATE OPERATOR trap.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = trap.eq);
SET search_path = trap, public, pg_catalog;
SELECT train_sgd('secrets', model_name => 'short-lived') > 0 AS trained;
SELECT drop_model('short-lived');
RESET search_path;
CREATE DOMAIN trap.checked AS integer;
CREATE VIEW trap.domains AS SELECT label::trap.checked AS label, features_v FROM secrets;
SELECT train_sgd('trap.domains', model_name => 'domain') > 0 AS trained;
SELECT target_type FROM corgipile.models WHERE model_name = 'domain';
SELECT drop_model('domain');
RESET ROLE;
DROP SCHEMA trap CASCADE;
-- A member of the owner's role may.
GRANT corgi_alice TO corgi_bob;
SET ROLE corgi_bob;
SELECT predict('alice', '{1}'::real[]) AS member;
RESET ROLE;
-- What is granted may be used and seen, and not changed; by name, to one role or to all.
REVOKE corgi_alice FROM corgi_bob;
CREATE ROLE corgi_carol;
SET ROLE corgi_alice;
SELECT grant_model('alice', 'corgi_bob'), grant_model('alice', 'corgi_bob');
SELECT grant_model('alice', 'no_such_role');
SELECT grant_model('alice', NULL);
SELECT grant_model('bob', 'corgi_alice');
SELECT model_name, granted_to FROM corgipile.models;
SET ROLE corgi_bob;
SELECT predict('alice', '{1}'::real[]) AS granted;
SELECT count(*) > 0 AS by_the_parser FROM secrets PREDICT BY 'alice';
SELECT model_name, granted_to FROM corgipile.models ORDER BY 1;
SELECT count(*) > 0 AS history FROM corgipile.training_history h JOIN corgipile.models m USING (model_id) WHERE m.model_name = 'alice';
SELECT train_sgd('secrets', warm_start => 'alice', model_name => 'from alice') > 0 AS started_from_it;
SELECT drop_model('from alice');
SELECT drop_model('alice');
SELECT rename_model('alice', 'mine');
SELECT grant_model('alice', 'corgi_carol');
SELECT revoke_model('alice', 'corgi_bob');
SELECT * FROM corgipile.model_grants;
SET ROLE corgi_carol;
SELECT predict('alice', '{1}'::real[]);
SELECT count(*) FROM corgipile.models;
SET ROLE corgi_alice;
SELECT grant_model((SELECT model_id FROM corgipile.models WHERE model_name = 'alice'), 'public'), revoke_model('alice', 'corgi_bob');
SET ROLE corgi_carol;
SELECT predict('alice', '{1}'::real[]) AS as_everybody;
-- What is granted to a role is granted to its members.
SET ROLE corgi_alice;
SELECT revoke_model('alice', 'PUBLIC'), grant_model('alice', 'corgi_bob');
RESET ROLE;
GRANT corgi_bob TO corgi_carol;
SET ROLE corgi_carol;
SELECT predict('alice', '{1}'::real[]) AS as_member;
RESET ROLE;
DROP ROLE corgi_carol;
-- Another name: the old one means nothing any more, the grant stays.
SET ROLE corgi_alice;
SELECT rename_model('alice', 'b''s "model" ünï');
SELECT rename_model('b''s "model" ünï', 'renamed');
SELECT rename_model('renamed', '7');
SELECT rename_model('renamed', 'bob');
SELECT rename_model('alice', 'other');
SET ROLE corgi_bob;
SELECT predict('renamed', '{1}'::real[]) AS granted;
SELECT predict('alice', '{1}'::real[]);
RESET ROLE;
SELECT rename_model('renamed', 'alice');
SELECT grantee, grantor FROM corgipile.model_grants;
-- A superuser sees all, also the models of a role that is gone.
SELECT owner, model_name FROM corgipile.models WHERE owner LIKE 'corgi%' ORDER BY 1;
DROP TABLE secrets;
DROP ROLE corgi_alice;
SELECT owner, model_name FROM corgipile.models WHERE owner LIKE 'corgi%' ORDER BY 1;
SET ROLE corgi_bob;
SELECT owner, model_name FROM corgipile.models;
RESET ROLE;
SELECT drop_model('alice'), drop_model('bob');
SELECT count(*) AS grants FROM corgipile.model_grants;
DROP ROLE corgi_bob;

-- What a model says of its target's type is not run as whoever uses it: neither SQL in a type's name, nor a domain's
-- checks, nor a type that was made a domain after training.
CREATE ROLE corgi_mallory;
GRANT CREATE ON SCHEMA public TO corgi_mallory;
SET ROLE corgi_mallory;
CREATE TABLE hers AS SELECT i AS id, CASE WHEN i % 2 = 0 THEN 'no' ELSE 'yes' END AS label, ARRAY[i % 2, i % 5]::real[] AS features_v FROM generate_series(1, 200) AS i;
SELECT train_sgd('hers', model_name => 'hers') > 0 AS trained;
CREATE FUNCTION trap(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'run as %', current_user; RETURN true; END $$;
CREATE DOMAIN trapped AS text CHECK (trap(VALUE));
SELECT import_model(jsonb_set(export_model('hers'), '{header,target_type}', '"text --"'), 'injected') > 0 AS imported;
SELECT import_model(jsonb_set(export_model('hers'), '{header,target_type}', '"trapped"'), 'domain') > 0 AS imported;
SELECT model_name, target_type FROM corgipile.models WHERE model_name IN ('injected', 'domain') ORDER BY 1;
SELECT import_model(jsonb_set(export_model('hers'), '{header,target_type}', '"anyarray"'), 'pseudo');
SELECT import_model(jsonb_set(export_model('hers'), '{header,rows}', '18446744073709551615'), 'rows');
CREATE TYPE hers_mood AS ENUM ('no', 'yes');
ALTER TABLE hers ALTER label TYPE hers_mood USING label::hers_mood;
SELECT train_sgd('hers', model_name => 'moods') > 0 AS trained;
ALTER TABLE hers ALTER label TYPE text;
DROP TYPE hers_mood;
CREATE DOMAIN hers_mood AS text CHECK (trap(VALUE));
SELECT grant_model(name, 'public') FROM unnest('{injected,domain,moods}'::text[]) AS name;
RESET ROLE;
SELECT count(*) FROM hers PREDICT BY 'moods' WHERE prediction = 'yes';
SELECT count(*) FROM hers PREDICT BY 'domain' WHERE prediction = 'yes';
SELECT rows, accuracy FROM evaluate_sgd('moods', 'hers');
SELECT rows, accuracy FROM evaluate_sgd('domain', 'hers');
SELECT count(*) FROM confusion_matrix('injected', 'hers');
-- A role may be named PUBLIC, which is not everybody then.
CREATE ROLE "PUBLIC";
SET ROLE corgi_mallory;
SELECT grant_model('hers', 'PUBLIC'), granted_to FROM corgipile.models WHERE model_name = 'hers';
SELECT granted_to FROM corgipile.models WHERE model_name = 'hers';
RESET ROLE;
DROP OWNED BY corgi_mallory CASCADE;
SELECT drop_model(model_name) FROM corgipile.models WHERE owner = 'corgi_mallory' ORDER BY model_id;
DROP ROLE "PUBLIC";
DROP ROLE corgi_mallory;
-- Columns that may be read are enough to train on.
CREATE ROLE corgi_nora;
CREATE TABLE partly (a integer, y boolean, secret text);
INSERT INTO partly SELECT i, i % 2 = 0, 'secret ' || i % 3 FROM generate_series(1, 100) AS i;
GRANT SELECT (a, y) ON partly TO corgi_nora;
SET ROLE corgi_nora;
SELECT train_sgd('partly', 'y', max_epochs => 1, model_name => 'partly') > 0 AS trained;
SELECT column_name FROM corgipile.model_encoding('partly');
SELECT train_sgd('partly', 'y', '{secret}');
SELECT drop_model('partly');
RESET ROLE;
DROP OWNED BY corgi_nora;
DROP ROLE corgi_nora;
-- No function that takes a model gives away another's.
CREATE TABLE open_rows AS SELECT i AS a, i % 2 = 0 AS y, ARRAY[i, 1]::real[] AS v FROM generate_series(1, 50) AS i;
SELECT train_sgd('open_rows', 'y', '{a}', model_name => 'private', max_epochs => 1) > 0 AS trained;
SELECT train_sgd('open_rows', 'y', '{v}', model_name => 'private arrays', max_epochs => 1) > 0 AS trained;
SELECT model_id AS private_id FROM corgipile.models WHERE model_name = 'private' \gset
CREATE ROLE corgi_otto;
GRANT SELECT ON open_rows TO corgi_otto;
CREATE FUNCTION outcome(query text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'SELECT ' || query || ' FROM (SELECT * FROM open_rows LIMIT 1) AS r';
    RETURN 'done';
EXCEPTION WHEN OTHERS THEN
    RETURN sqlstate || ' ' || replace(sqlerrm, current_setting('corgi.private'), 'id');
END $$;
SELECT set_config('corgi.private', :'private_id', false) IS NOT NULL AS noted;
SET ROLE corgi_otto;
SELECT call, outcome(replace(call, '$m', '''private''')) AS by_name, outcome(replace(call, '$m', current_setting('corgi.private') || '::bigint')) AS by_id
FROM unnest(ARRAY['predict($m, r)', 'predict_score($m, r)', 'predict_value($m, r)', 'predict_proba($m, r)', 'predict_proba($m, r, ''t'')', 'corgipile.prediction_probability($m, r)', 'predict_by(r, $m)',
    'evaluate_sgd($m, ''open_rows'')', 'evaluate_classes($m, ''open_rows'')', 'confusion_matrix($m, ''open_rows'')', 'explain_prediction($m, r)', 'export_model($m)', 'export_model_sql($m)',
    'model_vector($m)', 'drop_model($m)', 'rename_model($m, ''mine'')', 'grant_model($m, ''public'')', 'revoke_model($m, ''public'')', 'corgipile.model_info($m)', 'corgipile.model_weights($m)',
    'corgipile.model_encoding($m)', 'corgipile.report($m)', 'corgipile.loss_curve($m)', 'corgipile.trace_json($m)', 'corgipile.model_features($m)']) AS call;
-- And the functions beneath them, whatever their arguments.
SELECT call, outcome(call) FROM unnest(ARRAY['corgipile.columns_score(''private'', r.a)', 'corgipile.columns_predict(''private'', r.a)', 'corgipile.columns_class(''private'', NULL::boolean, r.a)',
    'corgipile.row_score(''private'', NULL::open_rows, r.a, r.y, r.v)', 'corgipile.encoded_row(''private'', r)', 'corgipile.weights_of(''private'')', 'corgipile.weights_of(''private arrays'')', 'corgipile.encoded_score_sql(''private'', 0)',
    'corgipile.current_model(''private'', ''{a}'', ''boolean'')', 'corgipile.sgd(r.y, r.v, ''{"warm_start": "private arrays"}'')']) AS call;
SELECT count(prediction) FROM open_rows PREDICT BY 'private';
RESET ROLE;
SELECT count(*) FROM corgipile.models WHERE model_name LIKE 'private%';
DROP OWNED BY corgi_otto;
DROP ROLE corgi_otto;
