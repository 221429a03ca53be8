-- Two classes of ten normal features whose means are far from zero, and differ a little by class:
-- without shuffling, the intercept learns the label of whatever came last. Stored by label.
SELECT setseed(0.42) \g /dev/null
CREATE TABLE shifted_all AS
SELECT i AS id, label,
       ARRAY(SELECT (sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()) + 2 + 0.25 * label + 0 * i)::real
             FROM generate_series(1, 10)) AS features_v
FROM (SELECT i, CASE WHEN random() < 0.5 THEN -1 ELSE 1 END AS label FROM generate_series(1, 60000) AS i) AS rows;
CREATE TABLE shifted AS SELECT * FROM shifted_all WHERE id <= 50000 ORDER BY label, id;
CREATE TABLE shifted_test AS SELECT * FROM shifted_all WHERE id > 50000;
DROP TABLE shifted_all;
ANALYZE shifted;
