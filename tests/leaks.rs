//! A thousand trainings in one session leave nothing behind.

use corgipile_tests::{Server, pid, threads, value};

fn open_files(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

fn resident_kb(pid: i32) -> u64 {
    // RssAnon leaves out shared buffers, which fill up as pages are touched.
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process of ours");
    let line = status.lines().find(|line| line.starts_with("RssAnon")).expect("Linux 4.5 or newer");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).expect("a number")
}

#[test]
fn a_thousand_trainings_leave_no_thread_file_or_memory() {
    let server = Server::start(&[]);
    let mut client = server.with_table(500, 10);
    let backend = pid(&mut client);
    let train = "SELECT model_vector(corgipile.sgd(label, features_v, '{\"max_epochs\": 2}')) FROM wide";
    let round = |client: &mut postgres::Client, n: usize| {
        for i in 0..n {
            let query = if i % 5 == 0 { "SELECT 1::bigint FROM train_sgd('wide', max_epochs => 1)" } else { train };
            client.batch_execute(query).expect("trains");
            if i % 10 == 0 {
                let _ = client
                    .batch_execute("SELECT corgipile.sgd(id, features_v, '{\"loss\": \"hinge\"}') FROM wide")
                    .expect_err("fails");
            }
        }
    };
    round(&mut client, 100);
    let (files, memory) = (open_files(backend), resident_kb(backend));
    round(&mut client, 1000);
    let after = resident_kb(backend);
    println!("files {files} -> {}, memory {memory} kB -> {after} kB", open_files(backend));
    assert_eq!(threads(backend), 1);
    assert!(open_files(backend) <= files + 1);
    assert!(after < memory + 4096, "memory grew from {memory} to {after} kB");
    assert_eq!(value::<i64>(&mut client, "SELECT count(*) FROM corgipile.models"), 220);
}

#[test]
fn many_sessions_train_and_predict_at_once() {
    let server = Server::start(&[]);
    let mut client = server.with_table(2000, 10);
    client.batch_execute("SELECT train_sgd('wide', model_name => 'kept')").expect("trains");
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let mut client = server.connect();
                client.batch_execute("SET client_min_messages = warning").expect("sets");
                for _ in 0..10 {
                    client.batch_execute("SELECT train_sgd('wide', max_epochs => 2)").expect("trains");
                    let right: i64 =
                        value(&mut client, "SELECT count(*) FROM wide PREDICT BY 'kept' WHERE prediction = label");
                    assert!(right > 1900, "{right}");
                }
            });
        }
    });
    assert_eq!(value::<i64>(&mut client, "SELECT count(*) FROM corgipile.models"), 121);
    assert_eq!(
        value::<i64>(
            &mut client,
            "SELECT count(DISTINCT model_vector(model_id)) FROM corgipile.models WHERE epochs = 2"
        ),
        1
    );
}

#[test]
fn a_large_model_is_in_memory_once_for_a_hundred_sessions() {
    const SESSIONS: usize = 100;
    let server = Server::start(&["max_connections = 120"]);
    let mut client = server.with_table(400, 4000);
    // A thousand classes of 4,000 features: 16 MB.
    client
        .batch_execute(
            "SET corgipile.memory_limit = '2GB';
             CREATE TABLE many AS SELECT 'class ' || r || '_' || id AS label, features_v FROM wide, generate_series(1, 3) AS r WHERE id <= 334;
             SELECT train_sgd('many', loss => 'softmax', max_epochs => 1, model_name => 'large')",
        )
        .unwrap_or_else(|e| panic!("{}", corgipile_tests::message(&e)));
    let bytes: i64 = value(&mut client, "SELECT 4 * cardinality(model_vector('large'))::bigint");
    assert!(bytes > 15_000_000, "{bytes}");
    let query = "SELECT length(predict('large', features_v)) FROM wide WHERE id = 7";
    let run = |setting: &str| {
        let mut sessions: Vec<_> = (0..SESSIONS).map(|_| server.connect()).collect();
        let mut kb = 0;
        for session in &mut sessions {
            session.batch_execute(setting).expect("sets");
            let backend = pid(session);
            value::<i32>(session, "SELECT 1");
            let before = resident_kb(backend);
            value::<i32>(session, query);
            kb += resident_kb(backend).saturating_sub(before);
        }
        kb
    };
    let shared = run("SELECT 1");
    let own = run("SET corgipile.shared_model_size = -1");
    println!("{SESSIONS} sessions with a model of {bytes} bytes: {shared} kB shared, {own} kB else");
    assert!(shared < 100_000, "{shared} kB");
    assert!(own > 1_000_000, "{own} kB: this test proves nothing");
    let files = "SELECT count(*) FROM pg_ls_tmpdir() WHERE name LIKE 'pgsql_tmp_corgipile%'";
    assert_eq!(value::<i64>(&mut client, files), 1);
    // The same prediction either way, and a damaged file is not believed.
    let path = "SELECT setting || '/base/pgsql_tmp/' || (SELECT name FROM pg_ls_tmpdir()) FROM pg_settings WHERE name = 'data_directory'";
    let path: String = value(&mut client, path);
    let scores =
        "SELECT md5(string_agg(predict_score('large', features_v)::text, ',' ORDER BY id)) FROM wide WHERE id < 20";
    let right: String = value(&mut server.connect(), scores);
    let mut bytes = std::fs::read(&path).expect("reads as root or owner");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let changed = format!("{path}.changed");
    std::fs::write(&changed, bytes).expect("writes");
    std::fs::rename(&changed, &path).expect("renames");
    assert_eq!(value::<String>(&mut server.connect(), scores), right);
    // A start of the server removes them.
    drop(client);
    server.stop("fast");
    server.start_again();
    assert_eq!(value::<i64>(&mut server.connect(), files), 0);
    assert_eq!(value::<String>(&mut server.connect(), scores), right);
}
