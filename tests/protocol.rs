//! PREDICT BY through the extended protocol, and without the library preloaded.

use corgipile_tests::{Server, message, sqlstate, value};

#[test]
fn a_parameter_names_the_model() {
    let server = Server::start(&[]);
    let mut client = server.with_table(1000, 3);
    client.batch_execute("SELECT train_sgd('wide', model_name => 'kept')").expect("trains");
    let statement =
        client.prepare("SELECT id, prediction, probability FROM wide PREDICT BY $1 WHERE id = $2").expect("prepares");
    assert_eq!(statement.params()[0], postgres::types::Type::TEXT);
    assert_eq!(statement.columns()[1].type_(), &postgres::types::Type::TEXT);
    for name in ["kept", "1"] {
        let row = client.query_one(&statement, &[&name, &7]).expect("predicts");
        assert_eq!(row.get::<_, &str>(1), "0");
        assert!(row.get::<_, f64>(2) > 0.5);
    }
    let error = client.query_one(&statement, &[&"nobody", &7]).expect_err("no such model");
    assert_eq!(sqlstate(&error), "42704", "{}", message(&error));
    // A constant has the type of the target.
    let statement = client.prepare("SELECT prediction FROM wide PREDICT BY 'kept' WHERE id = $1").expect("prepares");
    assert_eq!(statement.columns()[0].type_(), &postgres::types::Type::INT4);
    assert_eq!(client.query_one(&statement, &[&7]).expect("predicts").get::<_, i32>(0), 0);
}

#[test]
fn one_string_may_make_train_and_predict() {
    let server = Server::start(&[]);
    let mut client = server.with_table(1000, 3);
    // The whole string is parsed before any of it runs: the model is not there yet, so its type is text.
    client
        .batch_execute(
            "SELECT train_sgd('wide', model_name => 'new');
             CREATE TABLE predicted AS SELECT id, prediction FROM wide PREDICT BY 'new'",
        )
        .expect("runs");
    assert_eq!(value::<i64>(&mut client, "SELECT count(*) FROM predicted WHERE prediction = '1'"), 500);
    client
        .batch_execute("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT * FROM wide PREDICT BY 'new'; COMMIT")
        .expect("the parser takes no snapshot of the transaction's");
}

#[test]
fn without_preloading_the_library_comes_with_its_first_use() {
    let server = Server::start(&["shared_preload_libraries = ''"]);
    let mut client = server.with_table(1000, 3);
    // CREATE EXTENSION has loaded it here.
    client.batch_execute("SELECT train_sgd('wide', model_name => 'kept'); ").expect("trains");
    client.batch_execute("SELECT * FROM wide PREDICT BY 'kept'").expect("the detour is there");
    // A new session: not before the first function.
    let mut fresh = server.connect();
    let error = fresh.batch_execute("SELECT * FROM wide PREDICT BY 'kept'").expect_err("not loaded yet");
    assert_eq!(sqlstate(&error), "42601", "{}", message(&error));
    assert_eq!(value::<String>(&mut fresh, "SELECT predict('kept', features_v) FROM wide WHERE id = 1"), "0");
    fresh.batch_execute("SELECT * FROM wide PREDICT BY 'kept'").expect("loaded now");
    // session_preload_libraries for one database, without a restart.
    client.batch_execute("ALTER DATABASE postgres SET session_preload_libraries = 'corgipile'").expect("sets");
    server.connect().batch_execute("SELECT * FROM wide PREDICT BY 'kept'").expect("loaded with the session");
}

#[test]
fn a_long_text_with_the_word_is_parsed_in_good_time() {
    let server = Server::start(&[]);
    let mut client = server.with_table(1000, 3);
    client.batch_execute("SELECT train_sgd('wide', model_name => 'kept')").expect("trains");
    let list: Vec<String> = (0..100_000).map(|i| i.to_string()).collect();
    let many = "SELECT count(*) FROM wide PREDICT BY 'kept' WHERE id IN (".to_string() + &list.join(",") + ")";
    assert_eq!(value::<i64>(&mut client, &many), 1000);
    let union: Vec<String> =
        (0..200).map(|_| "SELECT prediction FROM wide PREDICT BY 'kept' WHERE id = 1".to_string()).collect();
    assert_eq!(client.query(&union.join(" UNION ALL "), &[]).expect("runs").len(), 200);
}
