//! Whole databases: an engine on a simulated disk, a replicator on real threads and sockets, a server that misbehaves.

use super::machine::tests::model::Raw;
use super::testing::{Fault, TestServer};
use super::{Replication, StreamError, SyncedError, bind};
use crate::bind::{BindOptions, Bound};
use crate::engine::{CommitShape, Engine, OpenOptions, StopCode};
use crate::push::push;
use crate::restore::restore;
use crate::verify::verify;
use highwater_client::{Options, TokenSource};
use highwater_disk::sim::{EIO, Operation};
use highwater_disk::{Disk, OpenMode, SimDisk};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

fn client() -> Options {
    Options { patience: Duration::from_millis(500), token: TokenSource::none(), ca_file: None }
}

/// A bound database, open and replicated.
struct Open {
    engine: Arc<Engine>,
    replication: Arc<Replication>,
}

fn disk() -> Arc<dyn Disk> {
    Arc::new(SimDisk::new(1))
}

fn bound(disk: &Arc<dyn Disk>, path: &Path, server: &TestServer) -> Result<Bound, StreamError> {
    bind(disk, path, &server.url, BindOptions::default(), client(), &mut |_, _| {})
}

fn open(disk: &Arc<dyn Disk>, path: &Path) -> Open {
    open_with(disk, path, client())
}

fn open_with(disk: &Arc<dyn Disk>, path: &Path, client: Options) -> Open {
    let options = OpenOptions { timer: false, ..OpenOptions::default() };
    let engine = Engine::open(Arc::clone(disk), path, options).expect("a bound database");
    let replication = Replication::start(Arc::clone(&engine), client).expect("an address");
    Open { engine, replication }
}

impl Open {
    /// Commits `pages` pages filled with `value`, mixed so that they do not compress.
    fn commit(&self, pages: u32, value: u64) {
        let numbers: Vec<_> = (2..2 + pages).collect();
        let commit = CommitShape { page_size: PAGE as u32, pages_after: 1 + pages.max(50), pages: &numbers };
        let mut state = value | 1;
        let mut fill = |_: usize, page: &mut [u8]| {
            for byte in page {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
            Ok(())
        };
        self.engine.append_commit(commit, &mut fill).expect("room");
        self.engine.confirm();
    }

    fn synced(&self) {
        self.replication.synced(Some(Duration::from_secs(30))).expect("a server that answers in the end");
    }

    fn condition(&self) -> Option<&'static str> {
        self.replication.snapshot().condition.map(|(condition, _)| condition.as_str())
    }

    fn eventually(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !holds(self) {
            assert!(started.elapsed() < Duration::from_secs(20), "{what}: {:?}", self.replication.snapshot());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The database's bytes once everything in the log is in them.
fn image(disk: &Arc<dyn Disk>, path: &Path) -> Vec<u8> {
    let options = OpenOptions { timer: false, ..OpenOptions::default() };
    let engine = Engine::open(Arc::clone(disk), path, options).expect("a bound database");
    engine.close();
    let file = disk.open(path, OpenMode::Read).expect("a file");
    let mut bytes = vec![0; file.length().expect("a length") as usize];
    file.read_exact_at(&mut bytes, 0).expect("its bytes");
    bytes
}

#[test]
fn a_database_replicates_dies_and_comes_back_elsewhere_with_all_that_was_acknowledged() {
    let (server, disk) = (TestServer::start(), disk());
    let (first, second) = (Path::new("/a/app.db"), Path::new("/b/app.db"));
    assert_eq!(bound(&disk, first, &server).expect("an empty stream"), Bound::Created);
    let database = open(&disk, first);
    for value in 0..20 {
        database.commit(3, value);
    }
    // One commit larger than a first batch, which goes as a run of parts.
    database.commit(200, 99);
    database.synced();
    database.engine.close();
    let before = image(&disk, first);

    let restored = restore(&disk, &server.url, second, client(), &mut |_| {}).expect("a database");
    assert_eq!((restored.lsn, restored.epoch, restored.incomplete), (22, 1, false));
    assert!(image(&disk, second) == before, "every byte");

    // It goes on under a new epoch, and the old one learns that it is fenced.
    let old = open(&disk, first);
    let new = open(&disk, second);
    new.commit(2, 7);
    new.synced();
    assert_eq!(new.replication.snapshot().epoch, 2);
    old.commit(2, 8);
    let refused = old.replication.synced(None).expect_err("another owner");
    assert_eq!(refused.code(), "fenced");
    assert_eq!(old.engine.stop_reason().map(|reason| reason.code), Some(StopCode::Fenced));
    assert!(old.engine.admit_write().is_err(), "reads and writes stop");
    new.engine.close();
    old.engine.close();
}

#[test]
fn binding_takes_an_empty_stream_only_and_needs_no_network_the_second_time() {
    let (server, disk) = (TestServer::start(), disk());
    assert_eq!(bound(&disk, Path::new("/a.db"), &server).expect("a new stream"), Bound::Created);
    let database = open(&disk, Path::new("/a.db"));
    database.synced();
    database.engine.close();
    let requests = server.lock().requests.len();
    assert_eq!(bound(&disk, Path::new("/a.db"), &server).expect("bound before"), Bound::Already);
    assert_eq!(server.lock().requests.len(), requests, "no request");
    let refused = bound(&disk, Path::new("/b.db"), &server).expect_err("a database lies there");
    assert_eq!(refused.code(), "not_empty");
    assert!(refused.to_string().contains("highwater db restore"), "{refused}");
    let other = TestServer::start();
    let refused = bound(&disk, Path::new("/a.db"), &other).expect_err("bound elsewhere");
    assert!(refused.to_string().contains("bound_elsewhere"), "{refused}");
}

#[test]
fn a_stream_of_another_maker_is_neither_bound_nor_restored() {
    let (server, disk) = (TestServer::start(), disk());
    {
        let mut served = server.lock();
        served.exists = true;
        served.server.bytes =
            b"{\"somebody\":\"else's records, and more than a header's worth of them, to be sure\"}".to_vec();
    }
    assert_eq!(bound(&disk, Path::new("/a.db"), &server).expect_err("not ours").code(), "rejected");
    let refused = restore(&disk, &server.url, Path::new("/a.db"), client(), &mut |_| {}).expect_err("not ours");
    assert_eq!(refused.code(), "rejected");
    assert!(!disk.exists(Path::new("/a.db")).expect("a disk"));
    assert_eq!(server.lock().server.applied, 0);
}

#[test]
fn opening_and_committing_need_no_server_and_an_open_claims_nothing() {
    let (server, disk) = (TestServer::start(), disk());
    bound(&disk, Path::new("/a.db"), &server).expect("an empty stream");
    let requests = server.lock().requests.len();
    let database = open(&disk, Path::new("/a.db"));
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(server.lock().requests.len(), requests, "an open sends nothing");
    server.lock().faults = (0..3).map(|_| Fault::Refuse(Raw::plain(503, "NO_LEADER"))).collect();
    let started = Instant::now();
    database.commit(1, 1);
    assert!(started.elapsed() < Duration::from_millis(500), "a commit waits for nobody");
    database.synced();
    assert_eq!(database.engine.pending_bytes(), 0);
    database.engine.close();
}

#[test]
fn an_answer_that_breaks_off_is_unknown_and_the_repeat_applies_once() {
    let (server, disk) = (TestServer::start(), disk());
    bound(&disk, Path::new("/a.db"), &server).expect("an empty stream");
    let database = open(&disk, Path::new("/a.db"));
    database.synced();
    let applied = server.lock().server.applied;
    server.lock().faults = [Fault::Break, Fault::Stall(Duration::from_millis(800))].into();
    database.commit(1, 1);
    database.synced();
    database.commit(1, 2);
    database.synced();
    let served = server.lock();
    assert_eq!(served.server.applied, applied + 2, "each batch once");
    drop(served);
    database.engine.close();
}

#[test]
fn the_sql_timeout_is_a_signal_and_cancels_nothing() {
    let (server, disk) = (TestServer::start(), disk());
    bound(&disk, Path::new("/a.db"), &server).expect("an empty stream");
    let database = open(&disk, Path::new("/a.db"));
    server.lock().faults = (0..40).map(|_| Fault::Refuse(Raw::plain(503, "NO_LEADER"))).collect();
    database.commit(1, 1);
    database.commit(1, 2);
    let refused = database.replication.synced(Some(Duration::from_millis(40))).expect_err("no leader");
    let SyncedError::Timeout { commits: 3, waited_ms, trouble } = refused.clone() else { panic!("{refused:?}") };
    assert!(trouble.is_empty() || trouble.starts_with("retrying: "), "{trouble}");
    let text = format!("synced_timeout: 3 commits not acknowledged after {waited_ms} ms; replication goes on");
    let text = if trouble.is_empty() { text } else { format!("{text} ({trouble})") };
    assert_eq!((refused.to_string(), refused.code()), (text, "synced_timeout"));
    database.eventually("the refusals are seen", |database| database.condition() == Some("retrying"));
    server.lock().faults.clear();
    database.synced();
    assert_eq!(database.condition(), None);
    database.engine.close();
}

#[test]
fn a_token_file_that_is_replaced_resumes_without_a_restart() {
    let (server, disk) = (TestServer::start(), disk());
    bound(&disk, Path::new("/a.db"), &server).expect("an empty stream");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "old\n").expect("a file");
    server.lock().token = Some("new".to_owned());
    let options = Options { token: TokenSource::file(file.path()), ..client() };
    let database = open_with(&disk, Path::new("/a.db"), options);
    // The second refusal of one token would block for half a minute, so the server answers nothing before the file is
    // replaced. The wait lets the first request leave with the old token; without it nothing would be refused.
    let held = server.lock();
    database.commit(1, 1);
    std::thread::sleep(Duration::from_millis(200));
    std::fs::write(file.path(), "new, but spelled longer first\n").expect("a file");
    std::fs::write(file.path(), "new\n").expect("a file");
    drop(held);
    database.synced();
    database.engine.close();
}

#[test]
fn concurrent_callers_of_an_idle_database_share_their_round_trips() {
    let (server, disk) = (TestServer::start(), disk());
    bound(&disk, Path::new("/a.db"), &server).expect("an empty stream");
    let database = open(&disk, Path::new("/a.db"));
    database.synced();
    let reads = server.lock().server.reads;
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| database.synced());
        }
    });
    let cost = server.lock().server.reads - reads;
    assert!(cost < 32, "{cost} reads for 64 callers");
    database.engine.close();
}

#[test]
fn close_drains_for_a_while_and_push_sends_the_rest_later() {
    let (server, disk) = (TestServer::start(), disk());
    let path = Path::new("/a.db");
    bound(&disk, path, &server).expect("an empty stream");
    let database = open(&disk, path);
    database.synced();
    server.lock().faults = (0..500).map(|_| Fault::Refuse(Raw::plain(402, "PAYMENT_REQUIRED"))).collect();
    database.commit(1, 1);
    database.eventually("the refusal is seen", |database| database.condition() == Some("payment_required"));
    let started = Instant::now();
    database.engine.close();
    assert!(started.elapsed() < Duration::from_secs(2), "the next attempt comes too late to wait for");
    server.lock().faults.clear();
    let pushed = push(Arc::clone(&disk), path, client(), Some(Duration::from_secs(30)), &mut |_| {}).expect("a server");
    assert_eq!((pushed.commits, pushed.lsn), (1, 2));
    let again = push(Arc::clone(&disk), path, client(), None, &mut |_| {}).expect("nothing to do");
    assert_eq!(again.commits, 0);
}

#[test]
fn close_waits_for_what_was_just_committed() {
    let (server, disk) = (TestServer::start(), disk());
    let path = Path::new("/a.db");
    bound(&disk, path, &server).expect("an empty stream");
    for value in 0..10 {
        let database = open(&disk, path);
        if value % 2 == 0 {
            database.synced();
        }
        database.commit(3, value);
        assert!(database.replication.drain(Duration::from_secs(20)), "drained");
        database.engine.close();
        assert_eq!(server.lock().server.commits().1.len() as u64, 2 + value);
    }
}

#[test]
fn verify_finds_nothing_in_a_good_database_and_the_page_in_a_bad_one() {
    let (server, disk) = (TestServer::start(), disk());
    let path = Path::new("/a.db");
    bound(&disk, path, &server).expect("an empty stream");
    let database = open(&disk, path);
    database.commit(20, 1);
    database.synced();
    database.replication.stop();
    // This one stays pending: it is compared all the same.
    database.commit(5, 2);
    database.engine.close();
    let found = verify(&disk, path, &server.url, client(), &mut |_| {}).expect("a comparison");
    assert_eq!((found.different, found.acknowledged_lsn, found.lsn), (0, 2, 3));
    let left: Vec<_> = disk.list(Path::new("/a.db-highwater")).expect("a folder");
    assert!(left.iter().all(|name| !name.contains("verify")), "nothing of it is left: {left:?}");
    assert!(found.pages > 20);
    let applied = server.lock().server.applied;

    let file = disk.open(path, OpenMode::Write).expect("a file");
    let mut page = [0; 16];
    file.read_exact_at(&mut page, 9 * PAGE as u64).expect("page 10");
    page[0] ^= 1;
    let engine = Engine::open(Arc::clone(&disk), path, OpenOptions { timer: false, ..OpenOptions::default() });
    file.write_at(&page, 9 * PAGE as u64).expect("page 10");
    drop(engine.expect("a bound database"));
    match verify(&disk, path, &server.url, client(), &mut |_| {}) {
        Ok(found) => assert_eq!(found.different_pages, [10]),
        // Or the open itself finds that the file is not the one that was left.
        Err(error) => assert!(error.to_string().contains("checksum") || error.code() != "io", "{error}"),
    }
    assert_eq!(server.lock().server.applied, applied, "verifying writes nothing");
}

#[test]
fn a_damaged_stream_is_not_restored_and_leaves_nothing() {
    let (server, disk) = (TestServer::start(), disk());
    bound(&disk, Path::new("/a.db"), &server).expect("an empty stream");
    let database = open(&disk, Path::new("/a.db"));
    database.commit(20, 1);
    database.synced();
    database.engine.close();
    let middle = server.lock().server.bytes.len() / 2;
    server.lock().server.bytes[middle] ^= 1;
    let refused = restore(&disk, &server.url, Path::new("/b.db"), client(), &mut |_| {}).expect_err("damage");
    assert_eq!(refused.code(), "damaged");
    assert!(!disk.exists(Path::new("/b.db")).expect("a disk"));
    server.lock().server.bytes[middle] ^= 1;
    restore(&disk, &server.url, Path::new("/b.db"), client(), &mut |_| {}).expect("whole again");
}

#[test]
fn a_run_that_was_never_finished_is_left_out_of_a_restore() {
    let (server, disk) = (TestServer::start(), disk());
    bound(&disk, Path::new("/a.db"), &server).expect("an empty stream");
    let database = open(&disk, Path::new("/a.db"));
    database.synced();
    let applied = server.lock().server.applied;
    server.lock().faults.clear();
    database.commit(300, 1);
    database.synced();
    assert!(server.lock().server.applied > applied + 1, "a run of parts");
    database.engine.close();
    // The stream as it was before the run's last part came.
    let mut served = server.lock();
    let last = served.server.last_start();
    served.server.bytes.truncate(last);
    drop(served);
    let restored = restore(&disk, &server.url, Path::new("/b.db"), client(), &mut |_| {}).expect("a database");
    assert_eq!((restored.lsn, restored.incomplete), (1, true));
}

#[test]
fn status_has_the_names_that_are_promised() {
    let (server, disk) = (TestServer::start(), disk());
    bound(&disk, Path::new("/a.db"), &server).expect("an empty stream");
    let database = open(&disk, Path::new("/a.db"));
    server.lock().faults = [Fault::Refuse(Raw::plain(403, "FORBIDDEN"))].into();
    database.commit(1, 1);
    database.eventually("the refusal is seen", |database| database.condition() == Some("forbidden"));
    let status = database.replication.status_json();
    assert_eq!(status["replication"]["condition"], "forbidden");
    assert!(status["replication"]["since"].as_u64() > Some(1_500_000_000_000), "{status}");
    assert!(status["replication"]["retry_in_ms"].as_u64() <= Some(30_000));
    assert_eq!(status["replication"]["attempts"], 1);
    assert!(status["replication"]["last_error"].as_str().is_some_and(|text| text.contains("403 FORBIDDEN")));
    assert_eq!((&status["role"], &status["ownership"]["state"]), (&"claiming".into(), &"claiming".into()));
    assert_eq!(status["commits"]["pending"], 2);
    database.engine.close();
}

/// The disk fails for good while an acknowledgement is written down. Whoever waits without a timeout is told at once.
/// The status once showed the stop of which the replicator knew, and a commit that came right then was still taken.
#[test]
fn a_database_that_is_shown_as_stopped_takes_nothing_any_more() {
    let (server, disk) = (TestServer::start(), disk());
    let (first, second) = (Path::new("/a/app.db"), Path::new("/b/app.db"));
    bound(&disk, first, &server).expect("an empty stream");
    let old = open(&disk, first);
    old.commit(2, 1);
    old.synced();
    restore(&disk, &server.url, second, client(), &mut |_| {}).expect("a database");
    let new = open(&disk, second);
    new.commit(2, 2);
    new.synced();
    old.commit(2, 3);
    // Without a pause, so that the moment between the two is met if there is one.
    let started = Instant::now();
    while old.replication.snapshot().state != "stopped" {
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", old.replication.snapshot());
    }
    assert!(old.engine.admit_write().is_err(), "{:?}", old.replication.snapshot());
}

#[test]
fn a_caller_who_waits_without_a_timeout_is_told_that_the_disk_failed() {
    let server = TestServer::start();
    let sim = SimDisk::new(1);
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    bound(&disk, Path::new("/a.db"), &server).expect("an empty stream");
    let database = open(&disk, Path::new("/a.db"));
    database.synced();
    // The seal of the next batch can be written, its acknowledgement cannot.
    sim.fail(Operation::Write, "meta", 1, u64::MAX, EIO);
    database.commit(1, 1);
    let (told, tells) = channel();
    let waiting = Arc::clone(&database.replication);
    std::thread::spawn(move || told.send(waiting.synced(None)));
    let refused = tells.recv_timeout(Duration::from_secs(10)).expect("an answer").expect_err("a failed disk");
    assert_eq!(refused.code(), "log_failed");
    database.engine.close();
}
