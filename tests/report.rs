//! The page about a model in a browser, where there is one.

use corgipile_tests::{Server, value};
use std::process::{Command, Stdio};

#[test]
fn a_browser_shows_the_report_without_an_error_or_a_request() {
    if !Command::new("chromium").arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("skipped: chromium is not installed");
        return;
    }
    let server = Server::start(&[]);
    let mut client = server.with_table(4000, 6);
    client.batch_execute("SELECT train_sgd('wide', model_name => 'm', eval_fraction => 0.2)").expect("trains");
    let page: String = value(&mut client, "SELECT corgipile.report('m', 'wide')");
    let (file, shot) = (server.socket().join("report.html"), server.socket().join("report.png"));
    std::fs::write(&file, page).expect("writes");
    let browser = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--enable-logging=stderr",
        ])
        // Nothing can be reached: a request would be an error in the console.
        .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1000,2400", "--virtual-time-budget=2000"])
        .arg(format!("--user-data-dir={}", server.socket().join("browser").display()))
        .arg(format!("--screenshot={}", shot.display()))
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&browser.stderr);
    assert!(browser.status.success(), "{said}");
    let console: Vec<&str> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "{console:?}");
    // Something was drawn: an empty page is a few kilobytes.
    let bytes = std::fs::metadata(&shot).expect("a screenshot").len();
    assert!(bytes > 20_000, "{bytes} bytes");
    if let Ok(keep) = std::env::var("REPORT_SCREENSHOT") {
        std::fs::copy(&shot, keep).expect("copies");
    }
}
