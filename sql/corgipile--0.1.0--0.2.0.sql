-- corgipile 0.1.0 to 0.2.0. CREATE EXTENSION runs 0.1.0 and then this: a version's script is never changed after it
-- is released, and what a newer version adds stands in a script from the one before. Tables keep the columns that
-- a dump of an older version fills; what is new in them has a default.
\echo Use "ALTER EXTENSION corgipile UPDATE" to load this file. \quit

SET LOCAL search_path = pg_catalog, pg_temp;

-- ---------------------------------------------------------------- names with versions
ALTER TABLE corgipile.models_store
    ADD COLUMN version integer NOT NULL DEFAULT 1 CHECK (version > 0),
    DROP CONSTRAINT models_store_model_name_key,
    ADD CONSTRAINT models_store_model_name_version_key UNIQUE (model_name, version);

-- Names that do not mean their newest version.
CREATE TABLE corgipile.model_pins (
    model_name text COLLATE "C" PRIMARY KEY,
    model_id bigint NOT NULL REFERENCES corgipile.models_store ON DELETE CASCADE
);
COMMENT ON TABLE corgipile.model_pins IS 'names that mean an older version than their newest; see set_current_model';
SELECT pg_catalog.pg_extension_config_dump('corgipile.model_pins', '');
GRANT SELECT ON corgipile.model_pins TO @extowner@;

CREATE FUNCTION @extschema@.set_current_model(name text, model bigint) RETURNS void
    AS 'MODULE_PATHNAME', 'set_current_model_wrapper' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.set_current_model(text, bigint) IS
    'lets a name mean one of its versions, until the next training under it';

CREATE FUNCTION corgipile.current_model(model text, features text[], prediction_type text) RETURNS bigint
    AS 'MODULE_PATHNAME', 'current_model_wrapper' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION corgipile.current_model(text, text[], text) IS
    'the model that a name means, if it needs these columns and predicts this type: what PREDICT BY looks up';

CREATE OR REPLACE VIEW corgipile.models WITH (security_barrier) AS
SELECT m.model_id,
       m.model_name,
       m.owner,
       m.source,
       i.info ->> 'loss' AS loss,
       i.info ->> 'target' AS target,
       i.info ->> 'target_type' AS target_type,
       ARRAY(SELECT pg_catalog.jsonb_array_elements_text(i.info -> 'features')) AS features,
       ARRAY(SELECT pg_catalog.jsonb_array_elements_text(i.info -> 'classes')) AS classes,
       (i.info ->> 'n_features')::bigint AS n_features,
       (i.info ->> 'rows')::bigint AS rows_used,
       (i.info ->> 'rows_skipped')::bigint AS rows_skipped,
       coalesce((i.info ->> 'rows_held_out')::bigint, 0) AS rows_held_out,
       pg_catalog.jsonb_array_length(i.info -> 'history') AS epochs,
       i.info ->> 'stop' AS stop_reason,
       coalesce((i.info #>> '{measured,loss}'), (i.info #>> '{history,-1,loss}'))::double precision AS train_loss,
       (i.info #>> '{history,-1,eval,loss}')::double precision AS eval_loss,
       (i.info #>> '{history,-1,eval,accuracy}')::double precision AS eval_accuracy,
       i.info #>> '{params,shuffle}' AS shuffle,
       i.info ->> 'shuffle_reason' AS shuffle_reason,
       (i.info ->> 'clustering')::double precision AS clustering,
       (i.info #>> '{params,seed}')::bigint AS seed,
       (i.info ->> 'blocks')::bigint AS blocks,
       (i.info ->> 'blocks_per_buffer')::double precision AS blocks_per_buffer,
       coalesce((i.info ->> 'cache_bytes')::bigint, 0) AS cache_bytes,
       (i.info ->> 'peak_memory')::bigint AS peak_memory,
       (i.info ->> 'duration_ms')::double precision AS duration_ms,
       m.created_at,
       -- For those who can change it.
       CASE WHEN corgipile.may_use(m.owner) THEN
           ARRAY(SELECT g.grantee FROM corgipile.model_grants g WHERE g.model_id OPERATOR(pg_catalog.=) m.model_id ORDER BY 1) END AS granted_to,
       i.info -> 'params' AS params,
       m.version,
       -- What the name means: the pinned version, else the newest.
       m.model_name IS NOT NULL AND m.model_id OPERATOR(pg_catalog.=) coalesce(
           (SELECT p.model_id FROM corgipile.model_pins p WHERE p.model_name OPERATOR(pg_catalog.=) m.model_name),
           (SELECT s.model_id FROM corgipile.models_store s WHERE s.model_name OPERATOR(pg_catalog.=) m.model_name
            ORDER BY s.version DESC LIMIT 1)) AS is_current
FROM corgipile.models_store m
CROSS JOIN LATERAL (SELECT corgipile.model_info(m.model) AS info) i
WHERE (corgipile.may_use(m.owner) OR EXISTS (SELECT FROM corgipile.model_grants g
       WHERE g.model_id OPERATOR(pg_catalog.=) m.model_id AND corgipile.is_grantee(g.grantee)));

-- ---------------------------------------------------------------- judging models
-- The type that classes are cast to in a query: what a model says its target's type is may be another's domain by now,
-- whose checks are not to be run.
CREATE FUNCTION corgipile.class_type(model text) RETURNS text
    AS 'MODULE_PATHNAME', 'class_type_wrapper' LANGUAGE C STABLE STRICT PARALLEL SAFE;

CREATE OR REPLACE FUNCTION corgipile.judging_query(model text, source regclass, filter text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    info jsonb := corgipile.model_info(model);
    type text := corgipile.class_type(model);
    features text;
    target text := info ->> 'target';
    kind text;
    classes text;
    probability text := 'NULL::float8';
    score text;
BEGIN
    IF source IS NULL THEN
        RAISE EXCEPTION 'the source to judge the model on is NULL' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    SELECT string_agg(format('t.%I', f.name), ', ' ORDER BY f.n), bool_and(f.name <> '') INTO features, kind
    FROM jsonb_array_elements_text(info -> 'features') WITH ORDINALITY AS f(name, n);
    IF kind IS DISTINCT FROM 'true' OR target = '' THEN
        RAISE EXCEPTION 'model % was trained on expressions, so its columns cannot be found in a table by name', model
            USING ERRCODE = 'undefined_column', HINT = 'Judge it by corgipile.roc_auc and predict in a query of your own.';
    END IF;
    PERFORM 1 FROM pg_attribute a WHERE a.attrelid = source AND a.attname = target AND a.attnum > 0 AND NOT a.attisdropped;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'column "%" of % does not exist', target, source
            USING ERRCODE = 'undefined_column', HINT = format('The model predicts "%s"; judge it on a table that has it.', target);
    END IF;
    score := format('corgipile.predict_score(%L::text, %s)', model, features);
    IF jsonb_array_length(info -> 'classes') = 0 THEN
        RETURN format('SELECT t.%I::float8 AS actual, %s AS predicted, NULL::float8 AS score, NULL::float8 AS probability FROM %s AS t%s',
            target, score, source, coalesce(' WHERE (' || filter || ')', ''));
    END IF;
    SELECT string_agg(format('%L::%s', c.class, type), ', ' ORDER BY c.n) INTO classes
    FROM jsonb_array_elements_text(info -> 'classes') WITH ORDINALITY AS c(class, n);
    -- Of two classes everything follows from the score.
    kind := info ->> 'loss';
    IF kind = 'softmax' THEN
        probability := format('CASE WHEN c.actual > 0 THEN corgipile.predict_proba(%L::text, %s, (%L::text[])[c.actual]) END',
            model, features, ARRAY(SELECT jsonb_array_elements_text(info -> 'classes')));
        RETURN format('SELECT c.actual, array_position(%L::text[], corgipile.predict(%L::text, %s)) AS predicted, NULL::float8 AS score, %s AS probability FROM %s AS t '
            'CROSS JOIN LATERAL (SELECT CASE WHEN t.%I IS NOT NULL THEN coalesce(array_position(ARRAY[%s], t.%I::%s), 0) END AS actual) AS c%s',
            ARRAY(SELECT jsonb_array_elements_text(info -> 'classes')), model, features, probability, source, target, classes, target,
            type, coalesce(' WHERE (' || filter || ')', ''));
    END IF;
    IF kind = 'log_loss' THEN
        probability := 'CASE WHEN abs(s.score) < 700 THEN 1 / (1 + exp(CASE c.actual WHEN 2 THEN -s.score ELSE s.score END)) ELSE ((s.score > 0) = (c.actual = 2))::int END';
    ELSIF kind = 'modified_huber' THEN
        probability := 'CASE c.actual WHEN 2 THEN 1 + least(greatest(s.score, -1), 1) ELSE 1 - least(greatest(s.score, -1), 1) END / 2';
    END IF;
    RETURN format('SELECT c.actual, 1 + (s.score > 0)::int AS predicted, s.score, %s AS probability FROM %s AS t '
        'CROSS JOIN LATERAL (SELECT %s AS score OFFSET 0) AS s '
        'CROSS JOIN LATERAL (SELECT CASE WHEN t.%I IS NOT NULL THEN coalesce(array_position(ARRAY[%s], t.%I::%s), 0) END AS actual) AS c%s',
        probability, source, score, target, classes, target, type, coalesce(' WHERE (' || filter || ')', ''));
END
$$;
