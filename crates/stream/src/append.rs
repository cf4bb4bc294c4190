//! The order in which an append is judged.

use crate::command::{Append, BodyFault, ProducerKey};
use crate::history::Group;
use crate::machine::Options;
use crate::outcome::{Outcome, Receipt, Refusal};
use crate::producer::{Circumstances, Producer, Verdict, judge};
use crate::state::Stream;
use highwater_base::{Incarnation, Millis, Offset};

/// A write that passed every check, and what applying it changes beside the bytes.
struct Admitted<'a> {
    start: Offset,
    next: Offset,
    producer: Option<(&'a ProducerKey, Verdict)>,
    /// The floor once the producer's own idle record is retired.
    floor: Option<u64>,
    /// Producers idle for an hour make room for this one.
    evicts: bool,
}

/// Judges an append to an existing stream and, if nothing speaks against it, applies it; `Ok` with `true` if the
/// stream changed.
///
/// The order is: token, retirement of the producer's own idle record, key table, closed, producer limit, digest,
/// empty body, content type, JSON, `Stream-Seq`. So a write that applied is never refused when it is repeated, and a fault
/// of the content is reported only for a write that would otherwise apply. The producer limit stands behind closed
/// because closed is final and the limit is not. A refusal changes nothing, the retirement included.
pub(crate) fn append(
    stream: &mut Stream,
    group: &Group,
    options: &Options,
    at: Millis,
    append: &Append,
) -> Result<(Outcome, bool), Refusal> {
    match admit(stream, group, options, at, append)? {
        Judged::Known(outcome) => Ok((outcome, false)),
        Judged::Admitted(admitted) => {
            stream.renew(group);
            Ok((apply(stream, options, at, append, admitted), true))
        }
    }
}

enum Judged<'a> {
    Known(Outcome),
    Admitted(Admitted<'a>),
}

fn admit<'a>(
    stream: &Stream,
    group: &Group,
    options: &Options,
    at: Millis,
    append: &'a Append,
) -> Result<Judged<'a>, Refusal> {
    let incarnation = check_token(stream, group, append.incarnation)?;
    let mut floor = stream.floor();
    let mut producer = None;
    let mut opens = false;
    if let Some(key) = &append.producer {
        let record = stream.producers.get(&key.id);
        opens = record.is_none();
        let idle = record.filter(|record| at.since(record.last_applied) >= options.producer_idle_ms_max);
        floor = floor.max(idle.map(|record| record.epoch));
        let record = if idle.is_some() { None } else { record };
        match judge(record, key, circumstances(stream, group, append.incarnation.is_some(), floor))? {
            Verdict::Known(outcome) => return Ok(Judged::Known(outcome)),
            verdict => producer = Some((key, verdict)),
        }
    }
    if stream.closed {
        return match producer {
            None if append.close && append.body.is_empty() => {
                Ok(Judged::Known(appended(stream, incarnation, stream.next)))
            }
            _ => Err(Refusal::StreamClosed { next: stream.next }),
        };
    }
    let evicts = opens && stream.producers.len() >= options.producers_max;
    if evicts && !stream.producers.iter().any(|p| at.since(p.last_applied) >= options.producer_evictable_ms_min) {
        return Err(Refusal::ProducerLimit);
    }
    check_content(stream, append)?;
    let length = append.body.len() as u64;
    let next = Offset(stream.next.0.saturating_add(length));
    Ok(Judged::Admitted(Admitted { start: stream.next, next, producer, floor, evicts }))
}

/// What the key table is told of a stream.
pub(crate) fn circumstances(stream: &Stream, group: &Group, tokened: bool, floor: Option<u64>) -> Circumstances {
    Circumstances { tokened, floor, history: group.events, incarnation: stream.identity(group).incarnation }
}

/// Holds a precondition against the stream's token, and tells which that is.
pub(crate) fn check_token(stream: &Stream, group: &Group, asked: Option<Incarnation>) -> Result<Incarnation, Refusal> {
    let current = stream.identity(group).incarnation;
    match asked {
        Some(token) if token != current => Err(Refusal::IncarnationMismatch { current: Some(current) }),
        _ => Ok(current),
    }
}

fn check_content(stream: &Stream, append: &Append) -> Result<(), Refusal> {
    if append.body_fault == Some(BodyFault::DigestMismatch) {
        return Err(Refusal::DigestMismatch);
    }
    // A body that is no message is a body all the same, though nothing of it is in the command.
    let has_body = !append.body.is_empty() || append.body_fault.is_some();
    if !has_body && !append.close {
        return Err(Refusal::EmptyAppend);
    }
    if has_body {
        let asked = append.content_type.as_deref().ok_or(Refusal::MissingContentType)?;
        let keyed = append.incarnation.is_some() || append.producer.as_ref().is_some_and(|key| key.digest.is_some());
        if !stream.content_type_is(asked, keyed) {
            let expected = stream.content_type.as_ref().to_owned();
            return Err(Refusal::ContentTypeMismatch { expected, next: stream.next });
        }
    }
    match append.body_fault {
        Some(BodyFault::InvalidJson) => return Err(Refusal::InvalidJson),
        Some(BodyFault::EmptyArray) => return Err(Refusal::EmptyArray),
        Some(BodyFault::DigestMismatch) | None => {}
    }
    match (append.stream_seq.as_deref(), stream.stream_seq()) {
        (Some(asked), Some(last)) if asked.as_bytes() <= last.as_bytes() => {
            Err(Refusal::StreamSeqConflict { last: last.to_owned() })
        }
        _ => Ok(()),
    }
}

fn apply(stream: &mut Stream, options: &Options, at: Millis, append: &Append, admitted: Admitted<'_>) -> Outcome {
    stream.next = admitted.next;
    stream.closed |= append.close;
    stream.touch(at);
    if let Some(seq) = &append.stream_seq {
        stream.rare_mut().stream_seq = Some(seq.clone().into_boxed_str());
    }
    stream.raise_floor(admitted.floor);
    let Some((key, verdict)) = admitted.producer else {
        return appended(stream, stream.incarnation, admitted.start);
    };
    let closes = match verdict {
        Verdict::Claim { closes } => closes,
        _ => None,
    };
    let receipt = Receipt {
        epoch: key.epoch,
        seq: key.seq,
        start: admitted.start,
        next: admitted.next,
        incarnation: stream.incarnation,
        closed_epoch: closes,
        closed_stream: append.close,
        had_body: !append.body.is_empty(),
    };
    let producer = recorded(stream, at, append.incarnation.is_some(), key, &verdict, &receipt);
    if admitted.evicts {
        let forgotten = stream.producers.evict(at, options.producer_evictable_ms_min);
        stream.raise_floor(forgotten);
    }
    stream.producers.put(producer);
    Outcome::Applied(receipt)
}

/// The producer's record after a write. The floor is the one that the key was judged by.
fn recorded(
    stream: &Stream,
    at: Millis,
    tokened: bool,
    key: &ProducerKey,
    verdict: &Verdict,
    receipt: &Receipt,
) -> Producer {
    let forbidden_to_tokened = stream.floor().is_some_and(|floor| key.epoch <= floor);
    // A claim that ends no epoch found no record, or one that idleness had ended.
    let earlier = match verdict {
        Verdict::Claim { closes: None } => None,
        _ => stream.producers.get(&key.id),
    };
    let claims = matches!(verdict, Verdict::Claim { .. });
    Producer {
        id: key.id.as_str().into(),
        epoch: key.epoch,
        seq: key.seq,
        start: receipt.start,
        next: receipt.next,
        had_body: receipt.had_body,
        closed_stream: receipt.closed_stream,
        below_floor: forbidden_to_tokened && earlier.map_or(!tokened, |earlier| earlier.below_floor),
        claim_digest: earlier.filter(|_| !claims).map_or(key.digest, |earlier| earlier.claim_digest),
        newest_digest: key.digest,
        closed_epoch: if claims { receipt.closed_epoch } else { earlier.and_then(|earlier| earlier.closed_epoch) },
        history: earlier.filter(|_| !claims).map_or(stream.history, |earlier| earlier.history),
        // The clock of a new leader may be behind; idleness never starts before the newest write.
        last_applied: earlier.map_or(at, |earlier| earlier.last_applied.max(at)),
    }
}

fn appended(stream: &Stream, incarnation: Incarnation, start: Offset) -> Outcome {
    Outcome::Appended { start, next: stream.next, incarnation, closed: stream.closed }
}
