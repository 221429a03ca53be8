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

/// A generator of our own (Steele and others 2014): the same texts every time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

#[test]
fn any_text_with_the_word_parses_or_is_the_parsers_error() {
    const PARTS: [&str; 64] = [
        "PREDICT BY 1",
        "PREDICT BY 'm'",
        "PREDICT BY $1",
        "predict by 'no such'",
        "PREDICT",
        "BY",
        "PREDICT BY",
        "SELECT",
        "* ",
        "FROM",
        "wide",
        "public.wide",
        "wide AS w",
        "wide w(a, b, c)",
        "(",
        ")",
        ",",
        ";",
        "JOIN",
        "LATERAL",
        "ON true",
        "WHERE",
        "prediction",
        "probability",
        "= 1",
        "'",
        "\"",
        "$$",
        "$a$",
        "--",
        "/*",
        "*/",
        "\n",
        "E'\\'",
        "U&'\\0041'",
        "U&\"d\"",
        "1e400",
        "::text",
        "[1]",
        "ARRAY[",
        "WITH x AS (",
        "UNION ALL",
        "INSERT INTO wide",
        "UPDATE wide SET label = 1 FROM",
        "DELETE FROM wide USING",
        "EXPLAIN",
        "CREATE VIEW v AS",
        "DECLARE c CURSOR FOR",
        "PREPARE p AS",
        "COPY (",
        ") TO STDOUT",
        "VALUES (1)",
        "LIMIT 1",
        "GROUP BY",
        "ORDER BY 1",
        "\u{e9}",
        "\u{6728}",
        "99999999999999999999",
        "PREDICT/**/BY 1",
        "\"PREDICT\" BY 1",
        "PREDICT BY 1 PREDICT BY 1",
        "ONLY",
        "TABLESAMPLE system (1)",
        "count(*)",
    ];
    let server = Server::start(&[]);
    let mut client = server.with_table(100, 3);
    client.batch_execute("SELECT train_sgd('wide', model_name => 'm', max_epochs => 1)").expect("trains");
    let backend = corgipile_tests::pid(&mut client);
    let mut random = Random(1);
    let (mut parsed, mut refused) = (0, 0);
    for i in 0..6000 {
        let mut text =
            if i % 3 == 0 { "SELECT * FROM wide PREDICT BY 'm' ".to_string() } else { "SELECT ".to_string() };
        for _ in 0..random.below(12) {
            text.push_str(PARTS[random.below(PARTS.len())]);
            text.push_str([" ", "", " "][random.below(3)]);
        }
        // Cut anywhere, also within a word or a quotation.
        let cut = random.below(text.len() + 1);
        if i % 4 == 0 && text.is_char_boundary(cut) {
            text.truncate(cut);
        }
        // Parsed and planned, not run; what several statements do is undone.
        match client.prepare(&text) {
            Ok(_) => parsed += 1,
            Err(e) => {
                let code = sqlstate(&e);
                assert!(!code.is_empty() && code != "XX000", "{text:?}: {}", message(&e));
                refused += 1;
            }
        }
    }
    println!("{parsed} parsed, {refused} refused");
    assert!(parsed > 300 && refused > 300);
    assert_eq!(corgipile_tests::pid(&mut client), backend, "the same session all along");
}
