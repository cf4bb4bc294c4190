//! Puts the segments together and finds each owner's verdict.

use crate::format::batch::Range;
use crate::format::state::{OwnerState, Spot};
use crate::recovered::{OwnerRecovery, Survivor, Verdict};
use crate::scan::{Event, FoundFrame, Scan};
use highwater_base::OwnerId;
use std::collections::{BTreeMap, BTreeSet};

/// What the whole log says.
#[derive(Default)]
pub(crate) struct Merged {
    pub owners: BTreeMap<OwnerId, Tracker>,
    pub survivors: Vec<Survivor>,
    /// What each segment holds of each owner, for giving it back.
    pub ranges: BTreeMap<u64, BTreeMap<OwnerId, Range>>,
    /// Segments whose files are not to be used again.
    pub garbage: BTreeSet<u64>,
    /// The first place where an owner may have been lost with every trace of it.
    pub unlisted: Option<Hit>,
    /// Places where frames may be missing and nothing says whose.
    open: Vec<Hit>,
    /// The place of the last damage seen.
    last_hole: Option<Hit>,
}

/// A place where something is missing; `certain` if it was synced once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hit {
    pub spot: Spot,
    pub certain: bool,
}

impl Hit {
    pub(crate) fn verdict(self) -> Verdict {
        let Spot { segment, offset } = self.spot;
        if self.certain { Verdict::Damaged { segment, offset } } else { Verdict::Recovering { segment, offset } }
    }
}

/// One owner on the way through the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tracker {
    pub state: OwnerState,
    /// The sequence that its next frame has if none is missing.
    pub next: u64,
    /// The last place that proves everything before it.
    last: Spot,
    hit: Option<Hit>,
    frames: u64,
}

impl Tracker {
    fn new(state: OwnerState) -> Self {
        Self { state, next: state.base_sequence, last: Spot::default(), hit: None, frames: 0 }
    }

    fn hit(&mut self, hit: Hit) {
        if self.hit.is_none_or(|earlier| hit.certain && !earlier.certain) {
            self.hit = Some(hit);
        }
    }

    /// Takes note of a frame at a place; `near` is where the frames before it would be missing.
    fn pass(&mut self, sequence: u64, spot: Spot, near: Hit) {
        if sequence > self.next {
            self.hit(near);
        }
        self.next = self.next.max(sequence.saturating_add(1));
        self.last = spot;
    }

    /// The verdict, where an earlier one stays.
    pub(crate) fn verdict(&self) -> Verdict {
        match (self.state.mark, self.hit) {
            (Verdict::Whole, Some(hit)) => hit.verdict(),
            (mark, _) => mark,
        }
    }

    pub(crate) fn recovery(&self) -> OwnerRecovery {
        let first_needed = self.state.first_needed;
        OwnerRecovery { verdict: self.verdict(), first_needed, frames: self.frames }
    }
}

impl Merged {
    pub(crate) fn new(owners: &BTreeMap<OwnerId, OwnerState>) -> Self {
        let owners = owners.iter().map(|(owner, state)| (*owner, Tracker::new(*state))).collect();
        Self { owners, ..Self::default() }
    }

    /// Adds the next segment: `None` if it is missing.
    pub(crate) fn add(&mut self, segment: u64, scan: Option<&Scan>) {
        let Some(scan) = scan else {
            let hit = Hit { spot: Spot { segment, offset: 0 }, certain: true };
            self.open.push(hit);
            self.last_hole = Some(hit);
            return;
        };
        if scan.garbage {
            self.garbage.insert(segment);
        }
        let mut first_hole = None;
        for event in &scan.events {
            match *event {
                Event::Frame(frame) => self.frame(segment, frame, None),
                Event::Bad { frame, certain } => {
                    let hit = Hit { spot: Spot { segment, offset: frame.offset }, certain };
                    self.frame(segment, frame, Some(hit));
                }
                Event::Hole { offset, certain } => {
                    let hit = Hit { spot: Spot { segment, offset }, certain };
                    self.last_hole = Some(hit);
                    first_hole.get_or_insert(hit);
                    if scan.table.is_none() {
                        self.open.push(hit);
                    }
                }
            }
        }
        if let Some((_, table)) = &scan.table {
            self.table(segment, table, first_hole);
        }
    }

    fn tracker(&mut self, owner: OwnerId) -> &mut Tracker {
        self.owners.entry(owner).or_insert_with(|| Tracker::new(OwnerState::default()))
    }

    fn frame(&mut self, segment: u64, frame: FoundFrame, bad: Option<Hit>) {
        let FoundFrame { offset, owner, kind, position, sequence, location } = frame;
        let spot = Spot { segment, offset };
        let near = self.last_hole.unwrap_or(Hit { spot, certain: true });
        let tracker = self.tracker(owner);
        if spot < tracker.state.base {
            return;
        }
        tracker.pass(sequence, spot, near);
        match bad {
            Some(hit) if position >= tracker.state.first_needed => tracker.hit(hit),
            Some(_) => {}
            None => tracker.frames += 1,
        }
        if bad.is_none() {
            self.survivors.push(Survivor { owner, kind, position, location });
        }
        let ranges = self.ranges.entry(segment).or_default();
        ranges
            .entry(owner)
            .and_modify(|range| range.extend(position, sequence))
            .or_insert_with(|| Range::of(position, sequence));
    }

    fn table(&mut self, segment: u64, table: &crate::format::batch::Table, hole: Option<Hit>) {
        let spot = Spot { segment, offset: table.frames_end };
        let near = hole.unwrap_or(Hit { spot: Spot { segment, offset: 0 }, certain: true });
        for (owner, range) in &table.owners {
            let tracker = self.tracker(*owner);
            if spot <= tracker.state.base || tracker.next > range.sequence_last {
                continue;
            }
            if range.position_max >= tracker.state.first_needed {
                tracker.hit(near);
            }
            tracker.next = range.sequence_last.saturating_add(1);
            tracker.last = spot;
            self.ranges.entry(segment).or_default().insert(*owner, *range);
        }
    }

    /// After the last segment: an owner that does not go on behind a hole is not proven whole.
    pub(crate) fn finish(&mut self) {
        for hit in std::mem::take(&mut self.open) {
            for tracker in self.owners.values_mut() {
                if hit.spot >= tracker.state.base && tracker.last < hit.spot {
                    tracker.hit(hit);
                }
            }
            self.unlisted.get_or_insert(hit);
        }
    }

    /// Marks every owner: nothing says any more who was marked before.
    pub(crate) fn distrust(&mut self, spot: Spot) {
        let hit = Hit { spot, certain: false };
        self.owners.values_mut().for_each(|tracker| tracker.hit = Some(hit));
        self.unlisted = Some(hit);
    }
}
