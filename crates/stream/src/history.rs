//! What belongs to a group as a whole: which history it is in, and since when it is led.

use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_base::{Incarnation, Millis};

/// The group beside its streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Group {
    /// History events so far.
    pub events: u64,
    /// The nonce of the newest one; there is one if there are events.
    pub nonce: u64,
    /// When the newest leader began: no sliding expiry ends within its window from here.
    pub lead: Millis,
}

/// The only version of the encoding that there is.
const VERSION: u16 = 1;

impl Group {
    pub fn encode(&self) -> Bytes {
        let mut w = Writer::new();
        w.u16(VERSION).u64(self.events).u64(self.nonce).u64(self.lead.0);
        w.into_vec().into()
    }

    /// Reads it back; of a group that stored nothing yet, the beginning.
    pub fn decode(record: Bytes) -> Result<Self, DecodeError> {
        if record.is_empty() {
            return Ok(Self::default());
        }
        let mut r = Reader::new(record);
        match r.u16()? {
            VERSION => {}
            version => return Err(DecodeError::Version(version)),
        }
        let group = Self { events: r.u64()?, nonce: r.u64()?, lead: Millis(r.u64()?) };
        r.finish()?;
        if group.events == 0 && group.nonce != 0 {
            return Err(DecodeError::Invalid("nonce"));
        }
        Ok(group)
    }

    /// The token that a stream has in the present history, if it was last written in an earlier one under `token`.
    ///
    /// Follows from both alone, so that an event costs nothing for a stream that nobody asks about. Two events on one
    /// token differ in their nonces, also where a restore undid the first of them.
    pub fn token(&self, token: Incarnation) -> Incarnation {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&token.get().to_le_bytes()).update(&self.nonce.to_le_bytes());
        let drawn = hasher.finalize();
        let first = drawn.as_bytes()[..8].try_into().expect("a hash has 32 bytes");
        let number = (1 << 52) | (u64::from_le_bytes(first) >> 12);
        let renewed = if number == token.get() { number ^ 1 } else { number };
        Incarnation::new(renewed).unwrap_or(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(n: u64) -> Incarnation {
        Incarnation::new((1 << 52) + n).expect("a small number above 2^52 is a token")
    }

    #[test]
    fn a_new_history_gives_every_token_another_one_and_no_two_events_the_same() {
        let event = |nonce| Group { events: 1, nonce, lead: Millis(0) };
        let tokens = |nonce| (0..100).map(move |n| event(nonce).token(token(n)));
        assert!(tokens(7).zip(0..).all(|(renewed, n)| renewed != token(n) && renewed.get() >= 1 << 52));
        assert!(tokens(7).zip(tokens(8)).all(|(one, other)| one != other));
        // Part of the data's meaning: nodes and restarts must agree.
        assert_eq!(event(7).token(token(1)).get(), 8_363_109_058_962_727);
    }

    #[test]
    fn a_group_reads_back_and_one_that_cannot_be_is_refused() {
        let group = Group { events: 3, nonce: 9, lead: Millis(1_700_000_000_000) };
        assert_eq!(Group::decode(group.encode()), Ok(group));
        assert_eq!(Group::decode(Bytes::new()), Ok(Group::default()));
        assert_eq!(Group::decode(Group { events: 0, ..group }.encode()), Err(DecodeError::Invalid("nonce")));
        let later = Bytes::from_static(&[2, 0]);
        assert_eq!(Group::decode(later), Err(DecodeError::Version(2)));
        let record = group.encode();
        for cut in 1..record.len() {
            assert!(Group::decode(record.slice(..cut)).is_err(), "whole at {cut}");
        }
    }
}
