//! The server killed, ended and started again while several writers append to it.

use crate::bed::{Ran, Server, folder, free_port, program, text, wait_for};
use crate::load::{CONTENT_TYPE, Load, stream, under_load};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn a_server_killed_again_and_again_loses_nothing_it_acknowledged_and_applies_nothing_twice() {
    const ROUNDS: u64 = 8;
    let folder = folder();
    let mut server = Server::start(folder.path());
    let load = Load::new(&server);
    under_load(&load, || {
        for round in 0..ROUNDS {
            let before = load.book().acknowledged.len();
            wait_for("the load to go on", || (load.book().acknowledged.len() > before + 20).then_some(()));
            thread::sleep(Duration::from_millis(100 + round * 137 % 400));
            server.kill();
            load.pause();
            // Some die again while they recover.
            for again in 0..round % 3 {
                server.launch();
                thread::sleep(Duration::from_millis(10 + (round * 7 + again * 31) % 90));
                server.kill();
            }
            server.restart();
            load.check();
            load.repeat_newest();
            load.resume();
        }
    });
    load.check();
    let book = load.book();
    println!(
        "{} writes acknowledged, {} keyless ones without an answer, {} streams deleted, over {ROUNDS} kills",
        book.acknowledged.len(),
        book.unknown,
        book.deleted.len()
    );
}

#[test]
fn sigterm_under_load_ends_cleanly_and_loses_nothing() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let load = Load::new(&server);
    under_load(&load, || {
        for _ in 0..2 {
            thread::sleep(Duration::from_millis(600));
            let begun = Instant::now();
            let status = server.terminate();
            assert!(status.success(), "{status}:\n{}", server.log());
            assert!(begun.elapsed() < Duration::from_secs(15), "it took {:?} to end", begun.elapsed());
            load.pause();
            server.restart();
            load.check();
            load.repeat_newest();
            load.resume();
        }
    });
    load.check();
    let log = server.log();
    assert_eq!(log.matches("stopped cleanly").count(), 2, "{log}");
}

#[test]
fn a_server_killed_while_it_makes_its_directory_starts_the_next_time() {
    for ms in [0, 3, 8, 15, 25, 40, 70, 120] {
        let folder = folder();
        let mut server = Server::new(folder.path());
        server.launch();
        thread::sleep(Duration::from_millis(ms));
        server.kill();
        server.restart();
        let (_, answer) = stream(&server.url("first/one")).create(CONTENT_TYPE, None, false);
        assert_eq!(answer.status, 201, "killed after {ms} ms: {}", answer.describe());
    }
}

#[test]
fn a_second_server_on_the_same_directory_is_refused_and_the_first_goes_on() {
    let folder = folder();
    let server = Server::start(folder.path());
    let mut second = Server::command(&server.data, free_port());
    Ran::of(&mut second, b"").fails(5, &[text(&server.data), "in use"]);
    let (_, answer) = stream(&server.url("still/here")).create(CONTENT_TYPE, None, false);
    assert_eq!(answer.status, 201, "{}", answer.describe());
}

#[test]
fn a_port_that_is_taken_is_named() {
    let folder = folder();
    let server = Server::start(folder.path());
    let mut second = Server::command(&folder.path().join("other"), server.port);
    Ran::of(&mut second, b"").fails(5, &[&format!("127.0.0.1:{}", server.port), "another program"]);
}

#[test]
fn a_server_that_others_could_reach_does_not_start() {
    let folder = folder();
    let mut server = program(env!("CARGO_BIN_EXE_highwater"));
    server.args(["serve", "--listen", "0.0.0.0:0", "--data"]).arg(folder.path().join("data"));
    Ran::of(&mut server, b"").fails(2, &["neither TLS nor a proxy", "highwater key create", "127.0.0.1"]);
    server.args(["--behind-proxy", "192.0.2.7"]);
    Ran::of(&mut server, b"").fails(2, &["no keys", "open to everybody", "highwater key create"]);
    assert!(!folder.path().join("data").exists(), "nothing was made");
}
