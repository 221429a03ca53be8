//! A model's life: restart, crash, dump and restore, standby, locks.

use corgipile_tests::{Server, message, pid, sqlstate, value, wait_for};
use std::thread;

const VECTOR: &str = "SELECT model_vector('kept')::text";

#[test]
fn models_survive_a_restart_and_a_crash() {
    let server = Server::start(&["fsync = on"]);
    let mut client = server.with_table(2000, 5);
    client.batch_execute("SELECT train_sgd('wide', model_name => 'kept')").expect("trains");
    let before: String = value(&mut client, VECTOR);
    drop(client);
    for mode in ["fast", "immediate"] {
        server.stop(mode);
        server.start_again();
        assert_eq!(value::<String>(&mut server.connect(), VECTOR), before, "after a stop, mode {mode}");
    }
}

#[test]
fn a_killed_training_leaves_nothing_half_written() {
    let server = Server::start(&[]);
    let mut client = server.with_table(20_000, 50);
    client.batch_execute("SELECT train_sgd('wide', model_name => 'kept')").expect("trains");
    let backend = pid(&mut client);
    let mut witness = server.connect();
    let training = thread::spawn(move || {
        client.batch_execute("SELECT train_sgd('wide', max_epochs => 100000, tolerance => 0)").expect_err("is killed")
    });
    wait_for("the read thread", || corgipile_tests::threads(backend) > 1);
    corgipile_tests::kill(backend);
    training.join().expect("the client's thread ends");
    let mut client = server.recovered(&mut witness);
    assert_eq!(value::<i64>(&mut client, "SELECT count(*) FROM corgipile.models"), 1);
    let again: i64 = value(&mut client, "SELECT train_sgd('wide', max_epochs => 1)");
    assert!(again > 1);
}

#[test]
fn dump_and_restore_keep_models_and_their_ids() {
    let server = Server::start(&[]);
    let mut client = server.with_table(2000, 5);
    client
        .batch_execute(
            "SELECT train_sgd('wide', model_name => 'kept');
             SELECT grant_model('kept', 'public');
             CREATE TABLE mood_table AS SELECT id, features_v, CASE label WHEN 0 THEN 'no' ELSE 'yes' END AS label FROM wide;
             SELECT train_sgd('mood_table', model_name => 'text');
             CREATE VIEW predicted AS SELECT id, prediction FROM mood_table PREDICT BY 'text';
             CREATE TABLE kinds AS SELECT id, label = 0 AS y, 'c' || id % 5 AS t, timestamptz '2024-01-01' + id * interval '1 hour' AS at,
                 CASE WHEN id % 7 > 0 THEN id / 3.0 END AS n, features_v AS a FROM wide;
             SELECT train_sgd('kinds', 'y', exclude => '{id}', on_null => 'mean', model_name => 'columns');
             SELECT train_sgd('kinds', 't', '{n,at,y}', on_null => 'zero', encode => '{\"n\": {\"is_null\": true}}', model_name => 'classes');
             CREATE VIEW of_columns AS SELECT id, prediction, probability FROM kinds PREDICT BY 'columns'",
        )
        .expect("trains");
    client.batch_execute("CREATE DATABASE restored").expect("creates");
    client.batch_execute("CREATE DATABASE without_source").expect("creates");
    let predictions = "SELECT md5(string_agg(predict('text', features_v) || predict_score('kept', features_v), ',' ORDER BY id)) ||
        (SELECT md5(string_agg(prediction || ' ' || probability || predict_score('classes', kinds), ',' ORDER BY id)) FROM of_columns JOIN kinds USING (id)) FROM wide";
    let before: String = value(&mut client, predictions);
    let vector: String = value(&mut client, VECTOR);
    let next: i64 = value(&mut client, "SELECT last_value FROM corgipile.model_id_seq");
    let dump = server.socket().join("dump.sql");
    let run = |name: &str, args: &[&str]| server.run(name, args);
    std::fs::write(&dump, run("pg_dump", &["postgres"])).expect("writes the dump");
    let dump = dump.to_string_lossy().into_owned();
    run("psql", &["-X", "-v", "ON_ERROR_STOP=1", "-d", "restored", "-f", &dump]);
    let mut restored = server.connect_to("restored");
    assert_eq!(value::<String>(&mut restored, predictions), before);
    assert_eq!(value::<i64>(&mut restored, "SELECT count(*) FROM predicted WHERE prediction IN ('no', 'yes')"), 2000);
    let granted: String =
        value(&mut restored, "SELECT granted_to::text FROM corgipile.models WHERE model_name = 'kept'");
    assert_eq!(granted, "{public}");
    let id: i64 = value(&mut restored, "SELECT train_sgd('wide')");
    assert_eq!(id, next + 1, "the sequence came along");
    // Models alone, without the tables they were trained on.
    std::fs::write(
        &dump,
        run(
            "pg_dump",
            &["-T", "wide", "-T", "mood_table", "-T", "predicted", "-T", "kinds", "-T", "of_columns", "postgres"],
        ),
    )
    .expect("writes");
    run("psql", &["-X", "-v", "ON_ERROR_STOP=1", "-d", "without_source", "-f", &dump]);
    assert_eq!(value::<String>(&mut server.connect_to("without_source"), VECTOR), vector);
}

#[test]
fn every_type_and_encoding_survives_a_dump() {
    let server = Server::start(&[]);
    let mut client = server.with_table(10, 2);
    client
        .batch_execute(
            "CREATE TYPE grade AS ENUM ('poor', 'fair', 'good'); CREATE DOMAIN percent AS numeric CHECK (VALUE BETWEEN 0 AND 100);
             CREATE TABLE full_kinds AS SELECT i AS id, i % 2 = 0 AS y, (i % 7)::smallint AS i2, i AS i4, i * 1000000000::bigint AS i8, i / 3.0 AS n, (i % 11)::real AS f4, sin(i) AS f8,
                 i % 3 = 0 AS b, (i % 101)::percent AS pc, 'text ' || i % 4 AS t, ('v' || i % 5)::varchar(10) AS vc, ('c' || i % 3)::char(6) AS c, md5((i % 6)::text)::uuid AS u,
                 ('10.0.0.' || i % 5)::inet AS ip, (enum_range(NULL::grade))[1 + i % 3] AS g, date '2024-01-01' + i AS d, timestamp '2024-01-01' + i * interval '1 hour' AS ts,
                 timestamptz '2024-01-01' + i * interval '1 hour' AS tz, time '00:00' + i * interval '7 min' AS tm, timetz '00:00+02' + i * interval '7 min' AS tmz, i * interval '1 hour' AS iv,
                 ARRAY[i % 2, i % 5]::real[] AS a4, ARRAY[i % 3]::float8[] AS a8, ARRAY[i % 2, i % 3] AS ai FROM generate_series(1, 300) AS i;
             CREATE TABLE holes AS SELECT * FROM full_kinds;
             DO $$ DECLARE c name; BEGIN
                 FOR c IN SELECT attname FROM pg_attribute WHERE attrelid = 'holes'::regclass AND attnum > 2 LOOP
                     EXECUTE format('UPDATE holes SET %I = NULL WHERE (id + length(%L)) %% 9 = 0', c, c);
                 END LOOP;
             END $$;
             -- A model for each column, encoding, and meaning of NULL that go together.
             CREATE TABLE trained (name text PRIMARY KEY, scores text);
             DO $$ DECLARE c name; e text; o text; m text; BEGIN
                 FOR c IN SELECT attname FROM pg_attribute WHERE attrelid = 'holes'::regclass AND attnum > 2 LOOP
                     FOREACH e IN ARRAY ARRAY['', 'number', 'one_hot', 'one_hot:2', 'hash:16', 'ordinal', 'seconds', 'cyclic'] LOOP
                         FOREACH o IN ARRAY ARRAY['mean', 'zero', 'skip', 'is_null'] LOOP
                             m := format('%s %s %s', c, e, o);
                             BEGIN
                                 PERFORM train_sgd('holes', 'y', ARRAY[c, 'id'], max_epochs => 1, model_name => m, encode => json_build_object(c,
                                     (CASE WHEN e = '' THEN '{}'::jsonb ELSE jsonb_build_object('encode', e) END ||
                                      CASE o WHEN 'is_null' THEN '{\"on_null\": \"mean\", \"is_null\": true}' ELSE jsonb_build_object('on_null', o) END))::jsonb);
                                 INSERT INTO trained VALUES (m);
                             EXCEPTION WHEN datatype_mismatch THEN NULL; -- They do not.
                             END;
                         END LOOP;
                     END LOOP;
                 END LOOP;
             END $$;
             CREATE FUNCTION scores(m text) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(coalesce(predict(m, h) || predict_score(m, h), '-'), ',' ORDER BY id) FROM holes AS h $$;
             UPDATE trained SET scores = scores(name);
             -- Sparse pairs are arrays of their own.
             CREATE TABLE pairs AS SELECT i AS id, i % 2 = 0 AS y, ARRAY[1 + i % 5, 7] AS k, ARRAY[1, i % 90]::real[] AS v FROM generate_series(1, 300) AS i;
             SELECT train_sgd('pairs', 'y', '{k,v}', model_name => 'pairs');
             CREATE FUNCTION pair_scores() RETURNS text LANGUAGE sql AS $$ SELECT string_agg(predict('pairs', p) || predict_score('pairs', k, v), ',' ORDER BY id) FROM pairs AS p $$;
             CREATE TABLE of_pairs AS SELECT pair_scores() AS scores",
        )
        .expect("trains");
    client.batch_execute("CREATE DATABASE restored").expect("creates");
    let models: i64 = value(&mut client, "SELECT count(*) FROM trained WHERE scores IS NOT NULL");
    assert!(models > 200, "{models} models");
    let dump = server.socket().join("dump.sql").to_string_lossy().into_owned();
    server.run("pg_dump", &["-f", &dump, "postgres"]);
    server.run("psql", &["-qXf", &dump, "restored"]);
    let mut restored = server.connect_to("restored");
    // Whatever the session's settings.
    restored
        .batch_execute("SET timezone = 'Asia/Tokyo'; SET datestyle = 'German'; SET intervalstyle = 'iso_8601'")
        .expect("sets");
    let differ: Vec<String> = value(
        &mut restored,
        "SELECT coalesce(array_agg(name), '{}') FROM trained WHERE scores IS DISTINCT FROM scores(name)",
    );
    assert!(differ.is_empty(), "{differ:?}");
    assert_eq!(value::<i64>(&mut restored, "SELECT count(*) FROM trained"), models);
    assert!(value::<bool>(&mut restored, "SELECT scores = pair_scores() FROM of_pairs"));
}

#[test]
fn dropping_and_creating_the_extension_forgets_and_does_not_confuse() {
    let server = Server::start(&[]);
    let mut client = server.with_table(1000, 3);
    client.batch_execute("SELECT train_sgd('wide', model_name => 'kept')").expect("trains");
    let first: String = value(&mut client, VECTOR);
    client
        .batch_execute(
            "DROP EXTENSION corgipile CASCADE; CREATE EXTENSION corgipile; SELECT train_sgd('wide', model_name => 'kept', seed => 2)",
        )
        .expect("again");
    assert_eq!(value::<i64>(&mut client, "SELECT model_id FROM corgipile.models"), 1);
    // The same id is another model now: the backend's cache must notice.
    assert_ne!(value::<String>(&mut client, VECTOR), first);
    // And with no extension at all.
    client.batch_execute("DROP EXTENSION corgipile CASCADE").expect("drops");
    let error = client.batch_execute("SELECT * FROM wide PREDICT BY 1").expect_err("nothing is there");
    assert_eq!(sqlstate(&error), "3F000", "{}", message(&error));
}

#[test]
fn a_standby_predicts_and_refuses_to_train() {
    let server = Server::start(&["wal_level = replica"]);
    let mut client = server.with_table(1000, 3);
    client.batch_execute("SELECT train_sgd('wide', model_name => 'kept')").expect("trains");
    let standby = server.standby();
    let mut reader = standby.connect();
    assert!(value::<bool>(&mut reader, "SELECT pg_is_in_recovery()"));
    let right = "SELECT count(*) FROM wide PREDICT BY 'kept' WHERE prediction = label";
    assert_eq!(value::<i64>(&mut reader, right), value::<i64>(&mut client, right));
    let error = reader.batch_execute("SELECT train_sgd('wide')").expect_err("read only");
    assert_eq!(sqlstate(&error), "25006", "{}", message(&error));
    let advised = "SELECT count(*) FROM corgipile.advise('wide') WHERE section = 'choice' OR section = 'expected'";
    assert!(value::<i64>(&mut reader, advised) > 0, "advice only reads");
    // Training without storing is fine, and a new model arrives by replay.
    reader.batch_execute("SELECT corgipile.sgd(label, features_v) FROM wide").expect("the aggregate only reads");
    client
        .batch_execute("SELECT drop_model('kept'); SELECT train_sgd('wide', model_name => 'kept', seed => 5)")
        .expect("replaces");
    let new: String = value(&mut client, VECTOR);
    wait_for("the new model", || reader.query_one(VECTOR, &[]).is_ok_and(|row| row.get::<_, String>(0) == new));
}

#[test]
fn another_session_sees_the_progress() {
    let server = Server::start(&[]);
    let mut client = server.with_table(20_000, 50);
    let backend = pid(&mut client);
    let training = thread::spawn(move || {
        client.batch_execute(
            "SELECT train_sgd('wide', max_epochs => 1000000, tolerance => 0, max_seconds => 2, cache => false)",
        )
    });
    let mut other = server.connect();
    let shown = format!(
        "SELECT relation = 'wide' AND phase = 'training' AND epoch BETWEEN 1 AND max_epochs AND max_epochs = 1000000
            AND blocks_done <= blocks_total AND tuples > 0 AND loss > 0 AND tuples_per_second > 0 AND elapsed > '0'
            AND estimated_remaining IS NOT NULL AND usename = 'postgres' AND datname = current_database()
         FROM corgipile.training_progress WHERE pid = {backend}"
    );
    wait_for("the progress", || {
        other.query_opt(&shown, &[]).is_ok_and(|row| row.is_some_and(|row| row.get::<_, Option<bool>>(0) == Some(true)))
    });
    // Another role does not see it; the trainer's own role's members do.
    other.batch_execute("CREATE ROLE corgi_nobody; SET ROLE corgi_nobody").expect("sets");
    assert_eq!(value::<i64>(&mut other, "SELECT count(*) FROM corgipile.training_progress"), 0);
    other.batch_execute("RESET ROLE").expect("resets");
    training.join().expect("the thread ends").expect("trains");
    assert_eq!(value::<i64>(&mut other, "SELECT count(*) FROM corgipile.training_progress"), 0);
}

#[test]
fn dropping_the_table_waits_for_the_training() {
    let server = Server::start(&[]);
    let mut client = server.with_table(20_000, 50);
    let backend = pid(&mut client);
    let training = thread::spawn(move || {
        client.batch_execute(
            "SELECT train_sgd('wide', max_epochs => 1000000, tolerance => 0, max_seconds => 1, cache => false)",
        )
    });
    wait_for("the read thread", || corgipile_tests::threads(backend) > 1);
    let mut other = server.connect();
    let error = other.batch_execute("SET lock_timeout = '100ms'; DROP TABLE wide").expect_err("locked");
    assert_eq!(sqlstate(&error), "55P03", "{}", message(&error));
    other.batch_execute("SET lock_timeout = 0; DROP TABLE wide").expect("after the training");
    training.join().expect("the thread ends").expect("the training was not disturbed");
}

#[test]
fn all_epochs_see_one_snapshot_while_others_write() {
    let server = Server::start(&[]);
    let mut client = server.with_table(20_000, 20);
    let backend = pid(&mut client);
    let training = thread::spawn(move || {
        let id: i64 = value(
            &mut client,
            "SELECT train_sgd('wide', max_epochs => 1000, tolerance => 0, max_seconds => 1, cache => false)",
        );
        let rows = client.query("SELECT DISTINCT rows FROM corgipile.training_history WHERE model_id = $1", &[&id]);
        rows.expect("reads").iter().map(|row| row.get::<_, i64>(0)).collect::<Vec<_>>()
    });
    wait_for("the read thread", || corgipile_tests::threads(backend) > 1);
    let mut writer = server.connect();
    writer
        .batch_execute(
            "INSERT INTO wide SELECT id + 100000, label, features_v FROM wide WHERE id % 2 = 0;
             DELETE FROM wide WHERE id % 3 = 0; UPDATE wide SET label = 1 - label WHERE id % 5 = 0",
        )
        .expect("writes");
    writer.batch_execute("VACUUM wide").expect("vacuums");
    assert_eq!(training.join().expect("trains"), [20_000]);
}

#[test]
fn installing_looks_nothing_up_where_others_can_write_and_the_installer_can_dump() {
    let server = Server::start(&[]);
    let mut admin = server.connect();
    admin.batch_execute("CREATE ROLE mallory LOGIN; ").expect("creates");
    admin.batch_execute("CREATE DATABASE hers OWNER mallory").expect("creates");
    let mut hers = server.connect_as("mallory", "hers");
    hers.batch_execute(
        "CREATE SCHEMA evil;
         CREATE FUNCTION evil.format(text, text, text, text, text, text, text) RETURNS text LANGUAGE plpgsql AS
             $$ BEGIN RAISE 'trapped as %', current_user; END $$;
         CREATE FUNCTION evil.nextval(text) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
         CREATE FUNCTION evil.get(jsonb, jsonb) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
         CREATE OPERATOR evil.->> (LEFTARG = jsonb, RIGHTARG = jsonb, FUNCTION = evil.get);
         CREATE EXTENSION corgipile SCHEMA evil;
         CREATE TABLE t AS SELECT i AS id, ARRAY[i % 7]::real[] AS features_v, i % 2 AS label FROM generate_series(1, 100) i;
         SELECT evil.train_sgd('t', model_name => 'hers')",
    )
    .unwrap_or_else(|e| panic!("{}", message(&e)));
    assert_eq!(value::<String>(&mut hers, "SELECT loss FROM corgipile.models"), "log_loss");
    server.run("pg_dump", &["-U", "mallory", "hers"]);
}

#[test]
fn a_table_that_only_looks_like_the_store_is_not_read() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client
        .batch_execute(
            "CREATE SCHEMA corgipile;
             CREATE TABLE corgipile.models_store (model_id bigint PRIMARY KEY, b text, owner bigint, d int, e int, model bigint);
             INSERT INTO corgipile.models_store VALUES (1, 'x', 4096, 1, 1, 4096)",
        )
        .expect("creates");
    let error = client.batch_execute("SELECT * FROM pg_class PREDICT BY 1").expect_err("there is no such function");
    assert_eq!(sqlstate(&error), "42883", "{}", message(&error));
    client.batch_execute("SELECT 1").expect("the server is up");
}

#[test]
fn databases_of_other_encodings_are_refused() {
    let server = Server::start(&[]);
    server
        .connect()
        .batch_execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        .expect("creates");
    let mut latin = server.connect_to("latin");
    latin
        .batch_execute(
            "CREATE EXTENSION corgipile; CREATE TABLE t AS SELECT ARRAY[1.0::real] AS features_v, 1 AS label",
        )
        .expect("creates");
    let error = latin.batch_execute("SELECT train_sgd('t')").expect_err("not UTF8");
    assert_eq!(sqlstate(&error), "0A000", "{}", message(&error));
}

#[test]
fn models_of_the_first_version_come_along() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.batch_execute("CREATE EXTENSION corgipile VERSION '0.1.0'").expect("installs");
    let mut client = server.with_table(1000, 3);
    client
        .batch_execute(
            "INSERT INTO corgipile.models_store (model_name, owner, source, model)
                 SELECT 'kept', current_user, 'wide', corgipile.sgd(label, features_v) FROM wide;
             INSERT INTO corgipile.model_grants (model_id, grantee, grantor) VALUES (1, 'public', current_user)",
        )
        .unwrap_or_else(|e| panic!("{}", message(&e)));
    // The intercept as well, which model_vector gave then.
    let weights = "SELECT corgipile.weights_of('kept')::text";
    let before: String = value(&mut client, weights);
    let error = client.batch_execute("SELECT train_sgd('wide')").expect_err("the store is too old");
    assert_eq!(sqlstate(&error), "55000", "{}", message(&error));
    let hint = error.as_db_error().and_then(|e| e.hint()).unwrap_or_default();
    assert!(hint.contains("ALTER EXTENSION corgipile UPDATE"), "{hint}");
    // A dump of that version, read by this one.
    let file = server.socket().join("old.sql").to_string_lossy().into_owned();
    std::fs::write(&file, server.run("pg_dump", &["postgres"])).expect("writes");
    client.batch_execute("CREATE DATABASE restored").expect("creates");
    server.run("psql", &["-X", "-v", "ON_ERROR_STOP=1", "-d", "restored", "-f", &file]);
    client.batch_execute("ALTER EXTENSION corgipile UPDATE").expect("updates");
    for mut client in [client, server.connect_to("restored")] {
        assert_eq!(
            value::<String>(&mut client, "SELECT extversion FROM pg_extension WHERE extname = 'corgipile'"),
            "0.2.0"
        );
        assert_eq!(value::<String>(&mut client, weights), before);
        client.batch_execute("SELECT train_sgd('wide', model_name => 'kept', seed => 9)").expect("trains");
        let versions = "SELECT string_agg(version || ' ' || is_current || granted_to::text, ', ' ORDER BY version) FROM corgipile.models";
        assert_eq!(value::<String>(&mut client, versions), "1 false{public}, 2 true{public}");
    }
}

#[test]
fn a_dump_restores_under_another_owner() {
    let server = Server::start(&[]);
    let mut client = server.with_table(1000, 3);
    client
        .batch_execute(
            "CREATE ROLE alice LOGIN; GRANT SELECT ON wide TO alice; GRANT CREATE ON SCHEMA public TO alice;
             SET ROLE alice; SELECT train_sgd('wide', model_name => 'kept'); RESET ROLE",
        )
        .expect("trains");
    let before: String = value(&mut client, VECTOR);
    let file = server.socket().join("dump.sql").to_string_lossy().into_owned();
    std::fs::write(&file, server.run("pg_dump", &["--no-owner", "postgres"])).expect("writes");
    client
        .batch_execute("CREATE ROLE bob LOGIN")
        .and_then(|()| client.batch_execute("CREATE DATABASE bobs OWNER bob"))
        .expect("creates");
    // Who may create a trusted extension owns what it makes only where they are a superuser: its store is the
    // superuser's, so a superuser restores it.
    server.run("psql", &["-X", "-v", "ON_ERROR_STOP=1", "-d", "bobs", "-f", &file]);
    assert_eq!(value::<String>(&mut server.connect_as("alice", "bobs"), VECTOR), before);
    let error = server.connect_as("bob", "bobs").batch_execute(VECTOR).expect_err("alice's");
    assert_eq!(sqlstate(&error), "42501", "{}", message(&error));
    // Where the owner is gone the model is left to superusers.
    client.batch_execute("DROP OWNED BY alice; ").expect("drops");
    let mut there = server.connect_to("bobs");
    there.batch_execute("DROP OWNED BY alice; DROP ROLE alice").expect("drops");
    assert_eq!(value::<String>(&mut there, VECTOR), before);
}

#[test]
fn the_store_is_replicated_logically() {
    let server = Server::start(&["wal_level = logical"]);
    let other = Server::start(&[]);
    let mut client = server.with_table(1000, 3);
    let mut reader = other.connect();
    reader.batch_execute("CREATE EXTENSION corgipile").expect("installs");
    client
        .batch_execute(
            "CREATE PUBLICATION models FOR TABLE corgipile.models_store, corgipile.model_grants, corgipile.model_pins",
        )
        .expect("publishes");
    let host = server.socket().to_string_lossy().into_owned();
    reader
        .batch_execute(&format!(
            "CREATE SUBSCRIPTION models CONNECTION 'host={host} user=postgres dbname=postgres' PUBLICATION models"
        ))
        .unwrap_or_else(|e| panic!("{}", message(&e)));
    client.batch_execute("SELECT train_sgd('wide', model_name => 'kept')").expect("trains");
    let first: String = value(&mut client, VECTOR);
    let arrives = |reader: &mut postgres::Client, vector: &str| {
        wait_for("the model", || reader.query_one(VECTOR, &[]).is_ok_and(|row| row.get::<_, String>(0) == vector));
    };
    arrives(&mut reader, &first);
    client.batch_execute("SELECT train_sgd('wide', model_name => 'kept', seed => 3)").expect("trains");
    let second: String = value(&mut client, VECTOR);
    assert_ne!(first, second);
    arrives(&mut reader, &second);
    client.batch_execute("SELECT set_current_model('kept', 1)").expect("sets");
    arrives(&mut reader, &first);
    client.batch_execute("SELECT drop_model('kept')").expect("drops");
    wait_for("the end of the model", || reader.query_one(VECTOR, &[]).is_err());
    reader.batch_execute("DROP SUBSCRIPTION models").expect("ends");
}

#[test]
fn a_promoted_standby_trains() {
    let server = Server::start(&["wal_level = replica"]);
    let mut client = server.with_table(1000, 3);
    client.batch_execute("SELECT train_sgd('wide', model_name => 'kept')").expect("trains");
    let standby = server.standby();
    let mut reader = standby.connect();
    reader.batch_execute("SELECT pg_promote()").expect("promotes");
    wait_for("the promotion", || !value::<bool>(&mut reader, "SELECT pg_is_in_recovery()"));
    reader.batch_execute("SELECT train_sgd('wide', model_name => 'kept', seed => 4)").expect("trains");
    let versions = "SELECT string_agg(model_name || version, ',' ORDER BY version) FROM corgipile.models";
    assert_eq!(value::<String>(&mut reader, versions), "kept1,kept2");
}

#[test]
fn a_model_dropped_meanwhile_stays_for_the_query_that_uses_it() {
    let server = Server::start(&[]);
    let mut client = server.with_table(5000, 3);
    client.batch_execute("SELECT train_sgd('wide', model_name => 'kept')").expect("trains");
    let mut other = server.connect();
    client
        .batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT id, prediction, predict('kept', features_v) AS p FROM wide PREDICT BY 'kept'")
        .expect("declares");
    assert_eq!(client.query("FETCH 10 FROM c", &[]).expect("fetches").len(), 10);
    other.batch_execute("SELECT drop_model('kept')").expect("does not wait");
    assert_eq!(client.query("FETCH ALL FROM c", &[]).expect("goes on").len(), 4990);
    // Read committed: the next statement sees that it is gone.
    let error = client.batch_execute("SELECT predict('kept', features_v) FROM wide LIMIT 1").expect_err("is gone");
    assert_eq!(sqlstate(&error), "42704", "{}", message(&error));
}

#[test]
fn a_name_is_one_owners_whatever_happens_meanwhile() {
    let server = Server::start(&[]);
    let mut admin = server.with_table(1000, 3);
    admin
        .batch_execute(
            "CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN; GRANT SELECT ON wide TO alice, bob;
             SET ROLE alice; SELECT train_sgd('wide', model_name => 'n'); RESET ROLE",
        )
        .expect("trains");
    let [mut alice, mut alice_too] = [(); 2].map(|()| server.connect_as("alice", "postgres"));
    let mut bob = server.connect_as("bob", "postgres");
    // A statement that began when the name was hers may not change what is under it now.
    let late =
        thread::spawn(move || alice.batch_execute("SELECT pg_sleep(1.5), grant_model('n', 'alice')").map(|()| alice));
    thread::sleep(std::time::Duration::from_millis(500));
    alice_too.batch_execute("SELECT drop_model('n')").expect("drops");
    bob.batch_execute("SELECT train_sgd('wide', model_name => 'n')").expect("trains");
    let error = late.join().expect("ends").err().expect("it is bob's");
    assert_eq!(sqlstate(&error), "42501", "{}", message(&error));
    let error = alice_too.batch_execute("SELECT model_vector('n')").expect_err("it is bob's");
    assert_eq!(sqlstate(&error), "42501", "{}", message(&error));
    // Whoever renames, grants or stores under a name waits for the other.
    alice_too
        .batch_execute("SELECT train_sgd('wide', model_name => 'a'); BEGIN; SELECT rename_model('a', 'm')")
        .expect("renames");
    let waiting = thread::spawn(move || bob.batch_execute("SELECT train_sgd('wide', model_name => 'm')").map(|()| bob));
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    wait_for("the lock", || value::<i64>(&mut admin, waits) == 1);
    alice_too.batch_execute("COMMIT").expect("commits");
    let error = waiting.join().expect("ends").err().expect("the name is alice's");
    assert_eq!(sqlstate(&error), "42710", "{}", message(&error));
    // A grant that is taken back stays so, whatever is trained meanwhile.
    alice_too
        .batch_execute("SELECT grant_model('m', 'bob'); BEGIN; SELECT train_sgd('wide', model_name => 'm')")
        .expect("trains");
    let mut alice = server.connect_as("alice", "postgres");
    let waiting = thread::spawn(move || alice.batch_execute("SELECT revoke_model('m', 'bob')"));
    wait_for("the lock", || value::<i64>(&mut admin, waits) == 1);
    alice_too.batch_execute("COMMIT").expect("commits");
    waiting.join().expect("ends").expect("revokes");
    let granted = "SELECT count(*) FROM corgipile.models WHERE model_name = 'm' AND granted_to <> '{}'";
    assert_eq!(value::<i64>(&mut admin, granted), 0);
}

#[test]
fn models_stay_with_a_role_not_with_its_name() {
    let server = Server::start(&[]);
    let mut admin = server.with_table(1000, 3);
    admin
        .batch_execute(
            "CREATE ROLE eve LOGIN; CREATE ROLE frank LOGIN; GRANT SELECT ON wide TO eve;
             SET ROLE eve; SELECT train_sgd('wide', model_name => 'hers'); RESET ROLE;
             SELECT train_sgd('wide', model_name => 'granted'); SELECT grant_model('granted', 'eve');
             ALTER ROLE eve RENAME TO evelyn",
        )
        .expect("trains");
    let mine = "SELECT string_agg(model_name, ',' ORDER BY model_name) FROM corgipile.models";
    assert_eq!(value::<String>(&mut server.connect_as("evelyn", "postgres"), mine), "granted,hers");
    admin.batch_execute("ALTER ROLE frank RENAME TO eve").expect("renames");
    assert_eq!(value::<Option<String>>(&mut server.connect_as("eve", "postgres"), mine), None);
    admin
        .batch_execute(
            "DROP OWNED BY evelyn; DROP ROLE evelyn; DROP ROLE eve; CREATE ROLE evelyn LOGIN; CREATE ROLE eve LOGIN",
        )
        .expect("drops");
    for role in ["eve", "evelyn"] {
        let mut session = server.connect_as(role, "postgres");
        assert_eq!(value::<Option<String>>(&mut session, mine), None, "{role}");
        let error = session.batch_execute("SELECT drop_model('hers')").expect_err("not its own");
        assert_eq!(sqlstate(&error), "42501", "{}", message(&error));
    }
    assert_eq!(value::<String>(&mut admin, mine), "granted,hers");
}

#[test]
fn any_schema_will_do() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client
        .batch_execute(
            "CREATE SCHEMA \"My Schema\"; CREATE EXTENSION corgipile SCHEMA \"My Schema\";
             CREATE TABLE t AS SELECT ARRAY[i % 7]::real[] AS features_v, i % 2 AS label FROM generate_series(1, 100) i;
             SELECT \"My Schema\".train_sgd('t', model_name => 'm');
             SELECT \"My Schema\".evaluate_sgd('m', 't'); SELECT corgipile.report('m', 't'); SELECT \"My Schema\".export_model_sql('m')",
        )
        .unwrap_or_else(|e| panic!("{}", message(&e)));
}

#[test]
fn damaged_bytes_in_the_store_are_an_error_that_names_the_model() {
    let server = Server::start(&[]);
    let mut client = server.with_table(500, 40);
    client
        .batch_execute(
            "SELECT train_sgd('wide', model_name => 'kept');
             -- Nobody else can make a model of any bytes.
             CREATE CAST (bytea AS corgipile.model) WITHOUT FUNCTION;
             CREATE TABLE whole AS SELECT corgipile.model_send(model) AS bytes FROM corgipile.models_store",
        )
        .unwrap_or_else(|e| panic!("{}", message(&e)));
    let before: String = value(&mut client, VECTOR);
    let bytes: i32 = value(&mut client, "SELECT length(bytes) FROM whole");
    // One with its own copy and one that shares: both check.
    for setting in ["SET corgipile.shared_model_size = -1", "SET corgipile.shared_model_size = 0"] {
        client.batch_execute(setting).expect("sets");
        for step in 0..60 {
            let at = (step * 7919) % bytes;
            let damage = format!(
                "UPDATE corgipile.models_store SET model = set_byte(bytes, {at}, get_byte(bytes, {at}) # {})::corgipile.model FROM whole",
                1 + step % 255
            );
            client.batch_execute(&damage).expect("damages");
            for query in [VECTOR, "SELECT predict('kept', features_v) FROM wide LIMIT 1"] {
                let error = client.query(query, &[]).expect_err("is damaged");
                assert_eq!(sqlstate(&error), "XX001", "{}", message(&error));
                assert!(message(&error).contains("model 1 cannot be read"), "{}", message(&error));
            }
        }
        for length in [0, 3, 20, bytes - 1] {
            let cut = format!(
                "UPDATE corgipile.models_store SET model = substr(bytes, 1, {length})::corgipile.model FROM whole"
            );
            client.batch_execute(&cut).expect("cuts");
            assert_eq!(sqlstate(&client.query(VECTOR, &[]).expect_err("is cut")), "XX001");
        }
    }
    client.batch_execute("UPDATE corgipile.models_store SET model = bytes::corgipile.model FROM whole").expect("mends");
    assert_eq!(value::<String>(&mut client, VECTOR), before);
}
