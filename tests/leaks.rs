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
