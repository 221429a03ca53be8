-- corgipile 0.1.0 to 0.2.0. CREATE EXTENSION runs 0.1.0 and then this: a version's script is never changed after it
-- is released, and what a newer version adds stands in a script from the one before. Tables keep the columns that
-- a dump of an older version fills; what is new in them has a default.
\echo Use "ALTER EXTENSION corgipile UPDATE" to load this file. \quit

SET LOCAL search_path = pg_catalog, pg_temp;

-- ---------------------------------------------------------------- names with versions
ALTER TABLE corgipile.models_store
    ADD COLUMN version integer NOT NULL DEFAULT 1 CHECK (version > 0),
    -- The owner itself, in this system: a role that gets its name later is another one.
    ADD COLUMN owner_role text,
    DROP CONSTRAINT models_store_model_name_key,
    ADD CONSTRAINT models_store_model_name_version_key UNIQUE (model_name, version);

ALTER TABLE corgipile.model_grants ADD COLUMN grantee_role text;

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

-- ---------------------------------------------------------------- who sees what
CREATE FUNCTION corgipile.usable(model_id bigint, change boolean DEFAULT false) RETURNS boolean
    AS 'MODULE_PATHNAME', 'usable_wrapper' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION corgipile.usable(bigint, boolean) IS 'whether the current role may use a model, or change it';

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
       CASE WHEN corgipile.usable(m.model_id, true) THEN
           ARRAY(SELECT g.grantee FROM corgipile.model_grants g WHERE g.model_id OPERATOR(pg_catalog.=) m.model_id ORDER BY 1) END AS granted_to,
       i.info -> 'params' AS params,
       m.version,
       -- What the name means: the pinned version, else the newest.
       m.model_name IS NOT NULL AND m.model_id OPERATOR(pg_catalog.=) coalesce(
           (SELECT p.model_id FROM corgipile.model_pins p WHERE p.model_name OPERATOR(pg_catalog.=) m.model_name),
           (SELECT s.model_id FROM corgipile.models_store s WHERE s.model_name OPERATOR(pg_catalog.=) m.model_name
            ORDER BY s.version DESC LIMIT 1)) AS is_current
FROM corgipile.models_store m
CROSS JOIN LATERAL (SELECT corgipile.model_info(m.model) AS info OFFSET 0) i
WHERE corgipile.usable(m.model_id);

CREATE OR REPLACE VIEW corgipile.training_history WITH (security_barrier) AS
SELECT m.model_id,
       (e.report ->> 'epoch')::integer AS epoch,
       (e.report ->> 'loss')::double precision AS loss,
       (e.report ->> 'accuracy')::double precision AS accuracy,
       (e.report #>> '{eval,loss}')::double precision AS eval_loss,
       (e.report #>> '{eval,accuracy}')::double precision AS eval_accuracy,
       (e.report #>> '{eval,rows}')::bigint AS eval_rows,
       (e.report ->> 'learning_rate')::double precision AS learning_rate,
       (e.report ->> 'rows')::bigint AS rows,
       (e.report ->> 'elapsed_ms')::double precision AS elapsed_ms,
       coalesce((e.report ->> 'diverged')::boolean, false) AS diverged
FROM corgipile.models_store m
CROSS JOIN LATERAL (SELECT corgipile.model_info(m.model) -> 'history' AS history OFFSET 0) i
CROSS JOIN LATERAL pg_catalog.jsonb_array_elements(i.history) WITH ORDINALITY AS e(report, n)
WHERE corgipile.usable(m.model_id);

CREATE OR REPLACE VIEW corgipile.trace WITH (security_barrier) AS
SELECT m.model_id,
       (e.epoch ->> 'epoch')::integer AS epoch,
       (e.epoch ->> 'cached')::boolean AS cached,
       o.operator ->> 'operator' AS operator,
       (o.operator ->> 'completions')::bigint AS completions,
       (o.operator ->> 'visit_ratio')::double precision AS visit_ratio,
       (o.operator ->> 'bytes_per_element')::double precision AS bytes_per_element,
       (o.operator ->> 'rate')::double precision AS rate,
       (o.operator ->> 'theta')::double precision AS theta,
       (o.operator ->> 'bottleneck')::boolean AS bottleneck,
       (o.operator ->> 'cpu_ms')::double precision AS cpu_ms,
       (o.operator ->> 'blocked_ms')::double precision AS blocked_ms,
       (o.operator ->> 'pages_read')::bigint AS pages_read,
       (o.operator ->> 'pages_hit')::bigint AS pages_hit,
       (o.operator ->> 'pages_prefetched')::bigint AS pages_prefetched,
       (o.operator ->> 'detoasted_bytes')::bigint AS detoasted_bytes,
       (o.operator ->> 'io_ms')::double precision AS io_ms
FROM corgipile.models_store m
CROSS JOIN LATERAL (SELECT corgipile.trace_json(m.model) -> 'epochs' AS epochs OFFSET 0) t
CROSS JOIN LATERAL pg_catalog.jsonb_array_elements(t.epochs) AS e(epoch)
CROSS JOIN LATERAL pg_catalog.jsonb_array_elements(e.epoch -> 'operators') AS o(operator)
WHERE corgipile.usable(m.model_id);

CREATE OR REPLACE VIEW corgipile.tuning WITH (security_barrier) AS
SELECT m.model_id,
       (t.tuning ->> 'predicted')::double precision AS predicted,
       (t.tuning ->> 'measured')::double precision AS measured,
       t.tuning ->> 'limit' AS held_down_by,
       (t.tuning ->> 'best')::double precision AS best,
       (t.tuning ->> 'best_with_cache')::boolean AS best_with_cache,
       (t.tuning ->> 'with_one_core_more')::double precision AS with_one_core_more,
       (t.tuning ->> 'with_twice_the_memory')::double precision AS with_twice_the_memory,
       (t.tuning ->> 'with_twice_the_bandwidth')::double precision AS with_twice_the_bandwidth,
       (t.tuning #>> '{plan,block_size}')::bigint AS planned_block_size,
       (t.tuning #>> '{plan,buffer_size}')::bigint AS planned_buffer_size,
       (t.tuning #>> '{plan,cache}')::boolean AS planned_cache,
       t.tuning #>> '{plan,reason}' AS planned_for,
       (t.tuning #>> '{plan,on_disk}')::boolean AS on_disk,
       (t.tuning #>> '{plan,decoded_bytes}')::double precision AS estimated_bytes,
       (t.tuning #>> '{plan,size_error}')::double precision AS size_error
FROM corgipile.models_store m
CROSS JOIN LATERAL (SELECT corgipile.trace_json(m.model) -> 'tuning' AS tuning OFFSET 0) t
WHERE corgipile.usable(m.model_id) AND pg_catalog.jsonb_typeof(t.tuning) OPERATOR(pg_catalog.=) 'object';

-- ---------------------------------------------------------------- predicting from columns
-- The columns of a model one by one, in the order of corgipile.models.features; NULL is a value here.
DO $do$
DECLARE
    model text;
    f record;
BEGIN
    FOREACH model IN ARRAY ARRAY['bigint', 'text'] LOOP
        FOR f IN SELECT * FROM (VALUES
            ('columns_predict', '', 'text', 'corgipile_columns_predict'),
            ('columns_score', '', 'double precision', 'corgipile_columns_score'),
            ('columns_value', '', 'double precision', 'corgipile_columns_value'),
            ('columns_probability', '', 'double precision', 'corgipile_columns_probability'),
            ('columns_proba', 'class text, ', 'double precision', 'corgipile_columns_proba'),
            ('columns_class', 'class anyelement, ', 'anyelement', 'corgipile_columns_class')) AS v(name, class, result, symbol)
        LOOP
            EXECUTE pg_catalog.format(
                'CREATE FUNCTION corgipile.%s(model %s, %sVARIADIC columns "any") RETURNS %s '
                'AS ''MODULE_PATHNAME'', %L LANGUAGE C STABLE PARALLEL SAFE COST 10',
                f.name, model, f.class, f.result, f.symbol);
        END LOOP;
    END LOOP;
END
$do$;

-- A row taken apart, and the planner's support function that makes it of a whole row of a table.
CREATE FUNCTION corgipile.row_support(internal) RETURNS internal
    AS 'MODULE_PATHNAME', 'corgipile_row_support' LANGUAGE C STRICT;
DO $do$
DECLARE
    model text;
    f record;
BEGIN
    FOREACH model IN ARRAY ARRAY['bigint', 'text'] LOOP
        FOR f IN SELECT * FROM (VALUES
            ('predict', '', 'row_predict', '', 'text', 'corgipile_row_predict'),
            ('predict_score', '', 'row_score', '', 'double precision', 'corgipile_row_score'),
            ('predict_value', '', 'row_value', '', 'double precision', 'corgipile_row_value'),
            ('prediction_probability', '', 'row_probability', '', 'double precision', 'corgipile_row_probability'),
            ('predict_proba', '', 'row_proba', '', 'double precision', 'corgipile_row_proba'),
            ('predict_proba', ', text', 'row_proba_of', 'class text, ', 'double precision', 'corgipile_row_proba_of'))
            AS v(of_row, class, name, new_class, result, symbol)
        LOOP
            EXECUTE pg_catalog.format(
                'CREATE FUNCTION corgipile.%s(model %s, %sinput "any", VARIADIC columns "any") RETURNS %s '
                'AS ''MODULE_PATHNAME'', %L LANGUAGE C STABLE PARALLEL SAFE COST 10',
                f.name, model, f.new_class, f.result, f.symbol);
            EXECUTE pg_catalog.format(
                'ALTER FUNCTION corgipile.%s(%s, record%s) SUPPORT corgipile.row_support', f.of_row, model, f.class);
            IF f.of_row <> 'prediction_probability' THEN
                EXECUTE pg_catalog.format(
                    'ALTER FUNCTION @extschema@.%s(%s, record%s) SUPPORT corgipile.row_support', f.of_row, model, f.class);
            END IF;
        END LOOP;
    END LOOP;
END
$do$;

-- A weight for each feature, as many as an embedding has elements: without the intercept, which version 0.1.0 had last.
DO $do$
DECLARE model text;
BEGIN
    FOREACH model IN ARRAY ARRAY['bigint', 'text', 'corgipile.model'] LOOP
        EXECUTE pg_catalog.format(
            'CREATE OR REPLACE FUNCTION @extschema@.model_vector(model %1$s) RETURNS real[] '
            'AS ''MODULE_PATHNAME'', ''corgipile_feature_weights'' LANGUAGE C STABLE STRICT PARALLEL SAFE;'
            'CREATE FUNCTION @extschema@.model_vector(model %1$s, class text) RETURNS real[] '
            'AS ''MODULE_PATHNAME'', ''corgipile_feature_weights'' LANGUAGE C STABLE STRICT PARALLEL SAFE', model);
    END LOOP;
END
$do$;

-- ---------------------------------------------------------------- judging models
-- The type that classes are cast to in a query: what a model says its target's type is may be another's domain by now,
-- whose checks are not to be run.
CREATE FUNCTION corgipile.class_type(model text) RETURNS text
    AS 'MODULE_PATHNAME', 'class_type_wrapper' LANGUAGE C STABLE STRICT PARALLEL SAFE;

-- A query for the rows of a source that a model can be judged on: numbers of the actual and of the predicted class
-- (from 1; 0: a class that the model does not know), or the two numbers of a regression; the score; the
-- probability of the actual class, NULL where the loss has none. It runs under the caller's search path, for the
-- filter's sake, so whatever else is in it is qualified; the filter stands where only the source's columns are seen.
CREATE OR REPLACE FUNCTION corgipile.judging_query(model text, source regclass, filter text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    info jsonb := corgipile.model_info(model);
    type text := corgipile.class_type(model);
    features text;
    target text := info ->> 'target';
    kind text := info ->> 'loss';
    names text[] := ARRAY(SELECT jsonb_array_elements_text(info -> 'features'));
    class_names text[] := ARRAY(SELECT jsonb_array_elements_text(info -> 'classes'));
    classes text;
    actual text;
    rows text;
    probability text := 'NULL::pg_catalog.float8';
BEGIN
    IF source IS NULL THEN
        RAISE EXCEPTION 'the source to judge the model on is NULL' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    IF cardinality(names) = 0 OR '' = ANY (names) OR target = '' THEN
        RAISE EXCEPTION 'model % was trained on expressions, so its columns cannot be found in a table by name', model
            USING ERRCODE = 'undefined_column', HINT = 'Judge it by corgipile.roc_auc and predict in a query of your own.';
    END IF;
    PERFORM 1 FROM pg_attribute a WHERE a.attrelid = source AND a.attname = target AND a.attnum > 0 AND NOT a.attisdropped;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'column "%" of % does not exist', target, source
            USING ERRCODE = 'undefined_column', HINT = format('The model predicts "%s"; judge it on a table that has it.', target);
    END IF;
    features := corgipile.columns_of(model, 't');
    rows := format('(SELECT * FROM %s AS t%s) AS t', source, coalesce(' WHERE (' || filter || ')', ''));
    IF cardinality(class_names) = 0 THEN
        RETURN format('SELECT t.%I::pg_catalog.float8 AS actual, corgipile.columns_score(%L::pg_catalog.text, %s) AS predicted, '
            'NULL::pg_catalog.float8 AS score, NULL::pg_catalog.float8 AS probability FROM %s', target, model, features, rows);
    END IF;
    SELECT string_agg(format('%L::%s', c.class, type), ', ' ORDER BY c.n) INTO classes FROM unnest(class_names) WITH ORDINALITY AS c(class, n);
    actual := format('CASE WHEN t.%I IS NOT NULL THEN coalesce(pg_catalog.array_position(ARRAY[%s], t.%I::%s), 0) END', target, classes, target, type);
    IF kind = 'softmax' THEN
        RETURN format('SELECT c.actual, pg_catalog.array_position(%L::pg_catalog.text[], corgipile.columns_predict(%L::pg_catalog.text, %s)) AS predicted, '
            'NULL::pg_catalog.float8 AS score, CASE WHEN c.actual OPERATOR(pg_catalog.>) 0 THEN '
            'corgipile.columns_proba(%L::pg_catalog.text, (%L::pg_catalog.text[])[c.actual], %s) END AS probability FROM %s '
            'CROSS JOIN LATERAL (SELECT %s AS actual) AS c', class_names, model, features, model, class_names, features, rows, actual);
    END IF;
    -- Of two classes everything follows from the score. NaN, of features beyond all bounds, is no sign of the second.
    IF kind = 'log_loss' THEN
        probability := 'CASE WHEN pg_catalog.abs(s.score) OPERATOR(pg_catalog.<) 700 THEN pg_catalog.float8div(1, pg_catalog.float8pl(1, pg_catalog.exp('
            'CASE c.actual WHEN 2 THEN pg_catalog.float8um(s.score) ELSE s.score END))) '
            'ELSE (s.predicted OPERATOR(pg_catalog.=) c.actual)::pg_catalog.int4::pg_catalog.float8 END';
    ELSIF kind = 'modified_huber' THEN
        probability := 'pg_catalog.float8div(pg_catalog.float8pl(1, CASE c.actual WHEN 2 THEN 1 ELSE -1 END::pg_catalog.float8 '
            'OPERATOR(pg_catalog.*) LEAST(GREATEST(s.score, -1), 1)), 2)';
    END IF;
    RETURN format('SELECT c.actual, s.predicted, s.score, %s AS probability FROM %s '
        'CROSS JOIN LATERAL (SELECT x.score, CASE WHEN x.score IS NULL THEN NULL '
        'WHEN x.score OPERATOR(pg_catalog.>) 0 AND x.score OPERATOR(pg_catalog.<>) ''NaN''::pg_catalog.float8 THEN 2 ELSE 1 END AS predicted '
        'FROM (SELECT corgipile.columns_score(%L::pg_catalog.text, %s) AS score OFFSET 0) AS x OFFSET 0) AS s '
        'CROSS JOIN LATERAL (SELECT %s AS actual) AS c', probability, rows, model, features, actual);
END
$$;

-- The columns of a model as arguments of corgipile.columns_predict and the like, of a table that is called so.
CREATE FUNCTION corgipile.columns_of(model text, alias text) RETURNS text
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
    AS $$
        -- A function has at most 100 arguments.
        SELECT CASE WHEN count(*) > 90 THEN format('ROW(%s)', string_agg(format('%I.%I', $2, f.name), ', ' ORDER BY f.n))
                    ELSE string_agg(format('%I.%I', $2, f.name), ', ' ORDER BY f.n) END
        FROM jsonb_array_elements_text(corgipile.model_info($1) -> 'features') WITH ORDINALITY AS f(name, n)
    $$;

-- Counts of each pair of actual and predicted class; the row without classes is of all, with what is not counted.
-- `path` is the caller's search path, for the filter.
CREATE FUNCTION corgipile.judged(model text, source regclass, filter text, path text,
    OUT actual integer, OUT predicted integer, OUT count bigint, OUT log_loss double precision, OUT roc_auc double precision)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    query text := corgipile.judging_query(model, source, filter);
BEGIN
    PERFORM set_config('search_path', path, true);
    -- Probabilities are clipped as scikit-learn's log_loss does.
    RETURN QUERY EXECUTE
        'SELECT q.actual, q.predicted, pg_catalog.count(*), pg_catalog.sum(CASE WHEN q.probability IS NOT NULL THEN '
        'pg_catalog.float8um(pg_catalog.ln(LEAST(GREATEST(q.probability, 2.220446049250313e-16::pg_catalog.float8), 0.9999999999999998::pg_catalog.float8))) END), '
        'CASE WHEN GROUPING(q.actual) OPERATOR(pg_catalog.=) 1 THEN corgipile.roc_auc(q.score, q.actual OPERATOR(pg_catalog.=) 2) '
        'FILTER (WHERE q.score OPERATOR(pg_catalog.<>) ''NaN''::pg_catalog.float8) END FROM (' || query || ') AS q '
        'WHERE q.actual IS NOT NULL AND q.predicted IS NOT NULL GROUP BY GROUPING SETS ((q.actual, q.predicted), ())';
END
$$;
DROP FUNCTION corgipile.judged(text, regclass, text);

-- Means over the rows of a regression.
CREATE FUNCTION corgipile.judged_numbers(model text, source regclass, filter text, path text,
    OUT rows bigint, OUT absolute double precision, OUT squared double precision, OUT variance double precision)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    query text := corgipile.judging_query(model, source, filter);
BEGIN
    PERFORM set_config('search_path', path, true);
    EXECUTE
        'SELECT pg_catalog.count(*), pg_catalog.avg(pg_catalog.abs(e.error)), pg_catalog.avg(e.error OPERATOR(pg_catalog.*) e.error), '
        'pg_catalog.var_pop(e.actual) FROM (SELECT q.actual, q.actual OPERATOR(pg_catalog.-) q.predicted AS error FROM (' || query || ') AS q '
        'WHERE q.actual IS NOT NULL AND q.predicted IS NOT NULL) AS e' INTO rows, absolute, squared, variance;
END
$$;

CREATE FUNCTION corgipile.confusion_matrix_under(model text, source regclass, filter text, path text,
    OUT actual text, OUT predicted text, OUT count bigint) RETURNS SETOF record
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    info jsonb := corgipile.model_info(model);
    classes text[] := ARRAY(SELECT jsonb_array_elements_text(info -> 'classes'));
BEGIN
    IF cardinality(classes) = 0 THEN
        RAISE EXCEPTION 'model % predicts a number, not a class', model
            USING ERRCODE = 'wrong_object_type', HINT = 'Use evaluate_sgd.';
    END IF;
    -- Every pair of classes, also those that do not occur; a value that is no class of the model under its place, 0.
    RETURN QUERY
        WITH judged AS MATERIALIZED (SELECT * FROM corgipile.judged(model, source, filter, path))
        SELECT CASE a.n WHEN 0 THEN '(unknown)' ELSE classes[a.n] END, classes[p.n], coalesce(j.count, 0)
        FROM generate_series(0, cardinality(classes)) AS a(n) CROSS JOIN generate_series(1, cardinality(classes)) AS p(n)
        LEFT JOIN judged j ON j.actual = a.n AND j.predicted = p.n
        WHERE a.n > 0 OR j.count > 0
        ORDER BY a.n, p.n;
END
$$;

CREATE FUNCTION corgipile.evaluate_classes_under(model text, source regclass, filter text, path text,
    OUT class text, OUT support bigint, OUT "precision" double precision, OUT recall double precision, OUT f1_score double precision)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    info jsonb := corgipile.model_info(model);
    classes text[] := ARRAY(SELECT jsonb_array_elements_text(info -> 'classes'));
    unknown boolean;
BEGIN
    IF cardinality(classes) = 0 THEN
        RAISE EXCEPTION 'model % predicts a number, not a class', model
            USING ERRCODE = 'wrong_object_type', HINT = 'Use evaluate_sgd.';
    END IF;
    FOR class, support, "precision", recall, f1_score, unknown IN
        WITH judged AS MATERIALIZED (SELECT * FROM corgipile.judged(model, source, filter, path)),
        counts AS (
            SELECT k, coalesce(sum(j.count) FILTER (WHERE j.actual = k AND j.predicted = k), 0)::float8 AS hits,
                   coalesce(sum(j.count) FILTER (WHERE j.predicted = k), 0)::float8 AS claims,
                   coalesce(sum(j.count) FILTER (WHERE j.actual = k), 0) AS support
            FROM generate_series(1, cardinality(classes)) AS k CROSS JOIN judged j GROUP BY k)
        SELECT classes[k], c.support, coalesce(c.hits / nullif(c.claims, 0), 0), coalesce(c.hits / nullif(c.support, 0), 0),
               coalesce(2 * c.hits / nullif(c.claims + c.support, 0), 0), EXISTS (SELECT FROM judged j WHERE j.actual = 0)
        FROM counts c ORDER BY k
    LOOP
        IF unknown THEN
            PERFORM corgipile.unknown_class(model, info ->> 'target');
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

CREATE FUNCTION corgipile.evaluate_sgd_under(model text, source regclass, filter text, path text,
    OUT rows bigint, OUT accuracy double precision, OUT balanced_accuracy double precision, OUT "precision" double precision,
    OUT recall double precision, OUT f1_score double precision, OUT log_loss double precision, OUT roc_auc double precision,
    OUT mean_absolute_error double precision, OUT root_mean_squared_error double precision, OUT r2_score double precision)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    info jsonb := corgipile.model_info(model);
    classes integer := jsonb_array_length(info -> 'classes');
    unknown boolean;
BEGIN
    IF classes = 0 THEN
        SELECT j.rows, j.absolute, sqrt(j.squared), 1 - j.squared / nullif(j.variance, 0)
        INTO rows, mean_absolute_error, root_mean_squared_error, r2_score FROM corgipile.judged_numbers(model, source, filter, path) AS j;
        RETURN;
    END IF;
    WITH judged AS MATERIALIZED (SELECT * FROM corgipile.judged(model, source, filter, path)),
    pairs AS (SELECT * FROM judged j WHERE j.actual IS NOT NULL),
    of_class AS (
        SELECT k, coalesce(sum(j.count) FILTER (WHERE j.actual = k AND j.predicted = k), 0)::float8 AS hits,
               coalesce(sum(j.count) FILTER (WHERE j.predicted = k), 0)::float8 AS claims,
               coalesce(sum(j.count) FILTER (WHERE j.actual = k), 0)::float8 AS support
        FROM generate_series(1, classes) AS k LEFT JOIN pairs j ON true GROUP BY k)
    SELECT t.count, t.log_loss / nullif(t.count, 0), t.roc_auc,
           (SELECT sum(c.hits) FROM of_class c) / nullif(t.count, 0),
           -- Classes that do not occur have no recall.
           (SELECT avg(c.hits / c.support) FROM of_class c WHERE c.support > 0),
           m."precision", m.recall, m.f1,
           EXISTS (SELECT FROM pairs p WHERE p.actual = 0)
    INTO rows, log_loss, roc_auc, accuracy, balanced_accuracy, "precision", recall, f1_score, unknown
    FROM judged t
    -- Of two classes the second is the positive one; of more, all count the same.
    CROSS JOIN LATERAL (
        SELECT avg(coalesce(c.hits / nullif(c.claims, 0), 0)) AS "precision",
               avg(coalesce(c.hits / nullif(c.support, 0), 0)) AS recall,
               avg(coalesce(2 * c.hits / nullif(c.claims + c.support, 0), 0)) AS f1
        -- As scikit-learn has it, a class that is neither in the table nor predicted does not count.
        FROM of_class c WHERE t.count > 0 AND CASE classes WHEN 2 THEN c.k = 2 ELSE c.claims + c.support > 0 END) AS m
    WHERE t.actual IS NULL;
    IF unknown THEN
        PERFORM corgipile.unknown_class(model, info ->> 'target');
    END IF;
END
$$;

-- What users call: no path is set here, so that the caller's is known.
CREATE OR REPLACE FUNCTION @extschema@.confusion_matrix(model text, source regclass, filter text DEFAULT NULL,
    OUT actual text, OUT predicted text, OUT count bigint) RETURNS SETOF record
    LANGUAGE sql STABLE
    AS $$ SELECT * FROM corgipile.confusion_matrix_under($1, $2, $3, pg_catalog.current_setting('search_path')) $$;
CREATE OR REPLACE FUNCTION @extschema@.evaluate_classes(model text, source regclass, filter text DEFAULT NULL,
    OUT class text, OUT support bigint, OUT "precision" double precision, OUT recall double precision, OUT f1_score double precision)
    RETURNS SETOF record
    LANGUAGE sql STABLE
    AS $$ SELECT * FROM corgipile.evaluate_classes_under($1, $2, $3, pg_catalog.current_setting('search_path')) $$;
CREATE OR REPLACE FUNCTION @extschema@.evaluate_sgd(model text, source regclass, filter text DEFAULT NULL,
    OUT rows bigint, OUT accuracy double precision, OUT balanced_accuracy double precision, OUT "precision" double precision,
    OUT recall double precision, OUT f1_score double precision, OUT log_loss double precision, OUT roc_auc double precision,
    OUT mean_absolute_error double precision, OUT root_mean_squared_error double precision, OUT r2_score double precision)
    LANGUAGE sql STABLE
    AS $$ SELECT * FROM corgipile.evaluate_sgd_under($1, $2, $3, pg_catalog.current_setting('search_path')) $$;

COMMENT ON AGGREGATE corgipile.roc_auc(double precision, boolean) IS
    'area under the ROC curve, in at most 8 MB: exact up to 262,144 different scores, to 1e-5 beyond';

CREATE FUNCTION corgipile.encoded_score_sql(model text, output integer) RETURNS text
    AS 'MODULE_PATHNAME', 'encoded_score_sql_wrapper' LANGUAGE C STABLE STRICT PARALLEL SAFE;
-- An expression gives NULL where predict_score does, and where it would be an error.
CREATE OR REPLACE FUNCTION @extschema@.export_model_sql(model text, OUT class text, OUT score_sql text) RETURNS SETOF record
    LANGUAGE plpgsql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
    SET extra_float_digits = 1
    AS $$
DECLARE
    info jsonb := corgipile.model_info(model);
    names text[] := ARRAY(SELECT jsonb_array_elements_text(info -> 'features'));
    exported jsonb := @extschema@.export_model(model);
    output integer;
    weights text;
    intercept text;
    -- pgvector's vectors become arrays.
    column_sql text := quote_ident(names[1]) || CASE WHEN info ? 'vectors' THEN '::real[]' ELSE '' END;
BEGIN
    IF cardinality(names) = 0 OR '' = ANY (names) THEN
        RAISE EXCEPTION 'model % was trained on expressions, so it has no columns to write an expression of', model
            USING ERRCODE = 'undefined_column';
    END IF;
    FOR output IN 0 .. jsonb_array_length(exported -> 'coef_') - 1 LOOP
        SELECT coalesce('{' || string_agg(w, ',' ORDER BY n) || '}', '{}') INTO weights
        FROM jsonb_array_elements_text(exported -> 'coef_' -> output) WITH ORDINALITY AS e(w, n);
        intercept := exported -> 'intercept_' ->> output;
        class := CASE jsonb_array_length(exported -> 'coef_') WHEN 1 THEN NULL ELSE exported -> 'classes_' ->> output END;
        score_sql := CASE
            WHEN info ? 'encoding' THEN corgipile.encoded_score_sql(model, output)
            WHEN cardinality(names) = 1 THEN format('CASE WHEN array_ndims(%1$s) = 1 THEN CASE WHEN cardinality(%1$s) = %2$s AND array_position(%1$s, NULL) IS NULL THEN (SELECT CASE WHEN bool_and(u.x BETWEEN -1e300 AND 1e300) THEN sum(u.x::float8 * u.w) + (%3$s)::float8 END FROM unnest(%1$s, %4$L::float8[]) AS u(x, w)) END END',
                column_sql, info ->> 'n_features', intercept, weights)
            ELSE format('CASE WHEN cardinality(%1$I) = 0 AND cardinality(%2$I) = 0 THEN (%3$s)::float8 WHEN array_ndims(%1$I) = 1 AND array_ndims(%2$I) = 1 THEN CASE WHEN cardinality(%1$I) = cardinality(%2$I) AND array_position(%2$I, NULL) IS NULL THEN (SELECT CASE WHEN bool_and(u.v BETWEEN -1e300 AND 1e300) THEN coalesce(sum(u.v::float8 * (%4$L::float8[])[u.k]), 0) + (%3$s)::float8 END FROM unnest(%1$I, %2$I) AS u(k, v)) END END',
                names[1], names[2], intercept, weights)
        END;
        RETURN NEXT;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION corgipile.explained(model text, k integer[], v double precision[],
    OUT feature integer, OUT value double precision, OUT weight double precision, OUT contribution double precision)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    predicted text := CASE WHEN k IS NULL THEN corgipile.predict(model, v) ELSE corgipile.predict(model, k, v) END;
    many boolean := corgipile.model_info(model) ->> 'loss' = 'softmax';
BEGIN
    RETURN QUERY
        SELECT w.feature, x.value, w.weight::float8, w.weight::float8 * x.value
        FROM corgipile.model_weights(model) AS w
        -- By place, whatever number an array begins with.
        JOIN (SELECT u.k, u.v FROM unnest(coalesce(k, ARRAY(SELECT generate_series(1, cardinality(v)))), v) AS u(k, v)
              UNION ALL SELECT 0, 1) AS x(feature, value) ON x.feature = w.feature
        WHERE NOT many OR w.class = predicted
        ORDER BY abs(w.weight::float8 * x.value) DESC, w.feature;
END
$$;

-- ---------------------------------------------------------------- a page about a model
CREATE FUNCTION corgipile.report_page(model text, judged_on text, actual text[], predicted text[], count bigint[]) RETURNS text
    AS 'MODULE_PATHNAME', 'report_page_wrapper' LANGUAGE C STABLE PARALLEL SAFE;
CREATE FUNCTION corgipile.report_under(model text, source regclass, filter text, path text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    actual text[];
    predicted text[];
    count bigint[];
BEGIN
    IF model IS NULL THEN
        RETURN NULL;
    END IF;
    IF source IS NOT NULL AND jsonb_array_length(corgipile.model_info(model) -> 'classes') > 0 THEN
        SELECT array_agg(c.actual), array_agg(c.predicted), array_agg(c.count) INTO actual, predicted, count
        FROM corgipile.confusion_matrix_under(model, source, filter, path) AS c;
    END IF;
    RETURN corgipile.report_page(model, source::text, actual, predicted, count);
END
$$;
CREATE FUNCTION corgipile.report(model text, source regclass DEFAULT NULL, filter text DEFAULT NULL) RETURNS text
    LANGUAGE sql STABLE
    AS $$ SELECT corgipile.report_under($1, $2, $3, pg_catalog.current_setting('search_path')) $$;
COMMENT ON FUNCTION corgipile.report(text, regclass, text) IS
    'the model on one page of HTML: configuration, loss by epoch, trace, largest weights, and a confusion matrix on a table';
CREATE FUNCTION corgipile.report(model bigint, source regclass DEFAULT NULL, filter text DEFAULT NULL) RETURNS text
    LANGUAGE sql STABLE AS $$ SELECT corgipile.report($1::pg_catalog.text, $2, $3) $$;

-- ---------------------------------------------------------------- features from columns
-- Features that are not 0, by number and value: what corgipile.encode_sparse gives.
CREATE FUNCTION corgipile.sgd_transition(internal, anyelement, bytea, jsonb) RETURNS internal
    AS 'MODULE_PATHNAME', 'corgipile_sgd_transition' LANGUAGE C VOLATILE PARALLEL UNSAFE;
CREATE FUNCTION corgipile.sgd_transition(internal, anyelement, bytea, jsonb, double precision) RETURNS internal
    AS 'MODULE_PATHNAME', 'corgipile_sgd_transition' LANGUAGE C VOLATILE PARALLEL UNSAFE;
CREATE AGGREGATE corgipile.sgd(target anyelement, features bytea, options jsonb) (
    SFUNC = corgipile.sgd_transition, STYPE = internal, SSPACE = 1048576,
    FINALFUNC = corgipile.sgd_final, FINALFUNC_MODIFY = READ_WRITE, PARALLEL = UNSAFE);
CREATE AGGREGATE corgipile.sgd(target anyelement, features bytea, options jsonb, weight double precision) (
    SFUNC = corgipile.sgd_transition, STYPE = internal, SSPACE = 1048576,
    FINALFUNC = corgipile.sgd_final, FINALFUNC_MODIFY = READ_WRITE, PARALLEL = UNSAFE);

-- The same for pgvector's vector and halfvec, whose types may not be there now: a name of its own, since any array would
-- do, too.
CREATE FUNCTION corgipile.sgd_transition(internal, anyelement, "any", jsonb) RETURNS internal
    AS 'MODULE_PATHNAME', 'corgipile_sgd_transition' LANGUAGE C VOLATILE PARALLEL UNSAFE;
CREATE FUNCTION corgipile.sgd_transition(internal, anyelement, "any", jsonb, double precision) RETURNS internal
    AS 'MODULE_PATHNAME', 'corgipile_sgd_transition' LANGUAGE C VOLATILE PARALLEL UNSAFE;
CREATE AGGREGATE corgipile.sgd_vectors(target anyelement, features "any", options jsonb) (
    SFUNC = corgipile.sgd_transition, STYPE = internal, SSPACE = 1048576,
    FINALFUNC = corgipile.sgd_final, FINALFUNC_MODIFY = READ_WRITE, PARALLEL = UNSAFE);
CREATE AGGREGATE corgipile.sgd_vectors(target anyelement, features "any", options jsonb, weight double precision) (
    SFUNC = corgipile.sgd_transition, STYPE = internal, SSPACE = 1048576,
    FINALFUNC = corgipile.sgd_final, FINALFUNC_MODIFY = READ_WRITE, PARALLEL = UNSAFE);

-- Not strict: NULL is a value here.
CREATE FUNCTION corgipile.encode_sparse(encoding jsonb, VARIADIC columns "any") RETURNS bytea
    AS 'MODULE_PATHNAME', 'corgipile_encode_sparse' LANGUAGE C STABLE PARALLEL SAFE COST 20;
CREATE FUNCTION corgipile.encode_dense(encoding jsonb, VARIADIC columns "any") RETURNS real[]
    AS 'MODULE_PATHNAME', 'corgipile_encode_dense' LANGUAGE C STABLE PARALLEL SAFE COST 20;

CREATE FUNCTION corgipile.learn_transition(internal, jsonb, tid, oid, VARIADIC "any") RETURNS internal
    AS 'MODULE_PATHNAME', 'corgipile_learn_transition' LANGUAGE C STABLE;
CREATE FUNCTION corgipile.learn_final(internal) RETURNS jsonb
    AS 'MODULE_PATHNAME', 'corgipile_learn_final' LANGUAGE C STABLE;
CREATE AGGREGATE corgipile.learn_encoding(request jsonb, place tid, relation oid, VARIADIC columns "any") (
    SFUNC = corgipile.learn_transition, STYPE = internal, SSPACE = 1048576,
    FINALFUNC = corgipile.learn_final, FINALFUNC_MODIFY = READ_WRITE);

DROP FUNCTION @extschema@.train_sgd(regclass, text, text[], text, text, double precision, double precision, text, double precision, text, double precision, boolean, boolean, double precision, text, integer, double precision, double precision, integer, bigint, boolean, text, text, double precision, boolean, text, text, integer, text, text, boolean, boolean);
CREATE FUNCTION @extschema@.train_sgd(
    source regclass,
    target text DEFAULT NULL,
    features text[] DEFAULT NULL,
    loss text DEFAULT NULL,
    model_name text DEFAULT NULL,
    l2_reg double precision DEFAULT NULL,
    l1_reg double precision DEFAULT NULL,
    optimizer text DEFAULT NULL,
    learning_rate double precision DEFAULT NULL,
    schedule text DEFAULT NULL,
    decay double precision DEFAULT NULL,
    average boolean DEFAULT NULL,
    standardize boolean DEFAULT NULL,
    epsilon double precision DEFAULT NULL,
    class_weight text DEFAULT NULL,
    max_epochs integer DEFAULT NULL,
    tolerance double precision DEFAULT NULL,
    max_seconds double precision DEFAULT NULL,
    batch_size integer DEFAULT NULL,
    seed bigint DEFAULT NULL,
    fit_intercept boolean DEFAULT NULL,
    on_null text DEFAULT NULL,
    weight text DEFAULT NULL,
    eval_fraction double precision DEFAULT NULL,
    final_loss boolean DEFAULT NULL,
    warm_start text DEFAULT NULL,
    shuffle text DEFAULT NULL,
    mrs_ratio integer DEFAULT NULL,
    block_size text DEFAULT NULL,
    buffer_size text DEFAULT NULL,
    cache boolean DEFAULT NULL,
    verbose boolean DEFAULT NULL,
    exclude text[] DEFAULT NULL,
    encode jsonb DEFAULT NULL,
    filter text DEFAULT NULL
) RETURNS bigint
    AS 'MODULE_PATHNAME', 'train_model_wrapper' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.train_sgd IS 'trains a model on a table and stores it; returns its id';

CREATE FUNCTION corgipile.model_encoding(model text,
    OUT column_name text, OUT column_type text, OUT encoding text, OUT features bigint, OUT on_null text, OUT details jsonb)
    RETURNS SETOF record AS 'MODULE_PATHNAME', 'model_encoding_wrapper' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION corgipile.model_encoding(text) IS 'the columns that a model makes features of, and how';
CREATE FUNCTION corgipile.model_encoding(model bigint,
    OUT column_name text, OUT column_type text, OUT encoding text, OUT features bigint, OUT on_null text, OUT details jsonb)
    RETURNS SETOF record LANGUAGE sql STABLE STRICT AS $$ SELECT * FROM corgipile.model_encoding($1::pg_catalog.text) $$;

CREATE FUNCTION corgipile.model_features(model text,
    OUT feature integer, OUT column_name text, OUT name text, OUT mean double precision, OUT deviation double precision)
    RETURNS SETOF record AS 'MODULE_PATHNAME', 'model_features_wrapper' LANGUAGE C STABLE STRICT PARALLEL SAFE;

-- Weights in the user's units: of a number that was centred and scaled, per unit of the column; the intercept, which is
-- feature 0, goes with them. Classes as before: NULL where there is one row of weights.
DROP FUNCTION corgipile.model_weights(bigint);
DROP FUNCTION corgipile.model_weights(text);
CREATE FUNCTION corgipile.model_weights(model text,
    OUT class text, OUT feature integer, OUT name text, OUT weight double precision) RETURNS SETOF record
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
    AS $$
        WITH features AS MATERIALIZED (SELECT * FROM corgipile.model_features($1)),
        weights AS MATERIALIZED (
            SELECT CASE WHEN i.info ->> 'loss' = 'softmax' THEN i.info -> 'classes' ->> ((w.n - 1) / (i.n + 1))::int END AS class,
                   (w.n - 1) / (i.n + 1) AS output,
                   CASE WHEN (w.n - 1) % (i.n + 1) = i.n THEN 0 ELSE (w.n - 1) % (i.n + 1) + 1 END::int AS feature,
                   w.weight::float8 AS weight, w.n
            FROM (SELECT info, (info ->> 'n_features')::bigint AS n FROM corgipile.model_info($1) AS info OFFSET 0) AS i
            CROSS JOIN LATERAL unnest(corgipile.weights_of($1)) WITH ORDINALITY AS w(weight, n))
        SELECT w.class, w.feature, coalesce(f.name, '(intercept)'),
               CASE WHEN w.feature > 0 THEN CASE f.deviation WHEN 1 THEN w.weight WHEN 0 THEN 0 ELSE w.weight / f.deviation END
                    ELSE w.weight - coalesce((SELECT sum(o.weight * g.mean / g.deviation) FROM weights o JOIN features g USING (feature)
                                              WHERE o.output = w.output AND g.mean <> 0 AND g.deviation <> 0), 0) END
        FROM weights w LEFT JOIN features f USING (feature) ORDER BY w.n
    $$;
CREATE FUNCTION corgipile.model_weights(model bigint,
    OUT class text, OUT feature integer, OUT name text, OUT weight double precision) RETURNS SETOF record
    LANGUAGE sql STABLE STRICT AS $$ SELECT * FROM corgipile.model_weights($1::pg_catalog.text) $$;
COMMENT ON FUNCTION corgipile.model_weights(text) IS 'weights by feature and class, in the units of the columns; feature 0 is the intercept';

-- What each feature of a row adds to the score; a number is as it was centred and scaled, and so is its weight.
CREATE FUNCTION corgipile.encoded_row(model text, input record) RETURNS jsonb
    AS 'MODULE_PATHNAME', 'corgipile_encoded_row' LANGUAGE C STABLE STRICT PARALLEL SAFE;
-- The same for an array.
DROP FUNCTION @extschema@.explain_prediction(text, double precision[]);
DROP FUNCTION @extschema@.explain_prediction(bigint, double precision[]);
CREATE FUNCTION @extschema@.explain_prediction(model text, input anyelement,
    OUT feature integer, OUT name text, OUT value double precision, OUT weight double precision, OUT contribution double precision)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    info jsonb := corgipile.model_info(model);
    width bigint := (info ->> 'n_features')::bigint + 1;
    predicted text;
    skipped bigint := 0;
    -- What a domain is of.
    base oid := (WITH RECURSIVE types AS (
        SELECT t.oid, t.typbasetype FROM pg_type AS t WHERE t.oid = pg_typeof(input)
        UNION ALL SELECT t.oid, t.typbasetype FROM types JOIN pg_type AS t ON t.oid = types.typbasetype)
        SELECT types.oid FROM types WHERE types.typbasetype = 0);
    kind "char" := (SELECT CASE t.typcategory WHEN 'A' THEN 'a' ELSE t.typtype END FROM pg_type AS t WHERE t.oid = base);
    -- Of pgvector, not of the same name.
    is_vector boolean := EXISTS (SELECT FROM pg_type AS t JOIN pg_depend AS d ON d.objid = t.oid JOIN pg_extension AS e ON e.oid = d.refobjid
        WHERE t.oid = base AND t.typname IN ('vector', 'halfvec') AND d.classid = 'pg_type'::regclass
            AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'vector');
BEGIN
    -- An array that is not of double precision, or a vector of pgvector's.
    IF kind = 'a' OR is_vector THEN
        RETURN QUERY SELECT e.feature, coalesce(f.name, '(intercept)'), e.value, e.weight, e.contribution
            FROM corgipile.explained(model, NULL, CASE WHEN is_vector THEN translate(input::text, '[]', '{}') ELSE input::text END::float8[]) AS e LEFT JOIN corgipile.model_features(model) AS f USING (feature)
            ORDER BY abs(e.contribution) DESC, e.feature;
        RETURN;
    END IF;
    IF kind <> 'c' AND base <> 'record'::regtype THEN
        RAISE EXCEPTION 'a prediction cannot be explained for a value of type %', pg_typeof(input)
            USING ERRCODE = 'datatype_mismatch', HINT = 'Pass a row that has the columns of the model, or an array of its features.';
    END IF;
    IF info ->> 'loss' = 'softmax' THEN
        predicted := corgipile.predict(model, input);
        skipped := width * ((SELECT c.n FROM jsonb_array_elements_text(info -> 'classes') WITH ORDINALITY AS c(class, n) WHERE c.class = predicted) - 1);
    END IF;
    RETURN QUERY
        WITH weights AS MATERIALIZED (
            SELECT CASE w.n - skipped WHEN width THEN 0 ELSE w.n - skipped END::int AS feature, w.weight::float8 AS weight
            FROM unnest(corgipile.weights_of(model)) WITH ORDINALITY AS w(weight, n)
            WHERE w.n > skipped AND w.n <= skipped + width),
        row_values AS (
            SELECT (e.pair ->> 0)::int AS feature, (e.pair ->> 1)::float8 AS value FROM jsonb_array_elements(corgipile.encoded_row(model, input)) AS e(pair)
            UNION ALL SELECT 0, 1)
        SELECT w.feature, coalesce(f.name, '(intercept)'), v.value, w.weight, w.weight * v.value
        FROM row_values v JOIN weights w USING (feature) LEFT JOIN corgipile.model_features(model) AS f USING (feature)
        ORDER BY abs(w.weight * v.value) DESC, w.feature;
END
$$;
CREATE FUNCTION @extschema@.explain_prediction(model bigint, input anyelement,
    OUT feature integer, OUT name text, OUT value double precision, OUT weight double precision, OUT contribution double precision)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT AS $$ SELECT * FROM @extschema@.explain_prediction($1::pg_catalog.text, $2) $$;
