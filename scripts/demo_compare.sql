-- Trains on each table with each strategy (buffers of a tenth to a quarter of the table, 50 blocks and more), and on a shuffled copy.
\set QUIET on
SET client_min_messages = warning;
SET corgipile.block_size = '8kB';
CREATE FUNCTION pg_temp.accuracy(source text, test text, strategy text, buffer text) RETURNS numeric
LANGUAGE plpgsql AS $$
DECLARE
    model bigint;
    result numeric;
BEGIN
    EXECUTE format('SELECT train_sgd(%L, shuffle => %L, buffer_size => %L)', source, strategy, buffer) INTO model;
    EXECUTE format('SELECT 100 * avg((prediction = label)::int) FROM %I PREDICT BY %s', test, model) INTO result;
    PERFORM drop_model(model);
    RETURN round(result, 2);
END $$;
CREATE TABLE a9a_shuffled AS SELECT * FROM a9a ORDER BY hashint4(id);
CREATE TABLE higgs_shuffled AS SELECT * FROM higgs ORDER BY hashint4(id);
CREATE TABLE shifted_shuffled AS SELECT * FROM shifted ORDER BY hashint4(id);
SELECT t AS "table",
       pg_temp.accuracy(t, t || '_test', 'none', b) AS "none",
       pg_temp.accuracy(t, t || '_test', 'block_only', b) AS block_only,
       pg_temp.accuracy(t, t || '_test', 'tuple_only', b) AS tuple_only,
       pg_temp.accuracy(t, t || '_test', 'corgipile', b) AS corgipile,
       pg_temp.accuracy(t || '_shuffled', t || '_test', 'none', b) AS "shuffled copy",
       r AS "scikit-learn"
FROM (VALUES ('a9a', '450kB', '84.95'), ('higgs', '400kB', '63.43'), ('shifted', '300kB', 'best possible 78.5')) AS s(t, b, r);
