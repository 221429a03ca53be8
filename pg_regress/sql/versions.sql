-- Names with versions: each training under a name makes the next one, which is the current one.
SELECT setval('corgipile.model_id_seq', 1000) AS ids_from;
\set SHOW_CONTEXT never
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE VIEW names AS SELECT model_name, version, is_current, granted_to FROM corgipile.models WHERE model_name LIKE 'v%' ORDER BY 1, 2;
CREATE TABLE versioned AS SELECT id, label, features_v FROM dense WHERE id <= 2000;
SELECT train_sgd('versioned', model_name => 'v', max_epochs => 1) AS first \gset
SELECT grant_model('v', 'public');
PREPARE scores AS SELECT round(min(probability)::numeric, 12) FROM versioned PREDICT BY 'v';
CREATE VIEW by_name AS SELECT round(min(probability)::numeric, 12) AS m FROM versioned PREDICT BY 'v';
CREATE TABLE seen_versions(n int, m numeric);
INSERT INTO seen_versions SELECT 1, m FROM by_name;
SELECT train_sgd('versioned', model_name => 'v', max_epochs => 7) AS second \gset
INSERT INTO seen_versions SELECT 2, m FROM by_name;
SELECT * FROM names;
SELECT count(DISTINCT m) AS different FROM seen_versions;
-- Prepared statements and views follow the name.
CREATE TABLE run AS EXECUTE scores;
SELECT round = (SELECT m FROM seen_versions WHERE n = 2) AS newest FROM run;
SELECT set_current_model('v', :first);
SELECT * FROM names;
DROP TABLE run;
CREATE TABLE run AS EXECUTE scores;
SELECT round = (SELECT m FROM seen_versions WHERE n = 1) AS first FROM run;
SELECT m = (SELECT m FROM seen_versions WHERE n = 1) AS first FROM by_name;
SELECT predict_score('v', features_v) = predict_score(:first, features_v) AS first FROM versioned WHERE id = 7;
-- The next training is current again.
SELECT train_sgd('versioned', model_name => 'v', max_epochs => 2) AS third \gset
SELECT * FROM names;
SELECT set_current_model('v', :second);
-- Within a transaction, and undone with it.
BEGIN;
SELECT set_current_model('v', :third);
SELECT version FROM names WHERE is_current;
ROLLBACK;
SELECT version FROM names WHERE is_current;
-- A name means all its versions.
SELECT rename_model('v', 'v new');
SELECT revoke_model('v new', 'public');
SELECT * FROM names;
SELECT rename_model(:second, 'v alone');
SELECT * FROM names;
-- A version that is another thing than what a statement was made for.
ALTER TABLE versioned ADD COLUMN mood text;
UPDATE versioned SET mood = CASE label WHEN 1 THEN 'yes' ELSE 'no' END;
PREPARE of_label AS SELECT count(*) FROM versioned PREDICT BY 'v alone' WHERE prediction = label;
SELECT train_sgd('versioned', 'mood', model_name => 'v alone') > 0 AS trained;
EXECUTE of_label;
SELECT count(*) > 1700 AS good FROM versioned PREDICT BY 'v alone' WHERE prediction = mood;
-- What cannot be.
SELECT set_current_model('v alone', :first);
SELECT set_current_model('nothing', :first);
SELECT set_current_model('v alone', 0);
SELECT set_current_model(NULL, :first);
SELECT set_current_model(:'first', :first);
SELECT rename_model('v alone', 'v new');
SELECT rename_model('v alone', '7');
-- Another role may not make a version of it, and is told before it trains.
CREATE ROLE corgi_dave;
GRANT SELECT ON versioned TO corgi_dave;
GRANT CREATE ON SCHEMA public TO corgi_dave;
SELECT grant_model('v alone', 'corgi_dave');
SET ROLE corgi_dave;
SELECT train_sgd('versioned', model_name => 'v alone');
SELECT set_current_model('v alone', :second);
SELECT drop_model('v alone');
-- A role that is a member of the owner's may; the name stays the owner's.
RESET ROLE;
CREATE ROLE corgi_team; CREATE ROLE corgi_erin IN ROLE corgi_team;
GRANT SELECT ON versioned TO corgi_team;
SET ROLE corgi_team;
SELECT train_sgd('versioned', model_name => 'v team') > 0 AS trained;
SET ROLE corgi_erin;
SELECT train_sgd('versioned', model_name => 'v team') > 0 AS trained;
SELECT model_name, version, owner FROM corgipile.models WHERE model_name = 'v team' ORDER BY 2;
RESET ROLE;
SELECT drop_model('v team'), drop_model('v alone'), drop_model('v new');
SELECT * FROM names;
SELECT count(*) FROM corgipile.model_pins;
EXECUTE scores;
SELECT * FROM by_name;
-- Names of every kind.
SELECT train_sgd('versioned', model_name => 'v "it''s" é 木', max_epochs => 1) > 0 AS trained;
SELECT count(*) > 0 AS found FROM versioned PREDICT BY 'v "it''s" é 木';
SELECT count(*) > 0 AS found FROM versioned PREDICT BY $m$v "it's" é 木$m$;
SELECT train_sgd('versioned', model_name => 'v' || repeat('x', 63), max_epochs => 1) > 0 AS trained;
SELECT predict_score('v' || repeat('x', 63), features_v) IS NOT NULL AS found FROM versioned LIMIT 1;
SELECT predict('v' || repeat('x', 62), features_v) FROM versioned LIMIT 1;
SELECT drop_model(model_name) FROM corgipile.models WHERE model_name LIKE 'v%';
DROP VIEW by_name, names;
DROP TABLE versioned, seen_versions, run;
DROP OWNED BY corgi_dave, corgi_team, corgi_erin;
DROP ROLE corgi_dave, corgi_team, corgi_erin;
