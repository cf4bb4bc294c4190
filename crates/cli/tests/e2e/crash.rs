//! A writer killed with SIGKILL again and again, alone and together with its server.

use crate::bed::{Server, extension, folder, highwater, program, script, signal, text, wait_for};
use crate::content::{assert_same, stock};
use crate::session::{PYTHON, Session, bound};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Draws the moments of the kills; the same in every run, as far as processes allow.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A process that commits until it is killed.
struct Writer {
    process: Child,
    said: Receiver<String>,
    /// Rows that it found when it opened the database.
    found: u64,
}

impl Writer {
    fn start(file: &Path, synchronous: &str, seed: u64) -> Self {
        let mut command = program(PYTHON);
        command.arg(script("writer.py")).arg(extension()).arg(file).args([synchronous, &seed.to_string()]);
        // An interrupted Python shows where it was, which is of no interest here.
        command.stderr(if seed == 0 { Stdio::inherit() } else { Stdio::null() });
        let mut process = command.stdout(Stdio::piped()).spawn().expect("Python can be run");
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let (tell, said) = channel();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
        let mut writer = Self { process, said, found: 0 };
        let first = writer.said.recv_timeout(crate::bed::SOON).expect("the writer opens the database and checks it");
        writer.found = number(&first, "found");
        writer
    }

    /// SIGKILL; the last commit that it reported before, or what it found.
    fn kill(self) -> u64 {
        self.end(Signal::KILL)
    }

    /// As [`Writer::kill`], with another signal.
    fn end(mut self, how: Signal) -> u64 {
        signal(&self.process, how);
        wait_for("the writer to end", || self.process.try_wait().expect("its state can be asked"));
        self.said.iter().map(|line| number(&line, "committed")).last().unwrap_or(self.found)
    }
}

fn number(line: &str, what: &str) -> u64 {
    let number = line.strip_prefix(what).and_then(|rest| rest.trim().parse().ok());
    number.unwrap_or_else(|| panic!("the writer said {line:?}, not what it {what}"))
}

/// Every commit that was reported is there; of the one on its way all or nothing.
fn assert_kept(round: u64, reported: u64, found: u64) {
    assert!(found >= reported, "round {round}: commit {reported} was reported, and {found} were found");
    assert!(found <= reported + 1, "round {round}: only {reported} commits were reported, and {found} were found");
}

/// Kills the writer in every round, and the server in every other; returns how many commits were reported at the end.
fn rounds(file: &Path, server: &mut Server, synchronous: &str, count: u64, kill_server: bool) -> u64 {
    let mut draw = Draw(count.wrapping_mul(synchronous.len() as u64 + 7));
    let mut reported = 0;
    for round in 0..count {
        let writer = Writer::start(file, synchronous, round);
        assert_kept(round, reported, writer.found);
        thread::sleep(Duration::from_millis(30 + draw.below(600)));
        if kill_server && round % 2 == 0 {
            server.kill();
            thread::sleep(Duration::from_millis(draw.below(200)));
            reported = writer.kill();
            server.restart();
        } else {
            reported = writer.kill();
        }
    }
    reported
}

/// The last process's pending commits are pushed; then the stream holds the same as the file.
fn assert_restored(folder: &Path, file: &Path, url: &str, reported: u64) {
    highwater(["db", "push", text(file)]).ok();
    highwater(["db", "verify", text(file), url]).ok();
    let copy = folder.join("copy.db");
    highwater(["db", "restore", url, text(&copy)]).ok();
    assert_same(file, &copy);
    let held: u64 = stock(&copy, "SELECT entries FROM total").trim().parse().expect("a number");
    assert_kept(u64::MAX, reported, held);
}

fn killed(name: &str, synchronous: &str, count: u64, kill_server: bool) {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let url = &server.url(name);
    let file = &bound(folder.path(), url);
    let reported = rounds(file, &mut server, synchronous, count, kill_server);
    assert_restored(folder.path(), file, url, reported);
    println!("{reported} commits over {count} kills, synchronous={synchronous}");
}

#[test]
fn a_writer_killed_again_and_again_keeps_every_commit_it_reported_with_synchronous_full() {
    killed("killed/full", "FULL", 7, false);
}

#[test]
fn a_writer_killed_again_and_again_keeps_every_commit_it_reported_with_synchronous_normal() {
    killed("killed/normal", "NORMAL", 7, false);
}

#[test]
fn a_writer_and_its_server_killed_in_turns_lose_nothing_and_send_nothing_twice() {
    killed("killed/both", "NORMAL", 8, true);
}

/// LiteFS 76 and 171: a writer that was asked to end left a database that nobody could write for a while.
#[test]
fn a_writer_that_is_interrupted_leaves_a_database_that_serves_at_once() {
    let folder = folder();
    let server = Server::start(folder.path());
    let url = &server.url("killed/interrupted");
    let file = &bound(folder.path(), url);
    let mut reported = 0;
    for round in 0..4 {
        let begun = Instant::now();
        let writer = Writer::start(file, "NORMAL", round);
        assert!(begun.elapsed() < Duration::from_secs(10), "opening took {:?}", begun.elapsed());
        assert_kept(round, reported, writer.found);
        thread::sleep(Duration::from_millis(200));
        reported = writer.end(if round % 2 == 0 { Signal::INT } else { Signal::TERM });
    }
    assert_restored(folder.path(), file, url, reported);
}

/// One commit in many requests: the run of its parts is broken off by both deaths, and begun again.
#[test]
fn a_commit_larger_than_a_request_is_whole_or_absent_through_deaths_in_its_middle() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let url = &server.url("killed/large");
    let file = &bound(folder.path(), url);
    let mut session = Session::on(file);
    session.all(&["CREATE TABLE t (n INTEGER, bytes BLOB)", "INSERT INTO t VALUES (0, 'before')"]);
    session.synced(file);
    // 24 MiB that do not compress: six requests at least.
    session.all(&[
        "BEGIN",
        "WITH RECURSIVE s (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM s WHERE n < 24) \
         INSERT INTO t SELECT n, randomblob(1 << 20) FROM s",
        "COMMIT",
    ]);
    server.kill();
    server.restart();
    thread::sleep(Duration::from_millis(150));
    session.kill();
    let early = folder.path().join("early.db");
    highwater(["db", "restore", url, text(&early)]).ok();
    let count = stock(&early, "SELECT count(*) FROM t");
    assert!(count == "1\n" || count == "25\n", "a part of a commit was restored: {count} rows");

    let mut session = Session::on(file);
    assert_eq!(session.value("SELECT count(*) FROM t"), 25);
    session.all(&["INSERT INTO t VALUES (25, 'after')"]);
    session.synced(file);
    session.finish();
    highwater(["db", "verify", text(file), url]).ok();
    let copy = folder.path().join("copy.db");
    highwater(["db", "restore", url, text(&copy)]).ok();
    assert_same(file, &copy);
}

/// What `push` was sending when it was killed is settled by the next one's claim.
#[test]
fn a_push_that_is_killed_is_finished_by_the_next_one() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let url = &server.url("killed/push");
    let file = &bound(folder.path(), url);
    server.kill();
    let writer = Writer::start(file, "NORMAL", 1);
    thread::sleep(Duration::from_millis(700));
    let reported = writer.kill();
    server.restart();
    for ms in [20, 60, 120, 200] {
        let mut command = program(env!("CARGO_BIN_EXE_highwater"));
        let mut push = command.args(["db", "push", text(file)]).stdout(Stdio::null()).spawn().expect("it can be run");
        thread::sleep(Duration::from_millis(ms));
        push.kill().expect("it can be killed");
        push.wait().expect("it ends");
    }
    assert_restored(folder.path(), file, url, reported);
}
