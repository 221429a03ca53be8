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
-- A superuser sees all, also the models of a role that is gone.
SELECT owner, model_name FROM corgipile.models WHERE owner LIKE 'corgi%' ORDER BY 1;
REVOKE corgi_alice FROM corgi_bob;
DROP TABLE secrets;
DROP ROLE corgi_alice;
SELECT owner, model_name FROM corgipile.models WHERE owner LIKE 'corgi%' ORDER BY 1;
SET ROLE corgi_bob;
SELECT owner, model_name FROM corgipile.models;
RESET ROLE;
SELECT drop_model('alice'), drop_model('bob');
DROP ROLE corgi_bob;
