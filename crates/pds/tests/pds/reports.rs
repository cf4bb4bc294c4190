//! What went wrong elsewhere, and is reported in public.

use crate::server::{Server, did, follower, key};
use highwater_consumer::frame::{CommitFrame, Frame};
use highwater_pds::lifecycle::{Announce, Change};
use highwater_pds::restore::Marker;
use highwater_pds::{AccountId, Record, Sequence, State, turn};
use highwater_repo::write::{self, Write, stage};
use highwater_repo::{Tid, Tree};
use std::collections::BTreeMap;

fn commits(server: &Server) -> Vec<CommitFrame> {
    let frames = server.directory.events.iter().map(|sent| Frame::decode(sent.frame.clone()).expect("a frame"));
    frames
        .filter_map(|frame| match frame {
            Frame::Commit(frame) => Some(frame),
            _ => None,
        })
        .collect()
}

/// indigo#1133 and #1185: after a restart with an empty newest log file a relay numbered from low again, and its consumers passed over
/// everything that came. Here the floor is the largest that any source knows: the log, what was stored of it, and the file beside it.
#[test]
fn an_empty_newest_log_file_does_not_set_the_numbers_back() {
    let mut server = Server::new();
    server.create("a", Some(Announce::OnActivation));
    server.checkpoint();
    server.write("a", "x", 1).expect("written");
    let newest = server.state.sequence.ceiling();
    // A clean stop copied the ceiling beside the log; then everything behind the checkpoint is gone.
    server.directory.floor = newest;
    server.directory.log.clear();
    server.boot().expect("it lives");
    assert_eq!(server.state.sequence.ceiling(), newest);
    server.change("a", Change::Lock).expect("locked");
    let first = server.directory.events.last().expect("a frame").seq;
    assert!(first > newest, "{first} was given before");
    // What was lost is a gap, also after the next start.
    for _ in 0..2 {
        assert!(server.subscribe(Some(newest)).1.len() == 1);
        assert_eq!(server.state.sequence.gap(newest), Some(newest));
        server.checkpoint();
        server.boot().expect("it lives");
    }
}

/// cocoon, pull request 111: numbers were kept in memory alone and began anew with each start, and revisions of 12 characters were signed
/// into commits for good. Here numbers follow from the log, and a revision cannot be written in another length.
#[test]
fn numbers_go_on_after_restarts_and_revisions_have_thirteen_characters() {
    let mut server = Server::new();
    server.create("a", Some(Announce::OnActivation));
    for number in 0..5 {
        server.write("a", "x", number).expect("written");
        // Numbers that were handed to a log without room are not given again in this run, nor by the next one to something else that
        // anybody saw.
        server.full = true;
        server.write("a", "y", number).expect("refused");
        server.full = false;
        server.boot().expect("it lives");
    }
    let seqs: Vec<u64> = server.directory.events.iter().map(|sent| sent.seq).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
    for commit in commits(&server) {
        assert_eq!(commit.rev.to_string().len(), 13);
    }
}

/// atproto#3580: three commits of an account went out as first, third, second, because numbers were taken before the order of the log was
/// known. Here a turn has no number until it is handed to the log, whatever the order in which turns were built.
#[test]
fn frames_are_numbered_in_the_order_of_the_log() {
    let (mut tree, mut drafts, blocks) = (Tree::new(), Vec::new(), BTreeMap::new());
    let signing = key(AccountId(1));
    let mut server = Server::new();
    server.create("a", Some(Announce::OnActivation));
    server.create("b", Some(Announce::OnActivation));
    let (mut account, other) = (server.account("a").clone(), server.account("b").clone());
    for number in 0..3 {
        let change = write::Change::Create(crate::server::record(number));
        let staged =
            stage(&tree, &[Write { path: format!("com.example.kind/{number}"), change }], &blocks).expect("staged");
        let rev = server.signer(&signing).rev(&account, server.now);
        let prepared = staged.commit(account.did.clone(), rev, &signing);
        let draft = turn::commit(&account, &prepared, Vec::new(), None, server.now).expect("it may write");
        // The next one is built on this one, long before it is durable.
        account.advance(&draft);
        tree = prepared.tree;
        drafts.push(draft);
    }
    // Built last, and handed over in between.
    let block = server.directory.blocks[&other.head.expect("one").commit].clone();
    drafts.insert(1, highwater_pds::boot::resync(&other, &block, server.now).expect("it is live"));
    for draft in &drafts {
        server.append(draft).expect("it lives");
    }
    assert_eq!(server.account("a"), &account, "what was built on is what became of it");
    let chain: Vec<(u64, Option<Tid>, Tid)> = commits(&server)
        .into_iter()
        .filter(|commit| commit.did == did("a"))
        .map(|commit| (commit.sequence, commit.since, commit.rev))
        .collect();
    assert_eq!(chain.len(), 4);
    for pair in chain.windows(2) {
        assert!(pair[0].0 < pair[1].0);
        assert_eq!(pair[1].1, Some(pair[0].2), "each commit names the one before it");
    }
}

/// cirrus#169: prevData was left out, and a strict relay froze the repository for 106 days. Here every commit but an account's first
/// names the data before it, after restarts, locks and restores too, and
/// where frames found no room.
#[test]
fn every_commit_but_the_first_names_the_data_before_it() {
    let mut server = Server::new();
    server.create("a", Some(Announce::OnActivation));
    server.create("b", Some(Announce::OnFirstWrite));
    let mut follower = follower();
    for round in 0..4 {
        server.write("a", "x", round).expect("written");
        server.write("b", "x", round).expect("written");
        match round {
            0 => drop(server.boot().expect("it lives")),
            1 => {
                server.change("a", Change::Lock).expect("locked");
                server.change("a", Change::Lift).expect("lifted");
            }
            2 => {
                server.directory.marker = Some(Marker::default());
                server.boot().expect("it lives");
            }
            _ => {
                server.full = true;
                server.change("a", Change::Lock).expect("locked");
                server.change("a", Change::Lift).expect("lifted");
                server.full = false;
            }
        }
        server.write("a", "y", round).expect("written");
        // Its follower drops whatever does not follow from what it holds.
        let found = server.follow(&mut follower);
        let lost: Vec<_> = found
            .iter()
            .filter(|output| matches!(output, highwater_consumer::follower::Output::Desynchronized { .. }))
            .collect();
        assert!(round == 0 || lost.is_empty(), "{lost:?}");
    }
    for name in ["a", "b"] {
        let chain: Vec<_> = commits(&server).into_iter().filter(|commit| commit.did == did(name)).collect();
        let first = usize::from(name == "a");
        assert_eq!(chain.iter().filter(|commit| commit.previous_data.is_none()).count(), first, "{name}");
        assert!(chain.iter().skip(first).all(|commit| commit.since.is_some() && commit.previous_data.is_some()));
    }
}

/// Numbers of a log that was cut behind its last whole record are given to other frames, which nobody saw: frames leave once they are
/// durable. What was seen never comes again under another meaning.
#[test]
fn a_number_that_nobody_saw_may_be_given_again_after_a_crash_and_none_that_anybody_saw() {
    let mut server = Server::new();
    server.create("a", Some(Announce::OnActivation));
    let mut sequence: Sequence = server.state.sequence.clone();
    let torn = highwater_pds::lifecycle::decide(
        server.account("a"),
        Change::Lock,
        &server.signer(&key(AccountId(1))),
        server.now,
    );
    let draft = torn.expect("it may").expect("something to do").draft;
    let payload = draft.number(&mut sequence).expect("there are numbers");
    assert!(Record::decode(payload.slice(..payload.len() - 1)).is_err(), "a torn record is none");
    server.boot().expect("it lives");
    assert_ne!(server.state, State::default());
    server.change("a", Change::Lock).expect("locked");
    assert_eq!(server.directory.events.last().expect("a frame").seq, 4);
}
