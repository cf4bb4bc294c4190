//! A lock always bites: on a full disk, with a full log, and while its account writes as fast as it can.
//!
//! Source: docs/adr/0010-room-for-locks.md.

mod support;

use highwater_disk::SimDisk;
use highwater_disk::sim::{EIO, Operation};
use highwater_host::{Change, Pending, Unsettled, WriteRefused, Written};
use highwater_pds::AccountId;
use support::{Server, SetClock, batch, options, put};

type Writing = Pending<Result<Written, WriteRefused>>;

/// Why there is no room.
#[derive(Debug, Clone, Copy)]
enum Room {
    /// The disk takes no further segment.
    DiskFull,
    /// No checkpoint can be made, and the log has reached its limit.
    LogFull,
}

fn server(room: Room) -> (Server, Vec<AccountId>) {
    let mut kept = options();
    if matches!(room, Room::LogFull) {
        kept.log.log_bytes_max = 4 * kept.log.segment_bytes;
    }
    let mut server = Server::with(&SimDisk::new(21), &SetClock::new(), kept);
    let accounts: Vec<_> = (0..12).map(|_| server.account()).collect();
    accounts.iter().for_each(|account| drop(server.put(*account, "a", "one")));
    match room {
        Room::DiskFull => server.disk.set_capacity(Some(server.disk.used_bytes())),
        Room::LogFull => server.disk.fail(Operation::Write, "/store/", 0, 1_000_000, EIO),
    }
    (server, accounts)
}

/// Hands over four writes of an account, of so many bytes.
fn four(server: &Server, account: AccountId, round: u64, bytes: usize) -> Vec<Writing> {
    let writes = (0..4).map(|n| put(&format!("r{round}-{n}"), &"z".repeat(bytes)));
    writes.map(|write| server.host.write(account, batch(vec![write]))).collect()
}

/// Four writes at a time, until none of four is taken.
fn fill(server: &mut Server, account: AccountId, bytes: usize) {
    for round in 0..10_000 {
        let mut writing = four(server, account, round, bytes);
        server.worker.run_once();
        let answers: Vec<_> = writing.iter_mut().map(|write| write.try_take().expect("an answer")).collect();
        if answers.iter().all(Result::is_err) {
            assert!(answers.contains(&Err(WriteRefused::Unsettled(Unsettled::Full))), "{answers:?}");
            return;
        }
    }
    panic!("there is no room at some time");
}

/// What one batch took before the last of it was judged was not counted, and the room for locks was gone.
#[test]
fn a_batch_of_writes_does_not_use_up_the_room_that_is_kept_for_locks() {
    for room in [Room::DiskFull, Room::LogFull] {
        for bytes in [30_000, 200] {
            let (mut server, accounts) = server(room);
            fill(&mut server, accounts[0], bytes);
            for account in accounts {
                let pending = server.host.change(account, Change::Lock);
                assert_eq!(server.settle(pending), Ok(true), "{room:?}, {bytes}");
                assert!(server.host.head(account).is_err());
            }
        }
    }
}

/// A lock that was built on a write which found no room was answered "try again", and nobody tried again.
#[test]
fn a_lock_bites_while_its_account_keeps_four_writes_in_flight_and_there_is_no_room() {
    for room in [Room::DiskFull, Room::LogFull] {
        for change in [Change::Lock, Change::TakeDown, Change::Erase, Change::Decommission] {
            let (mut server, accounts) = server(room);
            let agent = accounts[1];
            fill(&mut server, accounts[0], 9_000);
            let mut writing = four(&server, agent, 0, 9_000);
            let mut locking = server.host.change(agent, change);
            let mut answer = None;
            for round in 1..50 {
                server.worker.run_once();
                // Whoever is refused tries again at once.
                writing.retain_mut(|write| write.try_take().is_none());
                writing.extend(four(&server, agent, round, 9_000));
                answer = answer.or_else(|| locking.try_take());
            }
            assert_eq!(answer, Some(Ok(true)), "{room:?}, {change:?}");
            assert!(server.host.head(agent).is_err());
        }
    }
}

/// The queue of turns has a bound of bytes, which large writes reach.
#[test]
fn a_lock_is_handed_over_however_much_waits() {
    let (mut server, accounts) = server(Room::LogFull);
    let mut writing: Vec<Writing> = Vec::new();
    let busy = |write: &mut Writing| write.try_take() == Some(Err(WriteRefused::Unsettled(Unsettled::Busy)));
    for round in 0.. {
        let mut write = server.host.write(accounts[0], batch(vec![put(&format!("k{round}"), &"z".repeat(900_000))]));
        if busy(&mut write) {
            break;
        }
        writing.push(write);
        assert!(round < 1_000, "there is an end to it");
    }
    let pending = server.host.change(accounts[1], Change::Lock);
    assert_eq!(server.settle(pending), Ok(true));
}
