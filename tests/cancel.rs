//! Cancel, timeout and terminate in every phase, with a witness connection that proves that the
//! server did not restart.

use corgipile_tests::{Server, kill, message, pid, sqlstate, threads, value, wait_for};
use postgres::Client;
use std::thread;
use std::time::{Duration, Instant};

/// Statements that stay in one phase for long. Filling: detoasting and a slow filter. Waiting:
/// compute is much slower than the fill (sparse, many weights; large mini-batches do not matter).
/// Computing: without a second thread. Sampling: what 'auto' does first. Sorting: on disk, anew in
/// every epoch.
const PHASES: [(&str, &str); 9] = [
    (
        "fill",
        "SELECT corgipile.sgd(label, features_v, '{\"max_epochs\": 1000000, \"tolerance\": 0, \"shuffle\": \"corgipile\"}') FROM wide WHERE pg_sleep(0.0001) IS NOT NULL",
    ),
    ("sample", "SELECT corgipile.sgd(label, features_v) FROM wide WHERE pg_sleep(0.001) IS NOT NULL"),
    (
        "sort",
        "SET corgipile.memory_limit = '1MB'; SELECT corgipile.sgd(label, features_v, '{\"max_epochs\": 1000000, \"tolerance\": 0, \"shuffle\": \"epoch\"}') FROM wide",
    ),
    (
        "window",
        "SELECT train_sgd('wide', max_epochs => 1000000, tolerance => 0, shuffle => 'sliding_window', buffer_size => '64kB')",
    ),
    (
        "reservoir",
        "SELECT train_sgd('wide', max_epochs => 1000000, tolerance => 0, shuffle => 'mrs', buffer_size => '64kB')",
    ),
    ("epochs", "SELECT train_sgd('wide', max_epochs => 1000000, tolerance => 0)"),
    (
        "wait",
        "SELECT corgipile.sgd(label, (SELECT array_agg(i) FROM generate_series(1, 40000) i)::int[], (SELECT array_agg(1) FROM generate_series(1, 40000) i)::real[], '{\"max_epochs\": 1000000, \"tolerance\": 0}') FROM wide",
    ),
    (
        "compute",
        "SET corgipile.async_compute = off; SELECT corgipile.sgd(label, array_fill(1::real, ARRAY[20000]), '{\"max_epochs\": 1000000, \"tolerance\": 0}') FROM wide",
    ),
    (
        "aggregate",
        "SELECT corgipile.sgd(label, features_v, '{\"max_epochs\": 1000000, \"tolerance\": 0}') FROM wide GROUP BY id % 2",
    ),
];

struct Witness {
    client: Client,
    started: String,
}

impl Witness {
    fn new(server: &Server) -> Self {
        let mut client = server.connect();
        let started = value(&mut client, "SELECT pg_postmaster_start_time()::text");
        Self { client, started }
    }

    /// The same connection still answers: no crash, no restart; and nothing was left on disk.
    fn check(&mut self) {
        let started: String = value(&mut self.client, "SELECT pg_postmaster_start_time()::text");
        assert_eq!(started, self.started);
        wait_for("temporary files to be removed", || {
            value::<i64>(&mut self.client, "SELECT count(*) FROM pg_ls_tmpdir()") == 0
        });
    }
}

#[test]
fn statement_timeout_ends_every_phase_and_leaves_the_session_usable() {
    let server = Server::start(&[]);
    let mut client = server.with_table(4000, 200);
    let mut witness = Witness::new(&server);
    let backend = pid(&mut client);
    for (phase, statement) in PHASES {
        client.batch_execute("SET statement_timeout = '400ms'").expect("sets");
        let started = Instant::now();
        let error = client.batch_execute(statement).expect_err(phase);
        let late = started.elapsed().saturating_sub(Duration::from_millis(400));
        assert_eq!(sqlstate(&error), "57014", "{phase}: {}", message(&error));
        println!("{phase}: timeout noticed after {} ms", late.as_millis());
        assert!(late < Duration::from_secs(2), "{phase}: {late:?} late");
        client.batch_execute("RESET ALL; SET client_min_messages = warning").expect("resets");
        assert_eq!(threads(backend), 1, "{phase}: a thread was left");
        client.batch_execute("SELECT train_sgd('wide', max_epochs => 1)").expect("the session is usable");
        witness.check();
    }
}

#[test]
fn terminate_ends_every_phase() {
    let server = Server::start(&[]);
    server.with_table(4000, 200);
    let mut witness = Witness::new(&server);
    for (phase, statement) in PHASES {
        let mut client = server.connect();
        let backend = pid(&mut client);
        let victim = thread::spawn(move || client.batch_execute(statement).expect_err("is terminated"));
        thread::sleep(Duration::from_millis(300));
        let state = format!("SELECT state FROM pg_stat_activity WHERE pid = {backend}");
        assert_eq!(value::<String>(&mut witness.client, &state), "active", "{phase}");
        let started = Instant::now();
        assert!(value::<bool>(&mut witness.client, &format!("SELECT pg_terminate_backend({backend})")), "{phase}");
        let error = victim.join().expect("the client's thread ends");
        println!("{phase}: terminated after {} ms", started.elapsed().as_millis());
        // The client sometimes sees the closed connection before it has read the last message; that
        // the server is the same one is what the witness proves.
        assert!(["57P01", ""].contains(&sqlstate(&error).as_str()), "{phase}: {}", message(&error));
        wait_for("the process to end", || threads(backend) == 0);
        witness.check();
    }
}

#[test]
fn fifty_cancels_at_random_moments() {
    let server = Server::start(&[]);
    let mut client = server.with_table(20_000, 30);
    let mut witness = Witness::new(&server);
    let backend = pid(&mut client);
    let mut slowest = Duration::ZERO;
    let mut random = 12345u64;
    for round in 0..50 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let pause = Duration::from_micros((random >> 33) % 60_000);
        let (phase, statement) = PHASES[[0, 1, 2, 5][round % 4]];
        // Not by the protocol's request: for that the postmaster's child sends the signal twice, and
        // the second may come as late as in the next statement.
        let mut other = server.connect();
        let cancel =
            format!("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid = {backend} AND state = 'active'");
        let canceller = thread::spawn(move || {
            thread::sleep(pause);
            loop {
                let sent = Instant::now();
                // None: the statement has not arrived yet.
                if other.query_opt(&cancel, &[]).expect("sends the cancel").is_some() {
                    return sent;
                }
            }
        });
        let error = client.batch_execute(statement);
        let ended = Instant::now();
        let sent = canceller.join().expect("the canceller ends");
        match error {
            Err(error) => {
                assert_eq!(sqlstate(&error), "57014", "{phase}: {}", message(&error));
                slowest = slowest.max(ended.saturating_duration_since(sent));
            }
            Ok(()) => panic!("{phase}: the statement ended by itself"),
        }
        // The error reaches the client before the transaction is cleaned up.
        wait_for(&format!("the thread of round {round} to be joined"), || threads(backend) == 1);
    }
    println!("slowest of 50 cancels: {} ms", slowest.as_millis());
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    witness.check();
    let id: i64 = value(&mut client, "SELECT train_sgd('wide', max_epochs => 1)");
    assert_eq!(id, 1, "no cancelled training was stored");
}

#[test]
fn errors_in_the_middle_of_a_fill_leave_no_thread_and_a_subtransaction_goes_on() {
    let server = Server::start(&[]);
    let mut client = server.with_table(20_000, 30);
    let backend = pid(&mut client);
    let mut witness = Witness::new(&server);
    client
        .batch_execute(
            "CREATE FUNCTION fail_late(i int) RETURNS boolean LANGUAGE plpgsql AS $$
             BEGIN IF i = 19000 THEN RAISE 'late'; END IF; RETURN true; END $$;
             DO $$
             DECLARE n int := 0; m corgipile.model;
             BEGIN
                 FOR i IN 1..20 LOOP
                     BEGIN
                         SELECT corgipile.sgd(label, features_v, '{\"buffer_size\": \"256kB\"}') INTO m FROM wide WHERE fail_late(id);
                     EXCEPTION WHEN raise_exception THEN n := n + 1;
                     END;
                 END LOOP;
                 ASSERT n = 20;
             END $$",
        )
        .unwrap_or_else(|e| panic!("{}", message(&e)));
    wait_for("the threads to be joined", || threads(backend) == 1);
    // A cursor that is closed before it was read to its end, and one that is never closed.
    client
        .batch_execute(
            "BEGIN; DECLARE c CURSOR FOR SELECT corgipile.sgd(label, features_v) FROM wide, generate_series(1, 2) GROUP BY generate_series;
             FETCH 1 FROM c; CLOSE c; DECLARE d CURSOR FOR SELECT corgipile.sgd(label, features_v) FROM wide; COMMIT",
        )
        .expect("cursors");
    wait_for("the threads of the cursors", || threads(backend) == 1);
    witness.check();
}

#[test]
fn looks_at_tables_and_disks_end_at_once() {
    let server = Server::start(&[]);
    // 48 MB, so that it is looked at before training.
    let mut client = server.with_table(30_000, 400);
    let mut witness = Witness::new(&server);
    let backend = pid(&mut client);
    let statements = [
        ("advice", "SELECT count(*) FROM corgipile.advise('wide'), generate_series(1, 1000)"),
        (
            "look",
            "SELECT count(*) FROM (SELECT corgipile.sgd(label, features_v, '{\"max_epochs\": 1, \"shuffle\": \"corgipile\"}') FROM wide WHERE pg_sleep(0.002) IS NOT NULL) x",
        ),
        ("probe", "SELECT count(*) FROM corgipile.probe_disk(seconds => 60)"),
    ];
    for (what, statement) in statements {
        let repeated = format!("DO $do$ BEGIN LOOP PERFORM * FROM ({statement}) AS s; END LOOP; END $do$");
        client.batch_execute("SET statement_timeout = '500ms'").expect("sets");
        let started = Instant::now();
        let error = client.batch_execute(&repeated).expect_err(what);
        let late = started.elapsed().saturating_sub(Duration::from_millis(500));
        assert_eq!(sqlstate(&error), "57014", "{what}: {}", message(&error));
        println!("{what}: timeout noticed after {} ms", late.as_millis());
        assert!(late < Duration::from_secs(2), "{what}: {late:?} late");
        client.batch_execute("RESET statement_timeout").expect("resets");
        wait_for("the readers to be joined", || threads(backend) == 1);
        assert_eq!(value::<i64>(&mut client, "SELECT count(*) FROM corgipile.disks"), 0, "nothing is half kept");
        witness.check();
    }
    // Killed while it measures: the others go on once the server has recovered, and nothing is left.
    let mut victim = server.connect();
    let backend = pid(&mut victim);
    let killed = thread::spawn(move || victim.batch_execute("SELECT corgipile.probe_disk(seconds => 60)"));
    wait_for("several readers", || threads(backend) > 2);
    kill(backend);
    assert!(killed.join().expect("the client's thread ends").is_err());
    wait_for("the readers to be gone", || threads(backend) == 0);
    let mut again = server.recovered(&mut client);
    assert_eq!(value::<i64>(&mut again, "SELECT count(*) FROM corgipile.disks"), 0);
    assert_eq!(value::<i64>(&mut again, "SELECT count(*) FROM pg_ls_tmpdir()"), 0);
    assert_eq!(value::<i64>(&mut again, "SELECT train_sgd('wide', max_epochs => 1)"), 1);
}
