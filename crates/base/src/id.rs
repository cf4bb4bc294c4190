//! Who: nodes, groups, and the owners of log frames.

use std::fmt;

/// A node of a cluster; whole numbers from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// A Raft group of a cluster; numbered from 0, their count fixed when the cluster is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// Who a frame of the write-ahead log belongs to: a kind in the top byte, the kind's own number below.
///
/// The spelling is part of the log's format (`docs/formats/wal.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u64);

impl OwnerId {
    const GROUP: u64 = 1 << 56;

    /// The owner that stands for the one group of the control plane.
    pub const CONTROL: Self = Self(2 << 56);

    /// The owner that stands for the server of accounts, which has a log and a store of its own.
    pub const PDS: Self = Self(3 << 56);

    /// The owner that stands for a Raft group.
    #[must_use]
    pub fn group(group: GroupId) -> Self {
        Self(Self::GROUP | u64::from(group.0))
    }

    /// The Raft group this owner stands for, if it stands for one.
    #[must_use]
    pub fn as_group(self) -> Option<GroupId> {
        (self.0 & (0xff << 56) == Self::GROUP)
            .then(|| u32::try_from(self.0 & !(0xff << 56)).ok().map(GroupId))
            .flatten()
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}", self.0)
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_group() {
            Some(group) => group.fmt(f),
            None if *self == Self::CONTROL => f.write_str("control"),
            None if *self == Self::PDS => f.write_str("pds"),
            None => write!(f, "owner-{:016x}", self.0),
        }
    }
}
