//! One stream.

use crate::command::Expiry;
use crate::history::Group;
use crate::outcome::{SnapshotHead, SnapshotPart};
use crate::producer::Producers;
use highwater_base::planted::{Bug, active};
use highwater_base::{Incarnation, Millis, Offset};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

mod codec;

pub(crate) use codec::{decode, encode};

/// Everything a stream is, but its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stream {
    pub path: Box<str>,
    /// The token of the history in which it was last written.
    pub incarnation: Incarnation,
    /// Shared among the streams of this type.
    pub content_type: Arc<str>,
    pub next: Offset,
    pub retained: Offset,
    pub closed: bool,
    /// How many history events the group had gone through when it was last written.
    pub history: u64,
    /// What most streams lack.
    pub rare: Option<Box<Rare>>,
    pub producers: Producers,
    /// Of this copy in memory alone.
    pub residence: Residence,
}

/// What is known of a stream for as long as it is in memory: no part of its state, so that all are equal.
///
/// Both in one number, which fits beside the flag of closure: whether it was used since eviction last came by, and what it
/// costs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Residence(Cell<u32>);

impl PartialEq for Residence {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Residence {}

impl Residence {
    const USED: u32 = 1 << 31;

    pub fn note_use(&self) {
        self.0.set(self.0.get() | Self::USED);
    }

    /// Whether it was used since this was last asked.
    pub fn take_used(&self) -> bool {
        let before = self.0.get();
        self.0.set(before & !Self::USED);
        before & Self::USED != 0
    }

    /// The bytes that were last noted.
    pub fn bytes(&self) -> u32 {
        self.0.get() & !Self::USED
    }

    pub fn set_bytes(&self, bytes: u32) {
        self.0.set(self.0.get() & Self::USED | bytes.min(Self::USED - 1));
    }
}

/// What most streams lack, so that they do not pay for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rare {
    /// The token before the history of the last write, and the offset below which the bytes are the same under both.
    pub previous: Option<(Incarnation, Offset)>,
    pub lifetime: Option<Lifetime>,
    pub snapshot: Option<Snapshot>,
    /// Parts that no snapshot took, by object.
    pub staged: BTreeMap<u64, Staged>,
    /// The last accepted `Stream-Seq`.
    pub stream_seq: Option<Box<str>>,
    /// The highest epoch among the producers that were forgotten.
    pub floor: Option<u64>,
}

/// When a stream ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// At the deadline, unless it is touched before.
    Sliding {
        ttl_s: u64,
        deadline: Millis,
    },
    At(Millis),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub head: SnapshotHead,
    pub content_type: Box<str>,
    pub parts: Box<[SnapshotPart]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Staged {
    pub length: u64,
    pub at: Millis,
}

/// A stream's token in the group's present history, and the one that it says was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub incarnation: Incarnation,
    pub previous: Option<(Incarnation, Offset)>,
}

/// What a stream takes with its allocation and two entries of indexes.
const STREAM_BYTES: usize = size_of::<Stream>() + 64;
/// What a producer takes with its id.
const PRODUCER_BYTES: usize = size_of::<crate::producer::Producer>() + 48;
const PART_BYTES: usize = size_of::<SnapshotPart>();
const STAGED_BYTES: usize = 40;

/// Milliseconds by which a sliding deadline lies behind the window: only a touch that moves it by so much is proposed,
/// so that a stream that is read all the time costs eight entries a window.
pub(crate) fn slack_ms(ttl_s: u64) -> u64 {
    (ttl_s.saturating_mul(1_000) / 8).max(SLACK_MS_MIN)
}

/// At least a tenth of a second, which is how often the node looks.
const SLACK_MS_MIN: u64 = 100;

impl Lifetime {
    pub fn begun(expiry: Expiry, at: Millis) -> Self {
        match expiry {
            Expiry::Sliding { ttl_s } => Self::Sliding { ttl_s, deadline: sliding_deadline(ttl_s, at) },
            Expiry::At(at) => Self::At(at),
        }
    }

    pub fn expiry(self) -> Expiry {
        match self {
            Self::Sliding { ttl_s, .. } => Expiry::Sliding { ttl_s },
            Self::At(at) => Expiry::At(at),
        }
    }

    /// When the stream ends, led since `lead`.
    pub fn deadline(self, lead: Millis) -> Millis {
        match self {
            Self::Sliding { ttl_s, deadline } => deadline.max(sliding_deadline(ttl_s, lead)),
            Self::At(at) => at,
        }
    }
}

pub(crate) fn sliding_deadline(ttl_s: u64, at: Millis) -> Millis {
    at.plus(ttl_s.saturating_mul(1_000)).plus(slack_ms(ttl_s))
}

impl Stream {
    /// Whether `asked` names this stream's content type: as a whole, or by type and subtype only.
    ///
    /// Browsers add a charset to what they send as text, so a plain request is held to the type and subtype. Both
    /// values are normalised.
    pub fn content_type_is(&self, asked: &str, whole: bool) -> bool {
        let essence = |value: &'_ str| value.split(';').next().unwrap_or_default().trim().to_owned();
        if whole { *self.content_type == *asked } else { essence(&self.content_type) == essence(asked) }
    }

    /// Its token in the group's present history. One that was not written since an event has another token, and keeps
    /// naming the history in which it was last written, through any number of events.
    pub fn identity(&self, group: &Group) -> Identity {
        if self.history < group.events && !active(Bug::KeepTokens) {
            let previous = Some((self.incarnation, self.next));
            return Identity { incarnation: group.token(self.incarnation), previous };
        }
        let previous = self.rare.as_deref().and_then(|rare| rare.previous);
        Identity { incarnation: self.incarnation, previous }
    }

    /// Brings it into the group's present history, before it is written.
    pub fn renew(&mut self, group: &Group) {
        if self.history < group.events {
            let Identity { incarnation, previous } = self.identity(group);
            (self.incarnation, self.history) = (incarnation, group.events);
            self.rare_mut().previous = previous;
        }
    }

    pub fn lifetime(&self) -> Option<Lifetime> {
        self.rare.as_deref().and_then(|rare| rare.lifetime)
    }

    pub fn slides(&self) -> bool {
        matches!(self.lifetime(), Some(Lifetime::Sliding { .. }))
    }

    /// Whether it has ended at a time.
    pub fn ended(&self, at: Millis, lead: Millis) -> bool {
        self.lifetime().is_some_and(|lifetime| lifetime.deadline(lead) <= at)
    }

    /// Lets its window begin anew; whether that moved anything. A clock that is behind moves nothing back.
    pub fn touch(&mut self, at: Millis) -> bool {
        let Some(Rare { lifetime: Some(Lifetime::Sliding { ttl_s, deadline }), .. }) = self.rare.as_deref_mut() else {
            return false;
        };
        let moved = sliding_deadline(*ttl_s, at);
        let later = moved > *deadline;
        if later {
            *deadline = moved;
        }
        later
    }

    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.rare.as_deref().and_then(|rare| rare.snapshot.as_ref())
    }

    pub fn staged(&self) -> impl Iterator<Item = (u64, Staged)> {
        self.rare.iter().flat_map(|rare| &rare.staged).map(|(object, staged)| (*object, *staged))
    }

    /// Every object beside the stream's own that holds bytes of it.
    pub fn parts(&self) -> impl Iterator<Item = SnapshotPart> {
        let staged = self.staged().map(|(object, staged)| SnapshotPart { object, length: staged.length });
        self.snapshot().into_iter().flat_map(|snapshot| snapshot.parts.iter().copied()).chain(staged)
    }

    /// Bytes that it holds: those that can be read, its snapshot's, and its parts'.
    pub fn held_bytes(&self) -> u64 {
        self.next.since(self.retained) + self.parts().map(|part| part.length).sum::<u64>()
    }

    pub fn stream_seq(&self) -> Option<&str> {
        self.rare.as_deref().and_then(|rare| rare.stream_seq.as_deref())
    }

    pub fn floor(&self) -> Option<u64> {
        self.rare.as_deref().and_then(|rare| rare.floor)
    }

    /// Raises the floor; it never falls.
    pub fn raise_floor(&mut self, floor: Option<u64>) {
        if floor > self.floor() {
            self.rare_mut().floor = floor;
        }
    }

    /// About the bytes of memory that it takes, with its places in the indexes.
    pub fn memory_bytes(&self) -> u32 {
        let rare = self.rare.as_deref().map_or(0, |rare| {
            let parts = rare.snapshot.as_ref().map_or(0, |snapshot| 64 + PART_BYTES * snapshot.parts.len());
            let seq = rare.stream_seq.as_deref().map_or(0, str::len);
            size_of::<Rare>() + parts + STAGED_BYTES * rare.staged.len() + seq
        });
        let bytes = STREAM_BYTES + self.path.len() + rare + PRODUCER_BYTES * self.producers.len();
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    pub fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Drops what was made room for and is not needed: equal streams must be equal.
    pub fn tidy(&mut self) {
        if self.rare.as_deref().is_some_and(|rare| *rare == Rare::default()) {
            self.rare = None;
        }
    }
}
