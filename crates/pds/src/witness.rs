//! What is remembered outside the directory of accounts, so that a directory which went back, or is gone, does not hand out again what
//! the lost run handed out.

use crate::sequence::SEQ_MAX;
use crate::state::State;
use highwater_repo::Tid;

/// The highest of everything that runs of this server ever handed out, as far as they wrote it down: after each raise of the floor and
/// before its first frame, with each checkpoint, at each start and each stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Witness {
    /// The number of the start that wrote it.
    pub nonce: u64,
    /// The highest number of the stream that anybody may have been given.
    pub seq: u64,
    /// The newest revision.
    pub rev: Option<Tid>,
    /// The number of the account that was made last; 0 if there never was one.
    pub account: u64,
}

impl Witness {
    /// What there is to remember of a state that is durable, beside what is remembered already. What a lost run handed out stays, though
    /// the state knows nothing of it; its accounts are over once a restore went above its numbers.
    #[must_use]
    pub fn of(state: &State, before: Option<Self>) -> Self {
        let before = before.unwrap_or_default();
        let rev = state.accounts.values().filter_map(|account| account.head).map(|head| head.rev).max();
        let account = state.next_account().0.saturating_sub(1);
        let is_ahead = state.sequence.ceiling() > before.seq;
        Self {
            nonce: state.boot_nonce,
            seq: before.seq.max(state.sequence.ceiling()),
            rev: before.rev.max(rev),
            account: if is_ahead { account } else { before.account.max(account) },
        }
    }

    /// Whether its numbers are numbers.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.seq <= SEQ_MAX
    }

    /// Whether a directory's state can be what wrote it, or a later one.
    #[must_use]
    pub fn knows(&self, state: &State) -> bool {
        // A start that died between the log and the witness leaves the number before its own there.
        let nonce = state.boot_nonce == self.nonce || state.boot_nonce_before == self.nonce;
        nonce && self.seq <= state.sequence.ceiling() && self.account < state.next_account().0
    }
}
