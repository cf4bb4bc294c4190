//! The group of keys, accounts and plans beside those of the streams.

use crate::harness::{Host, config};
use highwater_base::{Digest, Millis};
use highwater_control::{CreateKey, KeyId, Operation, Outcome, Refusal, Scope, View};
use highwater_disk::{Disk, OpenMode};
use highwater_node::api::GroupState;
use highwater_node::shard::{Answer, Input, Proposal};
use highwater_node::solo::Solo;
use highwater_node::{ControlAnswer, Durability};
use std::path::Path;
use std::sync::Arc;

const ADMIN: KeyId = id(1);
const READER: KeyId = id(2);

const fn id(number: u64) -> KeyId {
    KeyId::new(number)
}

fn create(id: KeyId, scope: Scope) -> Operation {
    Operation::CreateKey(CreateKey {
        id,
        secret: Digest::of(b"secret"),
        scopes: [scope].into_iter().collect(),
        prefixes: Vec::new(),
        account: None,
        expires: None,
        note: String::new(),
        request: None,
    })
}

fn change(host: &mut Host, operation: Operation) -> ControlAnswer {
    let token = host.token();
    let proposal = Proposal::control(Millis(5_000), operation);
    match host.ask(token, Input::Write { token, proposal }) {
        Some(Answer::Control(Ok(answer))) => answer,
        other => panic!("a change was answered with {other:?}"),
    }
}

fn view(host: &mut Host) -> Arc<View> {
    Arc::clone(host.node().control().expect("it serves"))
}

/// Two keys, of which one was revoked.
fn with_keys(host: &mut Host) {
    for (id, scope) in [(ADMIN, Scope::Admin), (READER, Scope::Read)] {
        change(host, create(id, scope)).result.expect("made");
    }
    change(host, Operation::RevokeKey { id: READER, last: false }).result.expect("revoked");
}

fn check(view: &View) {
    assert!(view.is_keyed());
    assert_eq!(view.recheck(ADMIN, Millis(9_000)), Ok(()));
    assert!(view.recheck(READER, Millis(9_000)).is_err(), "a key that was revoked is taken again");
}

#[test]
fn a_change_is_published_before_it_is_acknowledged() {
    let mut host = Host::serving(1);
    assert!(!view(&mut host).is_keyed(), "published as soon as it serves");
    let token = host.token();
    let proposal = Proposal::control(Millis(1), create(ADMIN, Scope::Admin));
    host.node().turn([Input::Write { token, proposal }]);
    assert!(!view(&mut host).is_keyed() && host.answer(token).is_none(), "neither before it is durable");
    host.node().sync();
    assert!(view(&mut host).is_keyed());
    let Some(Answer::Control(Ok(ControlAnswer { result: Ok(Outcome::Key(key)), durability }))) = host.answer(token)
    else {
        panic!("it is durable and not answered")
    };
    assert_eq!((key.id, durability), (ADMIN, Durability { synced: 1, of: 1 }));
    let refused = change(&mut host, Operation::RevokeKey { id: READER, last: false });
    assert_eq!(refused.result, Err(Refusal::KeyNotFound));
}

#[test]
fn a_revoked_key_stays_revoked_through_power_failures_and_checkpoints() {
    let mut host = Host::serving(2);
    with_keys(&mut host);
    check(&view(&mut host));
    host.power_off();
    host.open().expect("it opens");
    check(&view(&mut host));
    // Streams move the log on, so that what it holds of the control group must go into that group's store.
    host.create("s");
    for _ in 0..24 {
        host.append("s", &[7; 20_000]);
        host.node().checkpoint();
    }
    let index = host.disk.list(Path::new("/data/store/control")).expect("its store");
    assert!(!index.is_empty(), "a checkpoint was due");
    host.kill();
    host.open().expect("it opens");
    check(&view(&mut host));
    host.power_off();
    host.open().expect("it opens");
    check(&view(&mut host));
}

/// What is on disk may end with entries that are not known to be committed. Published too early, a key whose revocation
/// is among them would be taken for a moment.
#[test]
fn nothing_is_published_before_the_group_is_current() {
    let mut host = Host::serving(3);
    with_keys(&mut host);
    host.kill();
    let disk: Arc<dyn Disk> = Arc::new(host.disk.clone());
    let mut random = highwater_base::random::SplitMix::new(9);
    let mut node = Solo::<u64>::open(&config(), &disk, &mut random).expect("it opens");
    assert!(node.control().is_none(), "it does not know yet what was committed");
    node.sync();
    check(node.control().expect("it serves"));
}

#[test]
fn a_control_group_that_cannot_be_believed_lets_nobody_in_while_streams_go_on() {
    let mut host = Host::serving(4);
    with_keys(&mut host);
    host.create("s");
    for _ in 0..24 {
        host.append("s", &[7; 20_000]);
        host.node().checkpoint();
    }
    host.kill();
    let folder = Path::new("/data/store/control");
    let indexes = host.disk.list(folder).expect("its store");
    let index = indexes.iter().find(|name| name.starts_with("index-")).expect("an index");
    let file = host.disk.open(&folder.join(index), OpenMode::Write).expect("it is there");
    file.write_at(&[0x5a; 4_096], 0).expect("written");
    host.open().expect("it opens");
    assert!(host.node().control().is_none(), "an empty view would open the server to everybody");
    assert!(matches!(host.node().core().control_status().state, GroupState::Damaged(_)));
    host.append("s", b"more");
    let token = host.token();
    let proposal = Proposal::control(Millis(1), create(id(3), Scope::Admin));
    let answer = host.ask(token, Input::Write { token, proposal });
    assert!(matches!(answer, Some(Answer::Control(Err(_)))), "{answer:?}");
}

#[test]
fn what_the_buckets_of_accounts_hold_is_summed_over_the_groups() {
    let mut host = Host::serving(5);
    for name in ["app/a", "app/b", "app/c", "app/d", "other/a", "alone"] {
        host.create(name);
        host.append(name, &[1; 100]);
    }
    let stored = |host: &mut Host, bucket: &str| host.node().core().stored_bytes(bucket);
    assert_eq!((stored(&mut host, "app"), stored(&mut host, "other"), stored(&mut host, "no")), (400, 100, 0));
}
