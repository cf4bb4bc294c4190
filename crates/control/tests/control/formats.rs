//! The stored bytes, as `docs/formats/control.md` has them.

use highwater_base::codec::DecodeError;
use highwater_base::{Digest, Millis};
use highwater_control::{
    Change, Command, CreateAccount, CreateKey, KeyId, Machine, Operation, PatchAccount, PlanChanges, Scope, Scopes,
};
use std::path::Path;

/// Set to write golden files that are missing. One that is there is never rewritten.
const WRITE: &str = "HIGHWATER_WRITE_GOLDEN";

fn golden(name: &str, bytes: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
    if std::env::var_os(WRITE).is_some() && !path.exists() {
        std::fs::write(&path, bytes).expect("written");
    }
    let kept = std::fs::read(&path).expect("the golden file is there");
    assert_eq!(kept, bytes, "{name} changed: that needs a new version");
}

/// One command of each kind, and under which name its bytes are kept.
pub fn commands() -> Vec<(&'static str, Command)> {
    let id = KeyId::new(0x0123_4567_89ab_cdef);
    let limits = PlanChanges {
        storage_bytes_max: Change::Set(1 << 30),
        requests_per_second: Change::Set(100),
        requests_burst: Change::Clear,
        append_bytes_per_second: Change::Keep,
        replicas: Change::Set(3),
    };
    let key = CreateKey {
        id,
        secret: Digest::of(b"secret"),
        scopes: [Scope::Read, Scope::Append, Scope::Snapshot].into_iter().collect(),
        prefixes: vec!["app".to_owned(), "logs/2026".to_owned()],
        account: Some("team".to_owned()),
        expires: Some(Millis(1_800_000_000_000)),
        note: "the application".to_owned(),
        request: Some("r-1".to_owned()),
    };
    let admin = CreateKey {
        id: KeyId::new(7),
        scopes: [Scope::Admin].into_iter().collect(),
        prefixes: Vec::new(),
        account: None,
        expires: None,
        note: String::new(),
        request: None,
        ..key.clone()
    };
    let account = CreateAccount {
        number: 11,
        name: "team".to_owned(),
        plan: "small".to_owned(),
        buckets: vec!["app".to_owned(), "logs".to_owned()],
    };
    let patch = PatchAccount {
        name: "team".to_owned(),
        plan: Some("small".to_owned()),
        buckets: Some(vec!["app".to_owned()]),
        revoked: Some(true),
    };
    let name = || "small".to_owned();
    let operations = [
        ("create-plan", Operation::CreatePlan { number: 5, name: name(), limits }),
        ("create-account", Operation::CreateAccount(account)),
        ("create-admin", Operation::CreateKey(admin)),
        ("create-key", Operation::CreateKey(key)),
        ("expire-key", Operation::ExpireKey { id, expires: None }),
        ("revoke-key", Operation::RevokeKey { id, last: true }),
        ("patch-account", Operation::PatchAccount(patch)),
        ("patch-plan", Operation::PatchPlan { name: name(), limits }),
        ("delete-account", Operation::DeleteAccount { name: "nobody".to_owned() }),
        ("delete-plan", Operation::DeletePlan { name: "none".to_owned() }),
    ];
    let at = |(n, (name, operation)): (u64, _)| (name, Command { at: Millis(1_700_000_000_000 + n), operation });
    (0u64..).zip(operations).map(at).collect()
}

#[test]
fn the_bytes_of_version_1_are_those_of_their_golden_files() {
    let mut machine = Machine::new();
    for (name, command) in commands() {
        let encoded = command.encode();
        golden(&format!("{name}-v1.bin"), &encoded);
        assert_eq!(Command::decode(encoded.into()), Ok(command.clone()), "{name}");
        let deletes = name.starts_with("delete");
        assert_eq!(machine.apply(&command).result.is_err(), deletes, "{name}: what is deleted here was never made");
    }
    let records = machine.take_changed();
    assert_eq!(records.len(), 4);
    for (object, record) in &records {
        let kind = ["", "key", "account", "plan"][(object >> 60) as usize];
        golden(&format!("{kind}-{object:016x}-v1.bin"), record.as_ref().expect("it is there"));
    }
    let objects = records.into_iter().filter_map(|(object, record)| Some((object, record?))).collect();
    let loaded = Machine::load(objects).expect("readable");
    assert_eq!((loaded.fingerprint(), loaded.view()), (machine.fingerprint(), machine.view()));
}

#[test]
fn an_unknown_version_is_refused_by_name() {
    for (name, command) in commands() {
        let mut encoded = command.encode();
        encoded[0] = 2;
        assert_eq!(Command::decode(encoded.into()), Err(DecodeError::Version(2)), "{name}");
    }
    let mut machine = Machine::new();
    machine.apply(&commands()[0].1).result.expect("made");
    let (object, record) = machine.take_changed().remove(0);
    let mut record = record.expect("it is there").to_vec();
    record[0] = 9;
    assert_eq!(Machine::load(vec![(object, record.into())]).map(drop), Err(DecodeError::Version(9)));
}

#[test]
fn a_record_that_is_cut_or_goes_on_or_lies_in_anothers_place_is_refused() {
    for (name, command) in commands() {
        let encoded = command.encode();
        for cut in 0..encoded.len() {
            assert!(Command::decode(encoded[..cut].to_vec().into()).is_err(), "{name} cut at {cut}");
        }
        let longer = [encoded.as_slice(), &[0]].concat();
        assert_eq!(Command::decode(longer.into()), Err(DecodeError::Trailing(1)), "{name}");
    }
    let mut machine = Machine::new();
    for (_, command) in commands() {
        machine.apply(&command);
    }
    let objects: Vec<_> = machine.take_changed().into_iter().filter_map(|(o, r)| Some((o, r?))).collect();
    for (object, record) in &objects {
        for cut in 0..record.len() {
            assert!(Machine::load(vec![(*object, record.slice(..cut))]).is_err(), "{object:x} cut at {cut}");
        }
        let elsewhere = object ^ (1 << 60) ^ (2 << 60);
        assert!(Machine::load(vec![(elsewhere, record.clone())]).is_err(), "{object:x} as another kind");
    }
    let twice: Vec<_> = objects.iter().chain(&objects).cloned().collect();
    assert!(Machine::load(twice).is_err());
}

#[test]
fn a_scope_that_a_later_program_knows_is_refused_and_not_dropped() {
    let (_, command) = commands().swap_remove(2);
    let mut encoded = command.encode();
    let scopes = 2 + 8 + 1 + 8 + 32;
    assert_eq!(encoded[scopes..scopes + 2], Scopes::parse("admin").expect("known").bits().to_le_bytes());
    encoded[scopes + 1] = 0x80;
    assert_eq!(Command::decode(encoded.into()), Err(DecodeError::Invalid("scopes")));
}
