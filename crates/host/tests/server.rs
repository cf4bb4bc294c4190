//! A server as its callers see it.

mod support;

use highwater_host::{Action, List, WriteRefused};
use highwater_repo::write::WriteError;
use support::{Server, drain, put, record, write_of};

#[test]
fn what_was_written_is_read_listed_proven_and_streamed_and_survives() {
    let mut server = Server::new(1);
    let account = server.account();
    let mut live = server.host.subscribe(None).expect("subscribed");
    assert!(live.take().is_none());
    for n in 0..50 {
        server.put(account, &format!("key{n:03}"), &format!("text {n}"));
    }
    assert_eq!(drain(&mut live).len(), 50);
    // #identity, #account, the first #commit, and fifty more.
    let frames = server.frames();
    assert_eq!(frames.len(), 53);
    for round in 0..3 {
        server = if round == 1 { server.restart() } else { server.crash() };
        assert_eq!(server.boot.frames, 0);
        assert_eq!(server.frames(), frames);
        assert_eq!(server.text(account, "key007"), Some(record("text 7")));
        assert_eq!(server.text(account, "other"), None);
        let list = List {
            collection: "app.example.note".into(),
            behind: Some("key010".into()),
            limit: 3,
            bytes_max: usize::MAX,
            ascending: true,
        };
        let keys: Vec<_> =
            server.host.list(account, &list).expect("listed").records.into_iter().map(|row| row.rkey).collect();
        assert_eq!(keys, ["key011", "key012", "key013"]);
        assert_eq!(server.host.collections(account, 10), Ok(vec!["app.example.note".to_owned()]));
        assert!(server.host.proof(account, "app.example.note/key007").expect("a proof").len() > 300);
    }
}

/// An import of 5,000 records cost a relay 5,000 events elsewhere (bluesky-social/pds#341).
#[test]
fn five_thousand_records_in_batches_cost_twenty_five_frames() {
    let mut server = Server::new(4);
    let account = server.account();
    let before = server.host.status().seq;
    for batch in 0..25 {
        let write = |n| write_of(Action::Create, &format!("k{batch:02}{n:03}"), Some(record("text")));
        server.write(account, (0..200).map(write).collect());
    }
    assert_eq!(server.host.status().seq - before, 25);
    assert_eq!(server.text(account, "k24199"), Some(record("text")));
}

#[test]
fn a_put_of_what_is_there_makes_no_commit_and_no_frame() {
    let mut server = Server::new(2);
    let account = server.account();
    let first = server.put(account, "a", "one");
    let frames = server.frames().len();
    let again = server.put(account, "a", "one");
    assert_eq!((again.commit, &again.results), (None, &first.results));
    assert_eq!(server.frames().len(), frames);
    assert!(server.put(account, "a", "two").commit.is_some());
    let refused = server.try_write(account, vec![write_of(Action::Create, "a", Some(record("three")))]);
    assert!(matches!(refused, Err(WriteRefused::Write(WriteError::Exists(_)))), "{refused:?}");
    let removed = server.write(account, vec![write_of(Action::Remove, "b", None)]);
    assert_eq!(removed.commit, None);
}

#[test]
fn turns_of_one_account_are_built_before_the_ones_before_them_are_durable() {
    let mut server = Server::new(3);
    let account = server.account();
    let mut pending: Vec<_> =
        (0..40).map(|n| server.host.write(account, support::batch(vec![put(&format!("key{n:03}"), "text")]))).collect();
    assert!(pending.iter_mut().all(|pending| pending.try_take().is_none()));
    assert_eq!(server.text(account, "key000"), None);
    server.worker.run_once();
    let mut last = None;
    for mut pending in pending {
        let written = pending.try_take().expect("an answer").expect("written");
        let (_, rev) = written.commit.expect("a commit");
        assert!(last < Some(rev));
        last = Some(rev);
    }
    assert_eq!(server.text(account, "key039"), Some(record("text")));
    assert_eq!(server.crash().frames().len(), 43);
}
