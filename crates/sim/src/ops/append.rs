//! Append without a key: sent once, never again.

use super::{CONTENT_TYPE, Draft};
use crate::message::Ask;
use crate::oracle::register::Deed;
use highwater_base::Random;
use highwater_stream::{Append, Operation};

/// Appends to the stream at `path`, sometimes only to the history that was last seen there.
pub fn append(draft: &mut Draft<'_>, path: &str) -> Ask {
    let tokened = draft.random.below(2) == 0;
    let incarnation = draft.oracle.token(path).filter(|_| tokened);
    let (_, body) = draft.body();
    let write = draft.oracle.register.add(path, Deed::Keyless, incarnation, false, body.clone());
    let operation = Operation::Append(Append {
        incarnation,
        producer: None,
        body_fault: None,
        content_type: Some(CONTENT_TYPE.to_owned()),
        stream_seq: None,
        close: false,
        body,
    });
    Ask::Write { path: path.to_owned(), operation, write }
}
