-- Tables and helpers of the other tests. Features come from a hash of the row's number, so every run
-- sees the same data; two classes, means far from zero, stored clustered by label.
SET client_min_messages = warning;
CREATE FUNCTION noise(row_number int, feature int) RETURNS real LANGUAGE sql IMMUTABLE AS
    $$ SELECT ((hashint8(row_number * 1000::bigint + feature)::bigint & 1048575) / 1048576.0 - 0.5)::real $$;
CREATE TABLE dense AS
    SELECT id, features_v, label
    FROM (SELECT i AS id,
                 ARRAY[2 + noise(i, 1) + 0.7 * (i % 2), noise(i, 2) - 0.3 * (i % 2), 1 + noise(i, 3)]::real[] AS features_v,
                 i % 2 AS label
          FROM generate_series(1, 4000) AS i) AS rows
    ORDER BY label, id;
CREATE TABLE sparse AS
    SELECT id, CASE WHEN id % 3 = 0 THEN '{1,3}' ELSE '{2,3,7}' END::int[] AS features_k,
           CASE WHEN id % 3 = 0 THEN ARRAY[1, noise(id, 1)] ELSE ARRAY[1, noise(id, 2), 0.5] END::real[] AS features_v,
           CASE WHEN id % 3 = 0 THEN -1 ELSE 1 END AS label
    FROM generate_series(1, 3000) AS id
    ORDER BY label, id;
CREATE TABLE line AS
    SELECT id, ARRAY[noise(id, 1), noise(id, 2)] AS x, 3 * noise(id, 1) - 2 * noise(id, 2) + 5 AS y
    FROM generate_series(1, 3000) AS id ORDER BY 3;
ANALYZE dense, sparse, line;

-- Runs a statement; gives its SQLSTATE, message and hint, or "no error".
CREATE FUNCTION try(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    state text;
    message text;
    hint text;
BEGIN
    EXECUTE statement;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
    RETURN state || ': ' || message || CASE WHEN hint <> '' THEN E'\n  ' || hint ELSE '' END;
END $$;
-- Part of the rows of a table that a model gets right, in percent.
CREATE FUNCTION accuracy(source regclass, model bigint) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
    result numeric;
BEGIN
    EXECUTE format('SELECT round(100 * avg((prediction = label)::int), 1) FROM %s PREDICT BY %s', source, model) INTO result;
    RETURN result;
END $$;
