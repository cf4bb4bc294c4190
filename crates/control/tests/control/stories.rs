//! What may not happen to whoever runs a server.

use highwater_base::{Digest, Millis};
use highwater_control::limits::KEYS_MAX;
use highwater_control::{
    Change, Command, CreateAccount, CreateKey, Credential, Denied, KeyId, Machine, Operation, Outcome, PatchAccount,
    PlanChanges, Refusal, Scope,
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

/// `expires_ms` in seconds lies in 1970: the first key of a server, made so, let nobody in any more.
#[test]
fn a_key_that_is_over_when_it_is_made_is_none() {
    let mut machine = Machine::new();
    for end in [0, 5, 9] {
        let over = CreateKey { expires: Some(Millis(end)), ..key(1, Scope::Admin) };
        assert!(matches!(apply(&mut machine, 9, Operation::CreateKey(over)), Err(Refusal::Invalid(_))), "{end}");
    }
    assert!(!machine.view().is_keyed());
    let ahead = CreateKey { expires: Some(Millis(10)), ..key(1, Scope::Admin) };
    apply(&mut machine, 9, Operation::CreateKey(ahead)).expect("made");
}

/// An end at once is a revocation by another name, and was taken where the revocation was refused.
#[test]
fn the_last_administrator_is_not_given_an_end_that_is_over() {
    let mut machine = Machine::new();
    for id in [1, 2] {
        apply(&mut machine, 1, Operation::CreateKey(key(id, Scope::Admin))).expect("made");
    }
    let expire = |machine: &mut Machine, id, end| {
        apply(machine, 9, Operation::ExpireKey { id: KeyId::new(id), expires: Some(Millis(end)) })
    };
    expire(&mut machine, 1, 9).expect("another is left");
    assert_eq!(expire(&mut machine, 2, 9), Err(Refusal::AdminKeyLast));
    assert_eq!(expire(&mut machine, 2, 0), Err(Refusal::AdminKeyLast));
    expire(&mut machine, 2, 10).expect("an end that lies ahead leaves time to make another");
}

#[test]
fn what_is_used_is_not_deleted_and_whoever_uses_it_is_named() {
    let mut machine = Machine::new();
    let name = |text: &str| text.to_owned();
    let account = |name: &str, buckets: &[&str]| {
        let buckets = buckets.iter().map(|bucket| (*bucket).to_owned()).collect();
        Operation::CreateAccount(CreateAccount { number: 7, name: name.to_owned(), plan: "p".to_owned(), buckets })
    };
    let (plan, gone) = (Operation::DeletePlan { name: name("p") }, Operation::DeleteAccount { name: name("a") });
    assert_eq!(apply(&mut machine, 1, plan.clone()), Err(Refusal::PlanNotFound(name("p"))));
    assert_eq!(apply(&mut machine, 1, gone.clone()), Err(Refusal::AccountNotFound(name("a"))));
    let limits = PlanChanges::default();
    apply(&mut machine, 1, Operation::CreatePlan { number: 7, name: name("p"), limits }).expect("made");
    apply(&mut machine, 1, account("a", &["app", "logs"])).expect("made");
    apply(&mut machine, 1, Operation::CreateKey(key(1, Scope::Admin))).expect("made");
    let reader = CreateKey { account: Some(name("a")), ..key(2, Scope::Read) };
    apply(&mut machine, 1, Operation::CreateKey(reader)).expect("made");
    let reader = KeyId::new(2);

    let before = machine.fingerprint();
    let refused = |machine: &mut Machine, operation: &Operation| {
        apply(machine, 2, operation.clone()).expect_err("it is used").to_string()
    };
    assert_eq!(
        refused(&mut machine, &plan),
        "the plan p is still used: the accounts a have it; give them another first"
    );
    let buckets = "the account a is still used: it has the buckets app, logs; give it none first";
    assert_eq!(refused(&mut machine, &gone), buckets);
    assert_eq!(machine.fingerprint(), before, "a refusal changes nothing");
    let patch = PatchAccount { name: name("a"), plan: None, buckets: Some(Vec::new()), revoked: Some(true) };
    apply(&mut machine, 2, Operation::PatchAccount(patch)).expect("changed");
    assert_eq!(
        refused(&mut machine, &gone),
        format!("the account a is still used: the keys {reader} are its own; revoke them first")
    );
    revoke(&mut machine, 2, false).expect("revoked");
    assert!(matches!(apply(&mut machine, 3, gone.clone()), Ok(Outcome::AccountDeleted(_))));
    assert_eq!(apply(&mut machine, 3, gone), Err(Refusal::AccountNotFound(name("a"))), "it is gone");
    assert!(matches!(apply(&mut machine, 3, plan), Ok(Outcome::PlanDeleted(_))));

    let records = machine.take_changed();
    assert_eq!(records.iter().filter(|(_, record)| record.is_none()).count(), 2, "their records go too");
    let kept = records.into_iter().filter_map(|(object, record)| Some((object, record?))).collect();
    assert_eq!(
        Machine::load(kept).expect("a revoked key may outlive its account").fingerprint(),
        machine.fingerprint()
    );
    apply(&mut machine, 4, Operation::CreatePlan { number: 7, name: name("p"), limits }).expect("made anew");
    apply(&mut machine, 4, account("a", &["app"])).expect("made anew");
    assert_eq!(
        machine.view().recheck(reader, Millis(5)),
        Err(Denied::Invalid),
        "an account of the same name revives no key"
    );
}

/// The status names streams of every account where bytes are damaged.
#[test]
fn a_key_for_metrics_is_bounded_by_nothing() {
    let mut machine = Machine::new();
    apply(&mut machine, 1, Operation::CreateKey(key(1, Scope::Admin))).expect("made");
    let bounded = CreateKey { prefixes: vec!["app".to_owned()], ..key(2, Scope::Metrics) };
    assert!(matches!(apply(&mut machine, 1, Operation::CreateKey(bounded)), Err(Refusal::Invalid(_))));
    apply(&mut machine, 1, Operation::CreateKey(key(2, Scope::Metrics))).expect("made");
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
