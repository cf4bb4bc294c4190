//! A server of accounts from day to day: locks, kills, restarts.

use super::consumer::Consumer;
use super::{create, get, newest, operate};
use crate::bed::{Server, folder, highwater, highwater_with};
use highwater_consumer::follower::Output;

/// Every start used to tell relays of every account, and each such frame counts for a relay's limit.
#[test]
fn a_restart_where_nothing_changed_puts_no_frame_on_the_wire() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let account = create(&server, &[]);
    account.write(&server, "one", "one");
    let mut consumer = Consumer::new(&server);
    consumer.connect();
    consumer.read_to(newest(&server));
    let before = newest(&server);
    server.terminate();
    server.restart();
    assert_eq!(newest(&server), before);
    server.kill();
    server.restart();
    assert_eq!(newest(&server), before, "nor after a death");
    let told = consumer.found.len();
    consumer.connect();
    assert!(consumer.is_quiet(), "{:?}", &consumer.found[told..]);
    account.write(&server, "two", "two");
    consumer.read_to(before + 1);
    assert!(matches!(consumer.found[told], Output::Committed { sequence, .. } if sequence == before + 1));
}

/// A token is good for two hours, and a lock is for now.
#[test]
fn a_lock_bites_at_once_and_a_lift_tells_from_where_the_account_goes_on() {
    let folder = folder();
    let server = Server::start(folder.path());
    let account = create(&server, &["--handle", "Agent-Seven"]);
    assert_eq!(account.handle, "agent-seven.localhost");
    account.write(&server, "one", "one");
    let mut consumer = Consumer::new(&server);
    consumer.connect();
    let locked = operate(&server, &["account", "lock", &account.handle]);
    assert_eq!((locked["state"].as_str(), locked["position"]["status"].as_str()), (Some("locked"), Some("suspended")));
    assert_eq!(locked["position"], locked["announced"]);
    let (status, said) = account.try_write(&server, "two", "two");
    assert!((400..500).contains(&status), "{said}");
    for method in ["com.atproto.sync.getRepo", "com.atproto.sync.getLatestCommit"] {
        let (status, said) = get(&server, &format!("{method}?did={}", account.query()));
        assert_eq!((status, said["error"].as_str()), (400, Some("RepoSuspended")), "{method}");
    }
    let (_, told) = get(&server, &format!("com.atproto.sync.getRepoStatus?did={}", account.query()));
    assert_eq!((&told["active"], &told["status"]), (&false.into(), &"suspended".into()));
    consumer.read_to(newest(&server));
    assert_eq!(consumer.position(&account.did), (false, Some("suspended")));
    operate(&server, &["account", "lift", &account.did]);
    account.write(&server, "two", "two");
    consumer.read_to(newest(&server));
    assert_eq!(consumer.position(&account.did), (true, None));
    assert_eq!(consumer.holds(&account.did).0.len(), 2);
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill_and_no_consumer_saw_what_is_not() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let account = create(&server, &[]);
    let mut consumer = Consumer::new(&server);
    let mut written = 0;
    for round in 0..4 {
        consumer.connect();
        for _ in 0..8 {
            account.write(&server, &format!("note-{written}"), &format!("round {round}"));
            written += 1;
        }
        consumer.read_to(newest(&server));
        server.kill();
        server.restart();
        for number in 0..written {
            assert!(account.note(&server, &format!("note-{number}")).is_some(), "note {number} was acknowledged");
        }
    }
    consumer.connect();
    account.write(&server, "last", "last");
    consumer.read_to(newest(&server));
    assert_eq!(consumer.holds(&account.did).0.len(), written + 1);
    let torn = consumer.found.iter().any(|found| matches!(found, Output::Desynchronized { .. }));
    assert!(!torn, "no death broke a chain");
}

#[test]
fn an_erasure_asks_first_and_is_for_good() {
    let folder = folder();
    let server = Server::start(folder.path());
    let account = create(&server, &["--handle", "gone"]);
    let url = super::base(&server);
    let erase = ["pds", "account", "erase", &account.handle, "--url", &url];
    highwater_with(erase, b"no\n").fails(1, &["for good", "nothing was erased"]);
    assert_eq!(highwater_with(erase, format!("{}\n", account.handle).as_bytes()).status, 0);
    let listed = operate(&server, &["account", "list"]);
    assert_eq!(listed["accounts"][0]["state"], "erased");
    let (_, told) = get(&server, &format!("com.atproto.sync.getRepoStatus?did={}", account.query()));
    assert_eq!(told["status"], "deleted");
    highwater(["pds", "account", "lift", &account.did, "--url", &url]).fails(1, &["ACCOUNT_STATE"]);
    highwater(["pds", "account", "create", "--handle", "gone", "--url", &url]).fails(1, &["ALREADY_EXISTS"]);
    highwater(["pds", "account", "lock", "nobody", "--url", &url]).fails(3, &["ACCOUNT_NOT_FOUND"]);
    highwater(["pds", "account", "create", "--handle", "a.b.c", "--url", &url]).fails(1, &["INVALID_REQUEST"]);
}
