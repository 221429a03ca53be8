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
SELECT corgipile.model_info('alice');
SELECT * FROM secrets PREDICT BY 'alice';
SELECT drop_model('alice');
SELECT * FROM corgipile.models_store;
DELETE FROM corgipile.models_store;
SELECT nextval('corgipile.model_id_seq');
SELECT predict('bob', '{1}'::real[]) AS own;
RESET ROLE;
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
