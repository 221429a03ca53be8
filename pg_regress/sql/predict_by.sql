-- PREDICT BY wherever a table may stand, and nowhere else.
SET client_min_messages = warning;
SELECT drop_model('m', true), drop_model('d''Artagnan "é"', true);
SELECT train_sgd('dense', model_name => 'm') > 0 AS m, train_sgd('line', 'y', '{x}', model_name => 'd''Artagnan "é"') > 0 AS quoted,
       train_sgd('sparse', model_name => 'sparse', max_epochs => 3) > 0 AS sparse;
SELECT * FROM dense PREDICT BY 'm' LIMIT 0;
SELECT * FROM line PREDICT BY 'd''Artagnan "é"' LIMIT 0;
SELECT * FROM line predict
  by /* a comment */ E'd\'Artagnan "\u00e9"' -- and another
  LIMIT 0;
SELECT * FROM line PREDICT BY $$d'Artagnan "é"$$ LIMIT 0;
SELECT count(*) FROM dense AS a PREDICT BY 'm' WHERE prediction = label AND a.id > 10 HAVING count(*) > 3000;
SELECT count(*) > 3000 AS good FROM public.dense PREDICT BY 'm' JOIN sparse s ON s.id = dense.id WHERE dense.prediction IS NOT NULL OR true;
SELECT count(*) FROM dense a PREDICT BY 'm' JOIN sparse b PREDICT BY 'sparse' USING (id) WHERE a.prediction IN (0, 1) AND b.prediction IN (-1, 1);
SELECT count(*) FROM sparse b, dense a PREDICT BY 'm', line WHERE a.id = b.id AND line.id = a.id AND prediction IS NOT NULL;
SELECT k, prediction FROM dense AS x (k, f, l) PREDICT BY 'm' WHERE k = 2;
SELECT * FROM ONLY dense PREDICT BY 'm' WHERE false;
SELECT d.id, d.prediction FROM dense PREDICT BY 'm' AS d WHERE id = 1;
WITH p AS (SELECT * FROM dense PREDICT BY 'm') SELECT count(*) FROM p WHERE probability >= 0.5;
SELECT (SELECT max(prediction) FROM dense PREDICT BY 'm' WHERE id = s.id) AS sub FROM sparse s WHERE id = 1;
SELECT id FROM dense WHERE id IN (SELECT id FROM dense PREDICT BY 'm' WHERE prediction = 1 AND id < 5) ORDER BY id;
SELECT 1 AS a UNION ALL SELECT count(*) FROM dense PREDICT BY 'm' ORDER BY 1;
TABLE dense PREDICT BY 'm' LIMIT 0;
CREATE VIEW predicted AS SELECT id, prediction FROM dense PREDICT BY 'm';
SELECT count(*) FROM predicted WHERE prediction = 1 HAVING count(*) > 1000;
CREATE TABLE copied AS SELECT * FROM dense PREDICT BY 'm' WHERE id <= 3;
INSERT INTO copied SELECT * FROM dense PREDICT BY 'm' WHERE id = 4;
UPDATE copied SET label = p.prediction FROM dense PREDICT BY 'm' AS p WHERE p.id = copied.id;
DELETE FROM copied USING dense PREDICT BY 'm' AS p WHERE p.id = copied.id AND copied.id = 1;
MERGE INTO copied USING dense PREDICT BY 'm' AS p ON p.id = copied.id WHEN MATCHED AND p.id = 2 THEN DELETE;
SELECT id, label = prediction AS same FROM copied ORDER BY id;
CREATE MATERIALIZED VIEW material AS SELECT id, prediction FROM dense PREDICT BY 'm' WHERE id < 3;
SELECT count(*) FROM material;
EXPLAIN (COSTS OFF) SELECT id, prediction FROM dense PREDICT BY 'm' WHERE id = 2;
PREPARE q AS SELECT count(*) FROM dense PREDICT BY 'm' WHERE id < $1;
EXECUTE q(11);
PREPARE by_parameter(text) AS SELECT id, prediction, probability > 0.5 AS sure FROM dense PREDICT BY $1 WHERE id = 2;
EXECUTE by_parameter('m');
EXECUTE by_parameter('nobody');
BEGIN;
DECLARE c CURSOR FOR SELECT id, prediction IS NOT NULL AS p FROM dense PREDICT BY 'm' WHERE id < 3 ORDER BY id;
FETCH 1 FROM c;
COMMIT;
COPY (SELECT id, prediction IS NULL FROM dense PREDICT BY 'm' WHERE id < 3 ORDER BY id) TO stdout;
DO $$
DECLARE
    r record;
    n int := 0;
BEGIN
    FOR r IN SELECT * FROM dense PREDICT BY 'm' WHERE id < 10 LOOP n := n + (r.prediction IS NOT NULL)::int; END LOOP;
    ASSERT n = 9;
    n := (SELECT count(*) FROM dense PREDICT BY 'm' WHERE id < 5);
    ASSERT n = 4;
    EXECUTE 'SELECT count(*) FROM dense PREDICT BY $1 WHERE id < 5' INTO n USING 'm';
    ASSERT n = 4;
END $$;
CREATE FUNCTION in_sql() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM dense PREDICT BY ''m''';
CREATE FUNCTION in_body() RETURNS bigint BEGIN ATOMIC SELECT count(*) FROM dense PREDICT BY 'm'; END;
SELECT in_sql(), in_body();
SELECT * FROM dense PREDICT BY 'm' FOR UPDATE LIMIT 0;

-- Untouched: strings, comments, dollar quotes, quoted identifiers, and the words as names.
SELECT 'FROM dense PREDICT BY 1' AS a, $x$ t PREDICT BY 1 $x$ AS b, 1 AS "t PREDICT BY 1" /* PREDICT BY 1 */; -- PREDICT BY 1
CREATE TABLE predict (predict int, "by" int);
INSERT INTO predict VALUES (1, 2);
SELECT predict, by FROM predict;
SELECT predict.predict AS by, predict by FROM predict predict;
SELECT predict FROM predict ORDER BY predict, by;
SELECT count(*) AS predict FROM predict GROUP BY predict;
SELECT sum(by) OVER (PARTITION BY predict) FROM predict;
SELECT "predict" by FROM predict;
DROP TABLE predict;
-- Errors point where they did: at the words where they do not belong, elsewhere at the same character.
SELECT 1 PREDICT BY 1;
SELECT * FROM dense PREDICT BY;
SELECT * FROM dense PREDICT BY m;
SELECT * FROM (SELECT 1) AS s PREDICT BY 1;
SELECT * FROM generate_series(1, 2) PREDICT BY 1;
INSERT INTO dense PREDICT BY 1 VALUES (1);
UPDATE dense PREDICT BY 1 SET id = 1;
SELECT * FROM dense "predict" BY 1;
SELECT * FROM dense PREDICT BY 'm' WHER id = 1;
SELECT * FROM dense PREDICT BY 'm' WHERE no_such_column = 1;
SELECT * FROM no_such_table PREDICT BY 'm';
SELECT * FROM dense PREDICT BY 'm' + 1;
-- A model that does not exist, a table without its columns.
SELECT * FROM dense PREDICT BY 'nobody';
SELECT * FROM dense PREDICT BY 99999;
SELECT * FROM sparse PREDICT BY 'd''Artagnan "é"';
-- Off.
SET corgipile.predict_by = off;
SELECT * FROM dense PREDICT BY 'm';
RESET corgipile.predict_by;
-- A search path without the extension, and objects of the same name in front of ours.
CREATE SCHEMA other;
CREATE FUNCTION other.predict(text, real[]) RETURNS text LANGUAGE sql AS $$ SELECT 'hijacked' $$;
SET search_path = other, pg_catalog;
SELECT count(*) FROM public.dense PREDICT BY 'm' WHERE prediction IN (0, 1);
RESET search_path;
-- In one string with BEGIN, also serializable; in a failed transaction nothing is looked up.
BEGIN \; SELECT count(*) FROM dense PREDICT BY 'm' \; COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE \; SELECT count(*) FROM dense PREDICT BY 'm' \; COMMIT;
BEGIN;
SELECT 1 / 0;
SELECT * FROM dense PREDICT BY 'm';
ROLLBACK;
-- A target that is an array itself.
CREATE TABLE pairs AS SELECT i AS id, ARRAY[i % 2, 7] AS label, ARRAY[i % 2, i % 5] AS features_v FROM generate_series(1, 200) AS i;
SELECT train_sgd('pairs', model_name => 'pairs') > 0 AS trained;
SELECT pg_typeof(prediction) AS type, count(*) FROM pairs PREDICT BY 'pairs' WHERE prediction = label GROUP BY 1;
