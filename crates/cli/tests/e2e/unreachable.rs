//! Streams that cannot be reached, or are reached and do not answer.

use crate::bed::{Server, folder, highwater, text, wait_for};
use crate::content::assert_same;
use crate::session::{Session, bound};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Opens, reads and commits; none of it may take the time that a network would.
fn use_database(file: &Path) -> Session {
    let begun = Instant::now();
    let mut session = Session::on(file);
    session.all(&["CREATE TABLE IF NOT EXISTS t (n INTEGER)"]);
    assert!(begun.elapsed() < Duration::from_secs(5), "opening took {:?}", begun.elapsed());
    let mut longest = Duration::ZERO;
    for n in 0..100 {
        let (_, took) = session.timed(&format!("INSERT INTO t VALUES ({n})")).expect("commits go on");
        longest = longest.max(took);
    }
    assert!(longest < Duration::from_secs(5), "a commit took {longest:?}");
    session
}

fn pending(session: &mut Session, file: &Path) -> (u64, String) {
    let page = session.status(file);
    let condition = page["replication"]["condition"].as_str().unwrap_or_default().to_owned();
    (page["commits"]["pending"].as_u64().expect("a number"), condition)
}

#[test]
fn opening_reading_and_committing_need_no_server() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let url = &server.url("apps/alone");
    let file = &bound(folder.path(), url);
    server.kill();
    let mut session = use_database(file);
    wait_for("the condition", || (pending(&mut session, file).1 == "retrying").then_some(()));
    // Its process dies too, and the next one opens as quickly.
    session.kill();
    let mut session = use_database(file);
    assert_eq!(session.value("SELECT count(*) FROM t"), 200);
    let begun = Instant::now();
    session.finish();
    assert!(begun.elapsed() < Duration::from_secs(15), "closing is bounded, and took {:?}", begun.elapsed());
    highwater(["db", "push", text(file), "--timeout-s", "1"])
        .fails(5, &["synced_timeout", "run the same command again"]);
    server.restart();
    highwater(["db", "push", text(file)]).ok();
    highwater(["db", "verify", text(file), url]).ok();
}

/// The only point where the stream's state stops a commit, and only the next one.
#[test]
fn a_full_backlog_refuses_writes_until_the_stream_takes_some() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let url = &server.url("apps/backlog");
    let file = &bound(folder.path(), url);
    let mut session = Session::python();
    let limited = format!("file:{}?vfs=highwater&max_pending_bytes=300000", file.display());
    session.open("main", &limited).expect("the database opens");
    session.all(&["CREATE TABLE t (n INTEGER PRIMARY KEY, bytes BLOB)"]);
    session.synced(file);
    server.kill();
    let mut committed = 0;
    let refused = loop {
        match session.run(&format!("INSERT INTO t VALUES ({committed}, randomblob(20000))")) {
            Ok(_) => committed += 1,
            Err(failed) => break failed,
        }
        assert!(committed < 30, "600 KB are pending, and nothing was refused");
    };
    assert_eq!(refused.name, "SQLITE_FULL", "{refused:?}");
    assert!(session.value("PRAGMA highwater_error").as_str().is_some_and(|text| text.starts_with("backlog_full")));
    assert!(committed >= 10, "refused after {committed} commits already");
    assert_eq!(session.value("SELECT count(*) FROM t"), committed, "reads go on");
    let page = session.status(file);
    assert_eq!(page["commits"]["max_pending_bytes"], 300_000, "{page}");
    server.restart();
    wait_for("writes to be taken again", || session.run("INSERT INTO t VALUES (1000, 'after')").ok());
    session.synced(file);
    session.finish();
    highwater(["db", "verify", text(file), url]).ok();
}

/// A remote that accepts connections and never answers must not be waited for (libsql, pull request 2247).
#[test]
fn a_remote_that_accepts_and_never_answers_is_given_up_while_commits_go_on() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let url = &server.url("apps/mute");
    let file = &bound(folder.path(), url);
    server.kill();
    let mute = Mute::on(server.port);
    let mut session = use_database(file);
    assert_eq!(pending(&mut session, file).1, "", "one attempt is on its way and not given up yet");
    wait_for("the attempt to be given up", || (pending(&mut session, file).1 == "retrying").then_some(()));
    let waited = mute.first_waited();
    assert!(waited >= Duration::from_secs(8), "given up after {waited:?} already");
    session.all(&["INSERT INTO t VALUES (100)"]);
    drop(mute);
    server.restart();
    wait_for("the backlog to drain", || (pending(&mut session, file) == (0, String::new())).then_some(()));
    session.synced(file);
    session.finish();
    let copy = folder.path().join("copy.db");
    highwater(["db", "restore", url, text(&copy)]).ok();
    assert_same(file, &copy);
}

/// Accepts connections and reads what comes, and answers nothing.
struct Mute {
    ended: Arc<AtomicBool>,
    /// How long the first connection was kept by its client, in milliseconds.
    first_ms: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Mute {
    fn on(port: u16) -> Self {
        let listener = wait_for("the port", || TcpListener::bind(("127.0.0.1", port)).ok());
        listener.set_nonblocking(true).expect("it can be set");
        let (ended, first_ms) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (end, first) = (Arc::clone(&ended), Arc::clone(&first_ms));
        let thread = thread::spawn(move || {
            let mut open: Vec<(TcpStream, Instant)> = Vec::new();
            while !end.load(Ordering::SeqCst) {
                if let Ok((connection, _)) = listener.accept() {
                    connection.set_nonblocking(true).expect("it can be set");
                    open.push((connection, Instant::now()));
                }
                open.retain_mut(|(connection, since)| {
                    let gone = matches!(connection.read(&mut [0; 4096]), Ok(0));
                    if gone && first.load(Ordering::SeqCst) == 0 {
                        first.store(since.elapsed().as_millis() as u64, Ordering::SeqCst);
                    }
                    !gone
                });
                thread::sleep(Duration::from_millis(10));
            }
        });
        Self { ended, first_ms, thread: Some(thread) }
    }

    fn first_waited(&self) -> Duration {
        let ms = wait_for("the client to hang up", || Some(self.first_ms.load(Ordering::SeqCst)).filter(|ms| *ms > 0));
        Duration::from_millis(ms)
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// A link that moves 20 KB a second, both ways, to the server behind it.
fn slow_link(port: u16, to: u16) {
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    let pump = |mut from: TcpStream, mut to: TcpStream| {
        let mut piece = [0; 1000];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            if to.write_all(&piece[..length]).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
        // The other direction notices by itself where this fails.
        drop(to.shutdown(Shutdown::Both));
    };
    thread::spawn(move || {
        for inward in listener.incoming().flatten() {
            let Ok(outward) = TcpStream::connect(("127.0.0.1", to)) else { continue };
            let (inward_too, outward_too) = (inward.try_clone().expect("a copy"), outward.try_clone().expect("a copy"));
            thread::spawn(move || pump(inward, outward));
            thread::spawn(move || pump(outward_too, inward_too));
        }
    });
}

/// The same report: what makes progress is not given up, however long it takes in all.
#[test]
fn a_slow_link_that_accepts_bytes_is_not_given_up() {
    let folder = folder();
    let server = Server::start(folder.path());
    let port = crate::bed::free_port();
    slow_link(port, server.port);
    let url = &format!("http://127.0.0.1:{port}/v1/stream/apps/slow");
    let file = &bound(folder.path(), url);
    let mut session = Session::on(file);
    // 300 KB of bytes that do not compress: one batch, longer on its way than the time without progress that is allowed.
    session.all(&["CREATE TABLE t (bytes BLOB)", "INSERT INTO t VALUES (randomblob(300000))"]);
    let begun = Instant::now();
    session.synced(file);
    assert!(begun.elapsed() > Duration::from_secs(11), "the link was not slow: {:?}", begun.elapsed());
    let page = session.status(file);
    assert_eq!(page["replication"]["condition"], serde_json::Value::Null, "{page}");
    assert_eq!(page["epoch"], 1, "one claim, and no attempt that was given up: {page}");
    session.finish();
}
