//! What must not grow: the memory that accounts take while they are written to, and when they rest.
//!
//! Memory is counted for the whole process, so that this program has one test.

#[path = "../../node/tests/bounds/counting.rs"]
#[allow(dead_code)]
mod counting;
mod support;

use highwater_base::Clock;
use highwater_base::random::SplitMix;
use highwater_disk::OsDisk;
use highwater_host::{Host, Options, RecordWrite, Seams, Worker};
use highwater_pds::AccountId;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use support::{SetClock, batch, new_account, put};

/// Accounts that are written to.
const ACCOUNTS: usize = 100;
/// Bytes of one under load. Source: docs/results/measurements.md, "Many accounts".
const LOADED_BYTES_MAX: i64 = 100_000;
/// Bytes of one that was written to and rests again, beyond what it takes after a start.
const RESTED_BYTES_MAX: i64 = 6_000;

/// A server on the operating system's disk, whose files are no memory of the program's.
struct Server {
    host: Host,
    worker: Worker,
    clock: Arc<SetClock>,
}

impl Server {
    fn open(directory: &Path, memory_bytes_max: u64) -> Self {
        let clock = SetClock::new();
        let mut options = Options { memory_bytes_max, ..Options::new(directory, "pds.example") };
        options.log.segment_bytes = 16 << 20;
        let seams = Seams {
            disk: Arc::new(OsDisk::new()),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            random: Box::new(SplitMix::new(1)),
            sealer: None,
        };
        let (host, worker, _) = Host::open(options, seams).expect("it opens");
        Self { host, worker, clock }
    }

    fn accounts(&mut self, count: usize) -> Vec<AccountId> {
        let pending: Vec<_> = (0..count).map(|_| self.host.create_account(new_account())).collect();
        self.worker.run_once();
        pending.into_iter().map(|mut pending| pending.try_take().expect("an answer").expect("an account")).collect()
    }

    /// One commit of each account, in one batch of the log.
    fn write(&mut self, accounts: &[AccountId], writes: impl Fn() -> Vec<RecordWrite>) {
        let pending: Vec<_> = accounts.iter().map(|account| self.host.write(*account, batch(writes()))).collect();
        self.worker.run_once();
        for mut pending in pending {
            pending.try_take().expect("an answer").expect("written");
        }
    }

    /// Looks after the memory, as it does each second.
    fn rest(&mut self) {
        self.clock.advance(1_500);
        self.worker.run_once();
    }

    /// Bytes that the program holds, without the frames in memory, which are bounded for all accounts together.
    fn held(&self) -> i64 {
        counting::held() - self.host.status().ring.bytes as i64
    }
}

fn records(keys: Range<usize>, bytes: usize) -> Vec<RecordWrite> {
    keys.map(|key| put(&format!("key{key:06}"), &format!("{key} {}", "x".repeat(bytes)))).collect()
}

/// What a commit made was kept until the next one of its account: two megabytes of it for each account that had written once,
/// and no limit counted them.
fn what_was_written_is_not_held_once_it_is_durable(folder: &Path) {
    let mut server = Server::open(&folder.join("large"), 64 << 20);
    // Buffers of the log are there for whoever writes next.
    let (others, accounts) = (server.accounts(10), server.accounts(10));
    server.write(&others, || records(0..100, 4_000));
    server.write(&accounts, || records(0..1, 10));
    server.rest();
    let before = server.held();
    server.write(&accounts, || records(1..101, 4_000));
    server.rest();
    let each = (server.held() - before) / accounts.len() as i64;
    println!("400 kB in one commit: {each} B are held of each account");
    assert!(each <= LOADED_BYTES_MAX, "{each} B");
}

fn an_account_takes_little_under_load_and_nearly_nothing_at_rest(folder: &Path) {
    let mut server = Server::open(&folder.join("many"), 64 << 20);
    let first = server.accounts(2);
    server.write(&first, || records(0..100, 150));
    server.rest();
    let before = server.held();
    let accounts = server.accounts(ACCOUNTS);
    let made = (server.held() - before) / ACCOUNTS as i64;
    server.write(&accounts, || records(0..100, 150));
    for key in 100..110 {
        server.write(&accounts, || records(key..key + 1, 150));
    }
    let loaded = (server.held() - before) / ACCOUNTS as i64;
    server.rest();
    let told = server.host.status().memory_bytes / ACCOUNTS as u64;
    println!("an account: {made} B when it is new, {loaded} B under load, of which the status tells {told} B");
    assert!(loaded <= LOADED_BYTES_MAX, "{loaded} B");
    drop((server, accounts));
    // The same with room for nothing.
    let mut server = Server::open(&folder.join("many"), 0);
    server.rest();
    let before = server.held();
    let accounts: Vec<AccountId> = server.host.state(|state| state.accounts.keys().copied().collect());
    server.write(&accounts, || records(200..201, 150));
    server.rest();
    server.write(&accounts, || records(201..202, 150));
    server.rest();
    let rested = (server.held() - before) / accounts.len() as i64;
    println!("at rest {rested} B more than after a start");
    assert!(rested <= RESTED_BYTES_MAX, "{rested} B");
}

#[test]
fn an_account_takes_at_most_100_kb() {
    let folder = tempfile::tempdir().expect("a folder");
    what_was_written_is_not_held_once_it_is_durable(folder.path());
    an_account_takes_little_under_load_and_nearly_nothing_at_rest(folder.path());
}
