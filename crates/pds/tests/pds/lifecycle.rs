//! Every change of every account, wherever it stands and whatever was announced of it: rules A1 to A3, exhaustively.

use crate::server::{BEGIN, CLOCK_ID, key, row};
use highwater_pds::account::{Account, Head};
use highwater_pds::boot;
use highwater_pds::frame::Kind;
use highwater_pds::lifecycle::{Announce, Change, Turned, decide};
use highwater_pds::{AccountId, Draft, Fact, Micros, Part, Position, Refused, Signer, Standing, Status};
use highwater_repo::commit::fresh;
use highwater_repo::key::SigningKey;
use highwater_repo::{Tid, Tree};

const CHANGES: [Change; 10] = [
    Change::Activate(Announce::OnActivation),
    Change::Activate(Announce::OnFirstWrite),
    Change::Lock,
    Change::Lift,
    Change::TakeDown,
    Change::Restore,
    Change::Deactivate,
    Change::Reactivate,
    Change::Erase,
    Change::Decommission,
];

const ANNOUNCED: [Option<Position>; 6] = [
    None,
    Some(Position::Active),
    Some(Position::Inactive(Status::TakenDown)),
    Some(Position::Inactive(Status::Suspended)),
    Some(Position::Inactive(Status::Deleted)),
    Some(Position::Inactive(Status::Deactivated)),
];

fn standings() -> impl Iterator<Item = Standing> {
    (0..1u8 << 7).map(|bits| {
        let flag = |place: u8| bits >> place & 1 == 1;
        Standing {
            activated: flag(0),
            until_first_write: flag(0) && flag(1),
            suspended: flag(2),
            taken_down: flag(3),
            deactivated: flag(4),
            decommissioned: flag(5),
            erased: flag(6),
        }
    })
}

fn kinds(draft: &Draft) -> Vec<Kind> {
    let frames = draft.parts.iter().filter_map(|part| match part {
        Part::Frame(_, frame) => Some(frame.kind),
        _ => None,
    });
    frames.collect()
}

/// An account that stands there, with a commit at the time when the tests begin.
fn account(
    standing: Standing,
    announced: Option<Position>,
    sent: bool,
    signing: &SigningKey,
) -> (Account, bytes::Bytes) {
    let mut account = row(AccountId(1), "bot");
    let (data, _) = Tree::new().seal();
    let commit = fresh(account.did.clone(), Tid::new(BEGIN.0, CLOCK_ID), data, signing);
    (account.standing, account.announced) = (standing, announced);
    let head = Head { commit: commit.cid, rev: commit.commit.rev, data, sent };
    account.head = standing.activated.then_some(head);
    (account, commit.block)
}

fn after(account: &Account, draft: &Draft) -> Account {
    let mut account = account.clone();
    account.advance(draft);
    account
}

#[test]
fn every_change_leaves_relays_with_what_is_true_now_or_with_the_next_start() {
    let (signing, at) = (key(AccountId(1)), Micros(BEGIN.0 + 1));
    let signer = Signer { key: &signing, clock_id: CLOCK_ID, rev_min: None };
    let (mut turns, mut nothings, mut refusals) = (0, 0, 0);
    for standing in standings() {
        for announced in ANNOUNCED {
            for sent in [true, false] {
                let (account, block) = account(standing, announced, sent, &signing);
                // Of whom nobody was to hear, nobody was told.
                if account.position().is_none() && announced.is_some() {
                    continue;
                }
                for change in CHANGES {
                    let context = format!("{change:?} of {standing:?}, announced {announced:?}, head sent {sent}");
                    match decide(&account, change, &signer, at) {
                        Err(refused) => {
                            assert!(
                                matches!(refused, Refused::Erased | Refused::Decommissioned | Refused::NotActivated),
                                "{context}"
                            );
                            refusals += 1;
                        }
                        Ok(None) => {
                            assert!(account.position().is_none_or(|position| Some(position) == announced), "{context}");
                            assert!(account.head_untold().is_none() || account.position().is_none(), "{context}");
                            nothings += 1;
                        }
                        Ok(Some(turned)) => {
                            check(&account, &block, change, turned, &context);
                            turns += 1;
                        }
                    }
                }
            }
        }
    }
    // Otherwise nothing was looked at.
    assert!(turns > 1_000 && nothings > 100 && refusals > 1_000, "{turns} {nothings} {refusals}");
}

fn check(before: &Account, head_block: &bytes::Bytes, change: Change, turned: Turned, context: &str) {
    let Turned { draft, fallback } = turned;
    let row = after(before, &draft);
    let (position, kinds) = (row.position(), kinds(&draft));
    // What relays are told is true once it is durable, and is all that they have to hear.
    assert!(position.is_none_or(|position| row.announced == Some(position)), "{context}");
    assert_eq!(boot::draft(&row, None, draft.at), Ok(None), "{context}");
    if position.is_none() {
        assert_eq!(kinds, [], "{context}");
    }
    if position != Some(Position::Active) {
        assert!(!kinds.contains(&Kind::Commit) && !kinds.contains(&Kind::Sync), "{context}: {kinds:?}");
    } else {
        // Whatever leaves an account active sends #account, then a commit that is newer than any before it.
        let head = row.head.expect("it is active");
        assert!(head.sent && before.head.is_none_or(|before| before.rev < head.rev), "{context}");
        let begins = matches!(change, Change::Activate(_)) && !before.standing.activated;
        let expected: &[Kind] =
            if begins { &[Kind::Identity, Kind::Account, Kind::Commit] } else { &[Kind::Account, Kind::Sync] };
        assert_eq!(kinds, expected, "{context}");
        assert!(
            begins || before.head.is_some_and(|before| before.data == head.data),
            "{context}: the data is the same"
        );
    }
    if row.standing.erased {
        assert_eq!((row.blocks.front, &row.credentials), (row.blocks.end, &Default::default()), "{context}");
    }
    let signing = key(before.id);
    let signer = Signer { key: &signing, clock_id: CLOCK_ID, rev_min: None };
    let again = decide(&row, change, &signer, draft.at);
    assert!(matches!(again, Ok(None)), "{context}: done again there is nothing to do");
    // A change bites without its frames; nothing is said that was not sent; and the next start says it.
    assert_eq!(fallback.is_some(), draft.has_frames() && row.standing != before.standing, "{context}");
    let Some(fallback) = fallback else { return };
    let alone = after(before, &fallback);
    assert!(!fallback.has_frames(), "{context}");
    assert_eq!((alone.standing, alone.announced), (row.standing, before.announced), "{context}");
    assert!(!fallback.parts.iter().any(|part| matches!(part, Part::Fact(Fact::Announced(..) | Fact::HeadSent(..)))));
    let block = fallback.parts.iter().find_map(|part| match part {
        Part::Alone { sections, .. } => {
            let (_, place) = highwater_repo::car::Sections::new(sections).next()?.expect("whole");
            Some(sections.slice(place))
        }
        _ => None,
    });
    let block = block.unwrap_or_else(|| head_block.clone());
    if let Some(told) = boot::draft(&alone, Some(&block), draft.at).expect("its block is given") {
        let signs = told.parts.iter().any(|part| matches!(part, Part::Sent { .. } | Part::Alone { .. }));
        assert!(!signs, "{context}: a start signs nothing");
        let told = after(&alone, &told);
        assert_eq!(told.announced, told.position(), "{context}");
        assert_eq!(told.head_untold(), None, "{context}");
    }
}
