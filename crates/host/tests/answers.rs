//! No answer rests on what a power cut can undo, refusals least of all: whoever was told of them acts on them.

mod support;

use highwater_disk::sim::Operation;
use highwater_host::{Change, Host, NewAccount, Pending, Refused, Unserved, Unsettled, WriteBatch, WriteRefused};
use highwater_pds::{AccountId, Fact, Status, credentials};
use support::{Server, batch, new_account, put};

/// Something that is asked while what it is judged by is on its way into the log.
type Asking = fn(&Host, AccountId) -> Waiting;

/// An answer that is still to come.
type Waiting = Box<dyn FnMut() -> Option<Answer>>;

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Changed(Result<bool, Refused>),
    Fact(Result<(), Refused>),
    Written(Result<bool, WriteRefused>),
}

fn waiting<T: 'static>(mut pending: Pending<T>, answer: fn(T) -> Answer) -> Waiting {
    Box::new(move || pending.try_take().map(answer))
}

fn change<const N: usize>(host: &Host, account: AccountId) -> Waiting {
    const CHANGES: [Change; 4] = [Change::Lock, Change::Deactivate, Change::Erase, Change::Decommission];
    waiting(host.change(account, CHANGES[N]), Answer::Changed)
}

const LOCK: usize = 0;
const DEACTIVATE: usize = 1;
const ERASE: usize = 2;
const DECOMMISSION: usize = 3;

fn password(host: &Host, account: AccountId) -> Waiting {
    let change = credentials::Change::Password("hash".into());
    waiting(host.fact(account, Fact::Credentials(account, change)), Answer::Fact)
}

fn resync(host: &Host, account: AccountId) -> Waiting {
    waiting(host.resync(account), Answer::Fact)
}

fn write(host: &Host, account: AccountId) -> Waiting {
    waiting(host.write(account, batch(vec![put("b", "two")])), |written| {
        Answer::Written(written.map(|written| written.commit.is_some()))
    })
}

/// A write that names the newest durable commit, which is not the newest one any more.
fn swapping(host: &Host, account: AccountId) -> Waiting {
    let swap_commit = host.head(account).ok().map(|head| head.commit);
    let pending = host.write(account, WriteBatch { writes: vec![put("c", "three")], swap_commit });
    waiting(pending, |written| Answer::Written(written.map(|written| written.commit.is_some()).map_err(hide)))
}

/// Which commit is there now is of no matter here.
fn hide(refused: WriteRefused) -> WriteRefused {
    match refused {
        WriteRefused::SwapCommit { .. } => WriteRefused::SwapCommit { commit: None },
        other => other,
    }
}

fn cases() -> Vec<(&'static str, Asking, Asking, Answer)> {
    let turn = |refused| Refused::Turn(refused);
    vec![
        ("lock, erased", change::<ERASE>, change::<LOCK>, Answer::Changed(Err(turn(highwater_pds::Refused::Erased)))),
        ("fact, erased", change::<ERASE>, password, Answer::Fact(Err(turn(highwater_pds::Refused::Erased)))),
        (
            "resync, locked",
            change::<LOCK>,
            resync,
            Answer::Fact(Err(turn(highwater_pds::Refused::Inactive(Status::Suspended)))),
        ),
        (
            "deactivate, decommissioned",
            change::<DECOMMISSION>,
            change::<DEACTIVATE>,
            Answer::Changed(Err(turn(highwater_pds::Refused::Decommissioned))),
        ),
        ("lock, locked", change::<LOCK>, change::<LOCK>, Answer::Changed(Ok(false))),
        (
            "write, locked",
            change::<LOCK>,
            write,
            Answer::Written(Err(WriteRefused::Account(Unserved::Inactive(Status::Suspended)))),
        ),
        ("write, written", write, write, Answer::Written(Ok(false))),
        ("swap, written", write, swapping, Answer::Written(Err(WriteRefused::SwapCommit { commit: None }))),
    ]
}

/// Told "it is erased" by a server that then lost power, an operator took the account for gone; it came back with the next start.
#[test]
fn a_refusal_waits_until_what_it_was_judged_by_is_durable() {
    for (seed, (name, first, then, expected)) in cases().into_iter().enumerate() {
        let mut server = Server::new(seed as u64);
        let account = server.account();
        server.put(account, "a", "one");
        let (mut first, mut then) = (first(&server.host, account), then(&server.host, account));
        assert_eq!(then(), None, "{name}: answered before the log was synced");
        server.worker.run_once();
        assert!(first().is_some(), "{name}");
        assert_eq!(then(), Some(expected), "{name}");
    }
}

#[test]
fn a_refusal_whose_grounds_are_lost_is_none() {
    for (seed, (name, first, then, expected)) in cases().into_iter().enumerate() {
        let mut server = Server::new(100 + seed as u64);
        let account = server.account();
        server.put(account, "a", "one");
        let row = server.host.state(|state| state.accounts[&account].clone());
        let (_first, mut then) = (first(&server.host, account), then(&server.host, account));
        server.disk.fail_next(Operation::Sync, "/log/");
        server.worker.run_once();
        let answer = then().expect("an answer");
        let stopped = match &answer {
            Answer::Changed(Err(Refused::Unsettled(why))) | Answer::Fact(Err(Refused::Unsettled(why))) => Some(why),
            Answer::Written(Err(WriteRefused::Unsettled(why))) => Some(why),
            _ => None,
        };
        assert!(matches!(stopped, Some(Unsettled::Stopped(_))), "{name}: {answer:?} rather than {expected:?}");
        assert_eq!(server.host.state(|state| state.accounts[&account].clone()), row, "{name}");
    }
}

fn named(server: &Server, label: &str) -> NewAccount {
    let handle = server.host.zone().handle(&format!("{label}.pds.example")).expect("a handle");
    NewAccount { handle: Some(handle), ..new_account() }
}

/// A handle was refused as taken, and the account that had it was lost with the power.
#[test]
fn a_handle_is_taken_once_its_account_is_durable() {
    let mut server = Server::new(7);
    let first = server.host.create_account(named(&server, "otter"));
    let mut second = server.host.create_account(named(&server, "otter"));
    assert!(second.try_take().is_none(), "the account that has the handle is on its way");
    assert!(server.settle(first).is_ok());
    assert!(matches!(server.settle(second), Err(Refused::Taken(_))));
    let mut third = server.host.create_account(named(&server, "otter"));
    assert!(matches!(third.try_take(), Some(Err(Refused::Taken(_)))), "it is durable now");
}

#[test]
fn a_handle_of_an_account_that_found_no_space_is_not_taken() {
    let mut server = Server::new(8);
    server.account();
    server.disk.set_capacity(Some(server.disk.used_bytes()));
    for n in 0..2_000 {
        let [first, second] = [0, 1].map(|_| server.host.create_account(named(&server, &format!("otter{n}"))));
        let (first, second) = (server.settle(first), server.settle(second));
        if first.is_err() {
            assert_eq!(first, Err(Refused::Unsettled(Unsettled::Full)), "after {n}");
            assert_eq!(second, Err(Refused::Unsettled(Unsettled::Overtaken)), "after {n}");
            return;
        }
        assert!(matches!(second, Err(Refused::Taken(_))), "{second:?}");
    }
    panic!("the disk is full at some time");
}
