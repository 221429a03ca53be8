//! Throw-away servers for the tests, started and stopped by `scripts/server.sh`.

use postgres::{Client, Config, NoTls};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the checkout").to_path_buf()
}

fn script(args: &[&str]) -> String {
    let output = Command::new(root().join("scripts/server.sh"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("scripts/server.sh runs");
    assert!(output.status.success(), "server.sh {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// A program of the server's installation.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(Path::new(&script(&["bin"])).join(name));
    command.stdin(Stdio::null());
    command
}

/// A server in a directory of its own; stopped and removed when dropped.
pub struct Server {
    dir: PathBuf,
}

fn fresh_dir() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("corgipile-test-{}-{number}", std::process::id()))
}

impl Server {
    /// A running server with the library preloaded and these settings.
    pub fn start(settings: &[&str]) -> Self {
        let server = Self { dir: fresh_dir() };
        let dir = server.dir.to_string_lossy().into_owned();
        let mut args = vec!["new", dir.as_str()];
        args.extend(settings);
        script(&args);
        server
    }

    /// A streaming standby of this server.
    pub fn standby(&self) -> Self {
        let standby = Self { dir: fresh_dir() };
        script(&["standby", &standby.dir.to_string_lossy(), &self.dir.to_string_lossy()]);
        standby
    }

    /// The directory of its socket.
    pub fn socket(&self) -> &Path {
        &self.dir
    }

    /// Runs a client program against it, as its superuser unless the arguments say otherwise; what that wrote.
    pub fn run(&self, name: &str, args: &[&str]) -> Vec<u8> {
        let output = program(name).arg("-h").arg(&self.dir).args(["-U", "postgres"]).args(args).output().expect("runs");
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// Stops it ("fast", "immediate").
    pub fn stop(&self, mode: &str) {
        script(&["stop", &self.dir.to_string_lossy(), mode]);
    }

    /// Starts it again.
    pub fn start_again(&self) {
        script(&["start", &self.dir.to_string_lossy()]);
    }

    /// A connection to a database.
    pub fn connect_to(&self, database: &str) -> Client {
        self.try_connect(database).expect("connects")
    }

    /// A connection, if the server takes one.
    pub fn try_connect(&self, database: &str) -> Result<Client, postgres::Error> {
        Config::new().host_path(&self.dir).user("postgres").dbname(database).connect(NoTls)
    }

    /// A connection as another role.
    pub fn connect_as(&self, role: &str, database: &str) -> Client {
        Config::new().host_path(&self.dir).user(role).dbname(database).connect(NoTls).expect("connects")
    }

    /// A connection to the database `postgres`.
    pub fn connect(&self) -> Client {
        self.connect_to("postgres")
    }

    /// A new connection after a crash, which `witness`, a connection from before, must have seen: one that
    /// is made before the server has noticed would be ended again.
    pub fn recovered(&self, witness: &mut Client) -> Client {
        wait_for("the server to notice", || witness.batch_execute("SELECT 1").is_err());
        wait_for("the server to recover", || self.try_connect("postgres").is_ok());
        self.connect()
    }

    /// A connection in which the extension is installed, with `wide`: label-clustered tuples large
    /// enough for a training to take a while.
    pub fn with_table(&self, rows: u32, dims: u32) -> Client {
        let mut client = self.connect();
        client
            .batch_execute(&format!(
                "CREATE EXTENSION IF NOT EXISTS corgipile;
                 SET client_min_messages = warning;
                 CREATE TABLE wide AS
                     SELECT i AS id, i / ({rows} / 2 + 1) AS label,
                            ARRAY(SELECT (abs(hashint8(i * 1000::bigint + j) % 1000) / 1000.0 + 2 * (i / ({rows} / 2 + 1)))::real
                                  FROM generate_series(1, {dims}) AS j) AS features_v
                     FROM generate_series(1, {rows}) AS i;
                 ANALYZE wide"
            ))
            .expect("the table is made");
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new(root().join("scripts/server.sh"))
            .args([Path::new("stop"), &self.dir, Path::new("immediate")])
            .stdin(Stdio::null())
            .output();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// One value of one row.
pub fn value<T: for<'a> postgres::types::FromSql<'a>>(client: &mut Client, query: &str) -> T {
    client.query_one(query, &[]).unwrap_or_else(|e| panic!("{query}: {}", message(&e))).get(0)
}

/// The server's message in an error.
pub fn message(error: &postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |db| format!("{}: {}", db.code().code(), db.message()))
}

/// The SQLSTATE of an error; "" for a lost connection.
pub fn sqlstate(error: &postgres::Error) -> String {
    error.code().map(|code| code.code().to_string()).unwrap_or_default()
}

/// The process behind a connection.
pub fn pid(client: &mut Client) -> i32 {
    value(client, "SELECT pg_backend_pid()")
}

/// Kills a backend as the kernel does when memory runs out: PostgreSQL restarts all of them.
pub fn kill(pid: i32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(status.expect("kill runs").success());
}

/// Threads of a process.
pub fn threads(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// Waits until a condition holds.
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
