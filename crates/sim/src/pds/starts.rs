//! What a start may do, and what it must.

use super::observer::{account_of, repository};
use super::seen::{Keeping, Kind};
use super::swarm::EVENTS_BYTES_UNBOUND;
use super::world::World;
use crate::invariants::{Checked, Invariant, hold, violated};
use bytes::Bytes;
use highwater_base::Millis;
use highwater_consumer::Frame;
use highwater_consumer::follower::{Follower, Input, Options, Output};
use highwater_consumer::frame::{Position as Told, Status as ToldStatus};
use highwater_disk::Disk;
use highwater_host::{Boot, CursorRefused, Delivery, Host};
use highwater_pds::{Account, AccountId, Micros, Position, State, Status};
use highwater_repo::key::PublicKey;
use highwater_repo::{Cid, Tid};
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds by which times of frames may be out of order where a clock was behind.
const DISORDER_MS: u64 = 600_000;

/// A position as consumers read it.
#[must_use]
pub fn told(position: Position) -> Told {
    match position {
        Position::Active => Told::ACTIVE,
        Position::Inactive(status) => Told::inactive(match status {
            Status::TakenDown => ToldStatus::Takendown,
            Status::Suspended => ToldStatus::Suspended,
            Status::Deleted => ToldStatus::Deleted,
            Status::Deactivated => ToldStatus::Deactivated,
        }),
    }
}

/// Everything that there is to be sent from a cursor on.
/// # Errors
/// [`Invariant::CursorsAreKnown`] if it is refused, [`Invariant::FollowersFindNoFault`] if it does not come.
pub fn all_behind(host: &Host, cursor: u64) -> Checked<Vec<Bytes>> {
    let mut subscription = match host.subscribe(Some(cursor)) {
        Ok(subscription) => subscription,
        Err(error @ CursorRefused::Future { .. }) => return violated(Invariant::CursorsAreKnown, error.to_string()),
        Err(CursorRefused::Stopped(_)) => return Ok(Vec::new()),
    };
    let mut all = Vec::new();
    while let Some(delivery) = subscription.take() {
        match delivery {
            Delivery::Frames(frames) => all.extend(frames),
            Delivery::TooSlow => return violated(Invariant::FollowersFindNoFault, "a replay is called too slow"),
            Delivery::Ended(why) => return violated(Invariant::FramesStay, why),
        }
    }
    Ok(all)
}

/// How the server stood before a start.
pub struct Before {
    /// Heads of accounts.
    heads: BTreeMap<AccountId, Cid>,
    /// The newest record's time, and how many events there were.
    stored: (Micros, u64),
}

impl World {
    /// What a start that just succeeded did is held to the rules.
    /// # Errors
    /// The rule that broke.
    pub(crate) fn check_start(&mut self, boot: &Boot) -> Checked {
        let now = Millis(self.server.clocks.true_ms());
        let Some(host) = self.server.host().cloned() else { return Ok(()) };
        let marked = std::mem::take(&mut self.restoring);
        let newest_ever = self.seen.newest_ever();
        self.resolve(&host)?;
        let frames = all_behind(&host, 0)?;
        let told_before = self.seen.history.told.clone();
        let erased: BTreeSet<_> = host.state(|state| {
            let erased = state.accounts.values().filter(|account| account.standing.erased);
            erased.map(|account| account.did.clone()).collect()
        });
        let keeping = self.keeping();
        let copied = self.seen.history.window.keys().next_back().copied();
        let new = self.seen.replayed(frames, &|did| erased.contains(did), keeping)?;
        self.check_cursors(&host, copied, marked)?;
        if marked {
            self.check_restore(&host, newest_ever)?;
        } else {
            self.check_news(boot, &new, &told_before)?;
        }
        self.check_rows()?;
        self.check_blocks(&host, now)?;
        self.tap = host.subscribe(None).ok();
        Ok(())
    }

    fn keeping(&self) -> Keeping {
        let options = self.server.options();
        let disorder_ms = if self.clock_was_behind { DISORDER_MS } else { 0 };
        let before = self.server.clocks.true_ms() + disorder_ms;
        let before = Micros(before.saturating_sub(options.retention_seconds * 1_000) * 1_000);
        Keeping { before, capped: options.events_bytes_max < EVENTS_BYTES_UNBOUND }
    }

    /// Accounts are what they were acknowledged to be, and there are no others.
    fn resolve(&mut self, host: &Host) -> Checked {
        let rows: Vec<Account> = host.state(|state| state.accounts.values().cloned().collect());
        for row in &rows {
            if let Some(known) = self.accounts.get_mut(&row.id) {
                let asked = known.asked.len();
                let survived = known.resolve(row)?;
                if survived > 0 {
                    self.trace.meet("a turn survived without its answer");
                } else if asked > 0 {
                    self.trace.meet("a turn was lost without its answer");
                }
                continue;
            }
            let position = self.creating.iter().position(|(shape, _)| shape.is(row).is_ok());
            let Some(position) = position else {
                return violated(Invariant::AccountsStay, format!("nobody asked for {} as it is", row.did));
            };
            let (shape, _) = self.creating.remove(position);
            self.accounts.insert(row.id, super::model::Known::new(row.did.clone(), shape));
        }
        self.creating.clear();
        let gone = self.accounts.keys().find(|id| !rows.iter().any(|row| row.id == **id));
        hold(Invariant::AccountsStay, gone.is_none(), || format!("account {gone:?} is gone"))
    }

    /// No cursor that anybody got is one of the future, and one of a lost run is told that it is behind.
    fn check_cursors(&mut self, host: &Host, copied: Option<u64>, marked: bool) -> Checked {
        let numbers = self.seen.numbers();
        let Some(newest) = numbers.iter().rev().find(|seq| !marked || !self.seen.history.window.contains_key(seq))
        else {
            return Ok(());
        };
        let floor = host.state(|state| state.sequence.floor);
        // The newest that the copy held, whether anybody had seen it or not.
        let held = self.seen.history.window.range(..=floor).next_back().map(|(seq, _)| *seq).max(copied);
        let any = numbers[self.random_below(numbers.len() as u64) as usize];
        for cursor in [*newest, any] {
            let frames = all_behind(host, cursor)?;
            let outdated = frames.first().map(|frame| Frame::decode(frame.clone()));
            let outdated = matches!(outdated, Some(Ok(Frame::Outdated(_))));
            let lost = marked && cursor <= floor && held.is_none_or(|held| cursor > held);
            hold(Invariant::CursorsAreKnown, outdated || !lost, || {
                format!("{cursor} of a lost run is not told what it misses, and the copy held {held:?}")
            })?;
        }
        Ok(())
    }

    fn check_restore(&mut self, host: &Host, newest_ever: Option<u64>) -> Checked {
        let broken = |what: String| violated(Invariant::RestoreTellsOnce, what);
        let (floor, restore) = host.state(|state| (state.sequence.floor, state.restore.clone()));
        let marker = self.server.disk.exists(&host.paths().marker()).unwrap_or_default();
        hold(Invariant::RestoreTellsOnce, !marker, || "the marker is still there".to_owned())?;
        let Some(restore) = restore.filter(|restore| restore.done) else {
            return broken("no restore was done".to_owned());
        };
        // Numbers of this restore's own earlier attempts are above the floor and were seen by nobody.
        hold(Invariant::RestoreTellsOnce, newest_ever.is_none_or(|newest| newest <= floor), || {
            format!("the floor is {floor}, and the lost run had {newest_ever:?}")
        })?;
        let mut frames: BTreeMap<_, (u64, Vec<Tid>)> = BTreeMap::new();
        for shown in self.seen.history.window.range(floor + 1..).map(|(_, shown)| shown) {
            let of = frames.entry(shown.did.clone()).or_default();
            match shown.kind {
                Kind::Account(_) => of.0 += 1,
                Kind::Sync(rev) => of.1.push(rev),
                other => return broken(format!("{other:?} of {} among the frames of the restore", shown.did)),
            }
        }
        for row in host.state(|state| state.accounts.values().cloned().collect::<Vec<_>>()) {
            let (accounts, syncs) = frames.remove(&row.did).unwrap_or_default();
            let active = row.position() == Some(Position::Active);
            let told = match row.position() {
                None => accounts == 0 && syncs.is_empty(),
                Some(_) if row.standing.decommissioned => accounts <= 1 && syncs.is_empty(),
                Some(_) => accounts == 1 && syncs.len() == usize::from(active),
            };
            if !told {
                return broken(format!(
                    "{accounts} #account and {} #sync of {} at {:?}",
                    syncs.len(),
                    row.did,
                    row.standing
                ));
            }
            if row.position().is_some() && !active {
                self.trace.meet("a restore told of an account that is not active");
            }
            let newest = self.copies.lost_rev(&row.did);
            if let Some(rev) = syncs.first().filter(|rev| newest.is_some_and(|newest| **rev <= newest)) {
                return broken(format!("{} is at {rev}, and the lost run was at {newest:?}", row.did));
            }
        }
        self.seen.history.restored = Some((floor, restore.begun));
        Ok(())
    }

    /// A start without a marker sends what relays were not told, and nothing else.
    fn check_news(
        &mut self,
        boot: &Boot,
        new: &[u64],
        told_before: &BTreeMap<highwater_repo::syntax::Did, Told>,
    ) -> Checked {
        let mut told = told_before.clone();
        let sent = new.len().saturating_sub(boot.frames as usize);
        for (place, seq) in new.iter().enumerate() {
            let Some(shown) = self.seen.history.window.get(seq) else { continue };
            let by_start = place >= sent;
            if let Kind::Account(position) = shown.kind {
                let before = told.insert(shown.did.clone(), position);
                hold(Invariant::StartTellsOnlyNews, !by_start || before != Some(position), || {
                    format!("{} is told once more to be {position}", shown.did)
                })?;
            }
            let commit = matches!(shown.kind, Kind::Commit(_));
            hold(Invariant::StartTellsOnlyNews, !(by_start && commit), || {
                format!("a start committed for {}", shown.did)
            })?;
        }
        Ok(())
    }

    /// Every active account can be read as a whole, and holds the records that it was acknowledged.
    fn check_blocks(&mut self, host: &Host, now: Millis) -> Checked {
        for (id, known) in &self.accounts {
            let archive = match repository(host, *id) {
                // A call that was made to fail is no damage: the next one is looked at.
                Err(_) if self.server.disk.stopped() => return Ok(()),
                Err(_) => {
                    self.server.disk.clear_faults();
                    repository(host, *id)?
                }
                archive => archive?,
            };
            let Some(archive) = archive else { continue };
            let key = host.state(|state| state.accounts.get(id).map(|row| row.key.public.clone()));
            let key = key.and_then(|key| PublicKey::parse(&key).ok());
            let mut reader = Follower::new(Options::default());
            let did = known.did.clone();
            reader.step(now, Input::Key { did: did.clone(), key });
            let found = reader.step(now, Input::Repo { did: did.clone(), archive: Some(archive) });
            let bad = found.iter().find(|output| matches!(output, Output::Violation { .. }));
            hold(Invariant::BlocksAreThere, bad.is_none(), || format!("{bad:?}"))?;
            let records = reader.account(&did).and_then(|account| account.records());
            let same = records.is_some_and(|records| {
                records.iter().map(|(path, record)| (path, &record.cid)).eq(known.settled.records.iter())
            });
            hold(Invariant::BlocksAreThere, same, || format!("the repository of {did} does not have its records"))?;
        }
        Ok(())
    }

    /// Rows are what they were acknowledged to be, wherever nothing is under way.
    /// # Errors
    /// What broke.
    pub(crate) fn check_rows(&mut self) -> Checked {
        let Some(host) = self.server.host().cloned() else { return Ok(()) };
        let changed: Vec<AccountId> =
            self.accounts.iter().filter(|(_, known)| known.changed).map(|(id, _)| *id).collect();
        for id in changed {
            let Some(row) = host.state(|state| state.accounts.get(&id).cloned()) else {
                return violated(Invariant::AccountsStay, format!("account {} is gone", id.0));
            };
            let Some(known) = self.accounts.get_mut(&id) else { continue };
            if let Some(head) = row.head {
                self.seen.rev(&row.did, head.rev, head.commit)?;
                known.rev = Some(head.rev);
            }
            if known.asked.is_empty() {
                known.changed = false;
                if let Err(why) = known.settled.is(&row) {
                    let invariant = match row.standing == known.settled.standing {
                        true => Invariant::AccountsStay,
                        false => Invariant::PositionIsTheRow,
                    };
                    return violated(invariant, format!("{}: {why}", row.did));
                }
            }
            let newest = self.seen.history.told.get(&row.did).copied();
            let announced = row.announced.map(told);
            hold(Invariant::PositionIsTheRow, newest.is_none() || newest == announced, || {
                format!("{} counts as announced as {announced:?}, and its newest #account says {newest:?}", row.did)
            })?;
        }
        Ok(())
    }

    /// How the server stands now.
    pub(crate) fn standing(&self) -> Option<Before> {
        let host = self.server.host()?;
        let heads = |state: &State| {
            let rows = state.accounts.values();
            rows.filter_map(|row| Some((row.id, row.head?.commit))).collect()
        };
        let stored = host.state(|state| (state.newest, state.events.count));
        Some(Before { heads: host.state(heads), stored })
    }

    /// A start where nothing changed since the one before: it stores, signs and sends nothing.
    /// # Errors
    /// [`Invariant::StartTellsOnlyNews`].
    pub(crate) fn check_silence(&mut self, before: &Before, boot: &Boot) -> Checked {
        let Some(now) = self.standing() else { return Ok(()) };
        // With a witness a start notes its own number in the log, which is no event and moves the newest time alone.
        let stored = if self.swarm.witness { now.stored.1 == before.stored.1 } else { now.stored == before.stored };
        let silent = boot.frames == 0 && now.heads == before.heads && stored;
        self.trace.meet("a start where nothing changed was silent");
        hold(Invariant::StartTellsOnlyNews, silent, || {
            format!("{} frames, and {:?} became {:?}", boot.frames, before.stored, now.stored)
        })
    }

    /// Every account's DID leads to its number.
    pub(crate) fn account_of(&self, did: &highwater_repo::syntax::Did) -> Option<AccountId> {
        account_of(self.server.host()?, did)
    }
}
