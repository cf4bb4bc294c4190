//! What may not happen to whoever runs a server.

use highwater_base::{Digest, Millis};
use highwater_control::limits::KEYS_MAX;
use highwater_control::{
    Change, Command, CreateAccount, CreateKey, Credential, Denied, KeyId, Machine, Operation, Outcome, PlanChanges,
    Refusal, Scope,
};

fn key(id: u64, scope: Scope) -> CreateKey {
    CreateKey {
        id: KeyId::new(id),
        secret: Credential::new(KeyId::new(id), [id; 4]).hash(),
        scopes: [scope].into_iter().collect(),
        prefixes: Vec::new(),
        account: None,
        expires: None,
        note: String::new(),
        request: None,
    }
}

fn apply(machine: &mut Machine, at: u64, operation: Operation) -> Result<Outcome, Refusal> {
    machine.apply(&Command { at: Millis(at), operation }).result
}

fn revoke(machine: &mut Machine, id: u64, last: bool) -> Result<Outcome, Refusal> {
    apply(machine, 9, Operation::RevokeKey { id: KeyId::new(id), last })
}

#[test]
fn time_alone_never_opens_a_server() {
    let mut machine = Machine::new();
    let admin = CreateKey { expires: Some(Millis(10)), ..key(1, Scope::Admin) };
    apply(&mut machine, 1, Operation::CreateKey(admin)).expect("made");
    let view = machine.view();
    assert_eq!(view.recheck(KeyId::new(1), Millis(9)), Ok(()));
    assert_eq!(view.recheck(KeyId::new(1), Millis(10)), Err(Denied::Expired));
    assert!(view.is_keyed());
    let reader = apply(&mut machine, 11, Operation::CreateKey(key(2, Scope::Read)));
    assert_eq!(reader, Err(Refusal::AdminKeyFirst), "no administrator is in force any more");
    apply(&mut machine, 11, Operation::CreateKey(key(3, Scope::Admin))).expect("a new one, made on the machine itself");
}

#[test]
fn the_last_administrator_is_not_revoked_by_mistake() {
    let mut machine = Machine::new();
    for (id, scope) in [(1, Scope::Admin), (2, Scope::Read), (3, Scope::Admin)] {
        apply(&mut machine, 1, Operation::CreateKey(key(id, scope))).expect("made");
    }
    revoke(&mut machine, 3, false).expect("another is left");
    let before = machine.fingerprint();
    assert_eq!(revoke(&mut machine, 1, false), Err(Refusal::AdminKeyLast));
    assert_eq!(machine.fingerprint(), before, "a refusal changes nothing");
    revoke(&mut machine, 1, true).expect("on purpose");
    assert!(machine.view().is_keyed(), "the reader is left");
    assert_eq!(revoke(&mut machine, 2, false), Err(Refusal::AdminKeyLast), "this would open the server");
    revoke(&mut machine, 2, true).expect("on purpose");
    assert!(!machine.view().is_keyed());
    revoke(&mut machine, 2, false).expect("a repeat finds it revoked");
}

/// Two keys for which the same number was drawn would otherwise be one, with the rights of the later.
#[test]
fn an_id_that_is_taken_is_not_given_again() {
    let mut machine = Machine::new();
    apply(&mut machine, 1, Operation::CreateKey(key(KeyId::NUMBER_MAX, Scope::Admin))).expect("made");
    let Ok(Outcome::Key(second)) = apply(&mut machine, 1, Operation::CreateKey(key(u64::MAX, Scope::Read))) else {
        panic!("not made")
    };
    assert_eq!(second.id, KeyId::new(0), "the one behind it");
    assert_eq!(machine.view().keys().count(), 2);
}

#[test]
fn revoked_keys_make_room_and_others_never_do() {
    let mut machine = Machine::new();
    for id in 0..KEYS_MAX as u64 {
        apply(&mut machine, id, Operation::CreateKey(key(id, Scope::Admin))).expect("made");
    }
    let more = |machine: &mut Machine, id| apply(machine, 0, Operation::CreateKey(key(id, Scope::Read)));
    assert_eq!(more(&mut machine, 1 << 40), Err(Refusal::Full("keys")));
    revoke(&mut machine, 77, false).expect("revoked");
    more(&mut machine, 1 << 40).expect("in its place");
    assert!(machine.view().key(KeyId::new(77)).is_none());
    assert_eq!(more(&mut machine, 1 << 41), Err(Refusal::Full("keys")));
}

#[test]
fn a_bucket_has_one_account_and_its_keys_reach_no_other() {
    let mut machine = Machine::new();
    let plan = PlanChanges { storage_bytes_max: Change::Set(5), ..PlanChanges::default() };
    apply(&mut machine, 1, Operation::CreatePlan { number: 1, name: "p".to_owned(), limits: plan }).expect("made");
    let account = |name: &str, bucket: &str| {
        let (name, plan) = (name.to_owned(), "p".to_owned());
        Operation::CreateAccount(CreateAccount { number: 1, name, plan, buckets: vec![bucket.to_owned()] })
    };
    apply(&mut machine, 1, account("a", "app")).expect("made");
    let taken = Refusal::BucketTaken { bucket: "app".to_owned(), account: "a".to_owned() };
    assert_eq!(apply(&mut machine, 1, account("b", "app")), Err(taken));
    apply(&mut machine, 1, account("b", "other")).expect("made");
    apply(&mut machine, 1, Operation::CreateKey(key(1, Scope::Admin))).expect("made");
    let prefixes = vec!["app".to_owned(), "other".to_owned()];
    let reader = CreateKey { account: Some("a".to_owned()), prefixes, ..key(2, Scope::Read) };
    apply(&mut machine, 1, Operation::CreateKey(reader)).expect("made");
    let view = machine.view();
    let reader = view.key(KeyId::new(2)).expect("it is there");
    assert!(view.permits(reader, Scope::Read, "app/x"));
    for path in ["other/x", "app", "apple/x", "none/x"] {
        assert!(!view.permits(reader, Scope::Read, path), "{path}");
    }
    let limits = view.owner_of("app/x").and_then(|owner| view.plan_of(owner)).map(|plan| plan.limits);
    assert_eq!(limits.and_then(|limits| limits.storage_bytes_max), Some(5));
}

#[test]
fn a_credential_is_taken_for_its_own_key_alone() {
    let mut machine = Machine::new();
    apply(&mut machine, 1, Operation::CreateKey(key(1, Scope::Admin))).expect("made");
    apply(&mut machine, 1, Operation::CreateKey(key(2, Scope::Read))).expect("made");
    let view = machine.view();
    let right = Credential::new(KeyId::new(1), [1; 4]);
    assert_eq!(view.authenticate(&right, Millis(2)).map(|key| key.id), Ok(KeyId::new(1)));
    for wrong in
        [Credential::new(KeyId::new(1), [2; 4]), right.clone().with_id(KeyId::new(2)), right.with_id(KeyId::new(9))]
    {
        assert_eq!(view.authenticate(&wrong, Millis(2)), Err(Denied::Invalid), "{wrong:?}");
    }
    assert_ne!(view.key(KeyId::new(1)).map(|key| key.secret), Some(Digest([0; 32])));
}
