//! Control: makes, changes and revokes keys, accounts and plans.

use super::Draft;
use crate::message::Ask;
use highwater_base::{Digest, Random};
use highwater_control::{Change, CreateAccount, CreateKey, KeyId, Operation, PatchAccount, PlanChanges, Scope, Scopes};

/// Names of accounts and plans that are made: few, so that they meet.
const NAMES: u64 = 3;

/// Changes something.
pub fn control(draft: &mut Draft<'_>) -> Ask {
    let keys = draft.oracle.control.keys().to_vec();
    let random = &mut *draft.random;
    let known = keys.get(random.below(keys.len() as u64) as usize).copied();
    let operation = match (random.below(14), known) {
        (0..=2, Some(id)) => Operation::RevokeKey { id, last: random.below(4) == 0 },
        (3, Some(id)) => {
            let expires = (random.below(3) > 0).then(|| draft.wall.plus(random.below(60_000)));
            Operation::ExpireKey { id, expires }
        }
        (4, _) => {
            let (number, name) = (random.next_u64(), name("plan", random));
            Operation::CreatePlan { number, name, limits: limits(random) }
        }
        (5..=6, _) => Operation::PatchPlan { name: name("plan", random), limits: limits(random) },
        (7, _) => Operation::CreateAccount(CreateAccount {
            number: random.next_u64(),
            name: name("account", random),
            plan: name("plan", random),
            buckets: vec![name("bucket", random)],
        }),
        (8, _) => Operation::PatchAccount(PatchAccount {
            name: name("account", random),
            plan: (random.below(2) == 0).then(|| name("plan", random)),
            buckets: [None, Some(Vec::new()), Some(vec![name("bucket", random)])][random.below(3) as usize].clone(),
            revoked: [None, Some(false), Some(true)][random.below(3) as usize],
        }),
        (9, _) => Operation::DeleteAccount { name: name("account", random) },
        (10, _) => Operation::DeletePlan { name: name("plan", random) },
        _ => Operation::CreateKey(create_key(random)),
    };
    let order = draft.oracle.control.add(&operation);
    Ask::Control { operation, order }
}

fn create_key(random: &mut impl Random) -> CreateKey {
    let administers = random.below(2) == 0;
    let scopes = if administers { [Scope::Admin] } else { [Scope::Append] };
    let account = (!administers && random.below(2) == 0).then(|| name("account", random));
    CreateKey {
        id: KeyId::new(random.next_u64()),
        secret: Digest::of(&random.next_u64().to_le_bytes()),
        scopes: scopes.into_iter().collect::<Scopes>(),
        prefixes: Vec::new(),
        account,
        expires: None,
        note: String::new(),
        request: None,
    }
}

fn name(kind: &str, random: &mut impl Random) -> String {
    format!("{kind}-{}", random.below(NAMES))
}

fn limits(random: &mut impl Random) -> PlanChanges {
    let mut change = || match random.below(4) {
        0 => Change::Clear,
        1 => Change::Set(random.below(1_000)),
        _ => Change::Keep,
    };
    PlanChanges { storage_bytes_max: change(), requests_per_second: change(), ..PlanChanges::default() }
}
