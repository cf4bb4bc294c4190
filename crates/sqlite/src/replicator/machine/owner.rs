//! After a won claim: batches, one at a time, and proofs for those who wait.

use super::types::{Condition, Reply, Request, Sealed};
use super::{Action, Environment, Machine, Prepare, State};
use crate::batch::{HEADER_BYTES, Opening, opening};
use crate::engine::{LogPosition, Seal, StopCode, StopReason};
use highwater_base::planted::{self, Bug};
use highwater_client::{Answer, ClosedBy, Outcome, Piece, ProducerRefusal, Receipt, Refusal, TokenId, Written};

/// Bytes that a proof asks for: none are expected, and one claim says who wrote them.
const PROOF_BYTES: u64 = 4 << 10;

/// Attempts on a large batch that all ended without progress before it is given up for smaller ones under a new claim.
const HOPELESS_ATTEMPTS: u32 = 5;
/// Milliseconds from which an attempt without an answer counts as one that the link or a layer choked on.
const HOPELESS_MS: u64 = 5_000;

/// The one batch whose outcome is not known yet.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) sealed: Sealed,
    /// Some attempt ended without a definite refusal.
    pub(super) maybe_applied: bool,
    hopeless: u32,
}

impl InFlight {
    pub(super) fn of_earlier_process(seal: Seal) -> Self {
        let Seal { epoch, seq, from, to, stream_offset, digest, .. } = seal;
        let sealed = Sealed { epoch, seq, from, to, stream_offset, digest: Some(digest) };
        Self { sealed, maybe_applied: true, hopeless: 0 }
    }
}

impl Machine {
    pub(super) fn next_of_owner(&mut self, environment: &mut Environment<'_>) -> Option<Request> {
        if self.in_flight.is_none() {
            self.in_flight =
                self.seal(environment).map(|sealed| InFlight { sealed, maybe_applied: false, hopeless: 0 });
        }
        if let Some(in_flight) = &mut self.in_flight {
            if planted::active(Bug::RecompressOnRetry) && in_flight.sealed.digest.is_some() {
                in_flight.sealed.to = environment.log.confirmed_end();
                in_flight.sealed.digest = None;
            }
            return Some(Request::Append(in_flight.sealed));
        }
        (!self.waiters.is_empty()).then_some(Request::Tail { at: self.stream_end, bytes_max: PROOF_BYTES })
    }

    /// The oldest pending bytes, as many as fit; where a record ends or begins does not matter.
    fn seal(&self, environment: &Environment<'_>) -> Option<Sealed> {
        let end = environment.log.confirmed_end();
        let room = self.sizing.batch_bytes().saturating_sub(HEADER_BYTES as u64);
        let mut from = self.acknowledged;
        if planted::active(Bug::DropPart) && end.since(from) > room && environment.log.record_start(from) != Some(from)
        {
            from = from.plus(room);
        }
        let to = LogPosition(from.plus(room).0.min(end.0));
        (to > from).then_some(Sealed {
            epoch: self.epoch,
            seq: self.next_seq,
            from,
            to,
            stream_offset: self.stream_end,
            digest: None,
        })
    }

    pub(super) fn append_answered(
        &mut self,
        sealed: Sealed,
        token: TokenId,
        reply: Reply,
        environment: &mut Environment<'_>,
        out: &mut Vec<Action>,
    ) {
        let Reply::Written { answer, body_bytes, digest, took_ms } = reply else {
            return self.misdelivered(environment);
        };
        if let Some(in_flight) = &mut self.in_flight {
            // From here on the bytes are fixed: the seal that holds this digest was written down before they were sent.
            in_flight.sealed.digest = Some(digest);
        }
        match &answer.outcome {
            Outcome::Done(Written::Receipt(receipt)) => {
                let receipt = *receipt;
                self.receipt(sealed, &receipt, &answer, (body_bytes, took_ms), environment, out);
            }
            Outcome::Done(_) | Outcome::Unknown => {
                self.append_unknown(&answer, body_bytes, took_ms, environment);
            }
            Outcome::Redirected => self.redirected(&answer, environment),
            Outcome::Refused(refusal) => match refusal.producer {
                Some(producer) => self.append_refused(sealed, producer, &answer, environment, out),
                None if refusal.status == 413 => self.too_large(refusal, &answer, body_bytes, environment),
                None => self.refused(refusal, token, &answer, environment, out),
            },
        }
    }

    fn receipt(
        &mut self,
        sealed: Sealed,
        receipt: &Receipt,
        answer: &Answer<Written>,
        (body_bytes, took_ms): (u64, u64),
        environment: &mut Environment<'_>,
        out: &mut Vec<Action>,
    ) {
        if receipt.incarnation != self.incarnation || receipt.epoch != sealed.epoch || receipt.seq < sealed.seq {
            // Not the answer to this request, whatever it is: it proves nothing.
            return self.append_unknown(answer, body_bytes, took_ms, environment);
        }
        let used_by_another = receipt.seq > sealed.seq;
        let (Some((start, end)), false) = (receipt.range, used_by_another) else {
            // With one append in flight nobody else can have gone on under our key.
            let text = "another process wrote to the stream under this database's own producer key";
            return self.stop(self.reset(StopCode::Fenced, text), out);
        };
        if start != sealed.stream_offset {
            let text = format!("a batch landed at offset {start} instead of {}", sealed.stream_offset);
            return self.stop(self.reset(StopCode::ForeignWrite, &text), out);
        }
        if end.since(start) != body_bytes {
            let text = format!("the receipt spans {} bytes, {body_bytes} were sent", end.since(start));
            return self.block(Condition::Rejected, text, answer.retry_after_ms, environment);
        }
        self.acknowledge(sealed.to, end, environment.log, out);
        self.sizing.took(body_bytes, took_ms);
        self.succeeded();
        if !receipt.repeat {
            // A repeat proves that we still own the stream, but not that nothing came after the first application.
            self.waiters.prove(self.round);
        }
    }

    fn append_unknown(
        &mut self,
        answer: &Answer<Written>,
        body_bytes: u64,
        took_ms: u64,
        environment: &mut Environment<'_>,
    ) {
        let mut hopeless = false;
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.maybe_applied = true;
            let choked = answer.status == 0 && took_ms >= HOPELESS_MS && body_bytes > super::pace::BATCH_BYTES_FLOOR;
            in_flight.hopeless = if choked { in_flight.hopeless + 1 } else { 0 };
            hopeless = in_flight.hopeless >= HOPELESS_ATTEMPTS;
        }
        if hopeless {
            // The same bytes will not get through. The next claim says whether they did after all.
            self.sizing.hopeless(body_bytes);
            self.claim_anew(0, false);
        }
        self.unknown(answer, environment);
    }

    fn append_refused(
        &mut self,
        sealed: Sealed,
        producer: ProducerRefusal,
        answer: &Answer<Written>,
        environment: &mut Environment<'_>,
        out: &mut Vec<Action>,
    ) {
        match producer {
            ProducerRefusal::EpochClosed { by: ClosedBy::Claim, epoch, closed } => {
                if closed.epoch == sealed.epoch && closed.seq >= sealed.seq {
                    let end = sealed.stream_offset.0 + HEADER_BYTES as u64 + sealed.to.since(sealed.from);
                    self.acknowledge(sealed.to, highwater_base::Offset(end), environment.log, out);
                }
                let text = format!("another process claimed the database's stream under epoch {epoch}");
                self.stop(self.reset(StopCode::Fenced, &text), out);
            }
            ProducerRefusal::StaleEpoch { epoch } => {
                let text = format!("another process claimed the database's stream under epoch {epoch}");
                self.stop(self.reset(StopCode::Fenced, &text), out);
            }
            ProducerRefusal::KeyConflict { epoch } => {
                let text = format!("another process writes under this database's epoch {epoch}");
                self.stop(self.reset(StopCode::Fenced, &text), out);
            }
            ProducerRefusal::EpochClosed { by: ClosedBy::History, .. } => {
                let text = "the server was restored, or accepted a loss, since the last acknowledged commit";
                self.stop(self.reset(StopCode::History, text), out);
            }
            ProducerRefusal::Expired { epoch } => {
                // The server forgot us. Nothing is lost if nothing was written since: the look before the claim tells.
                self.claim_anew(epoch, true);
                self.retry(answer.describe(), answer.retry_after_ms, environment);
            }
            ProducerRefusal::SeqGap { expected, .. } if expected < sealed.seq => {
                let text = format!(
                    "server_lost_data: the server expects number {expected} although it acknowledged {} before; the \
                     local files are kept",
                    sealed.seq - 1
                );
                self.probe_then(Some(text), environment);
            }
            ProducerRefusal::SeqGap { .. } | ProducerRefusal::EpochNotClaimed => {
                self.probe_then(Some(answer.describe()), environment);
            }
        }
    }

    /// Cuts the batch anew under the same key if every attempt was refused; otherwise a claim must first tell whether
    /// one of them applied.
    fn too_large(
        &mut self,
        refusal: &Refusal,
        answer: &Answer<Written>,
        body_bytes: u64,
        environment: &mut Environment<'_>,
    ) {
        if !self.sizing.too_large(body_bytes, refusal.request_bytes_max) {
            return self.block(Condition::RequestTooLarge, answer.describe(), answer.retry_after_ms, environment);
        }
        match self.in_flight.take() {
            Some(in_flight) if in_flight.maybe_applied => {
                self.in_flight = Some(in_flight);
                self.claim_anew(0, false);
            }
            _ => {}
        }
        self.retry(answer.describe(), answer.retry_after_ms, environment);
    }

    /// Gives the present epoch up for a claim of a higher one, above `floor`.
    pub(super) fn claim_anew(&mut self, floor: u64, expired: bool) {
        let mut prepare = Prepare::new(self.gap());
        prepare.floor = floor;
        prepare.expired = expired;
        self.state = State::Claiming(Box::new(prepare));
    }

    /// A leader read at our acknowledged end, for those who wait while nothing is pending.
    pub(super) fn proof_answered(
        &mut self,
        token: TokenId,
        answer: &Answer<Piece>,
        environment: &mut Environment<'_>,
        out: &mut Vec<Action>,
    ) {
        let Some(piece) = self.piece(token, answer, environment, out) else { return };
        if piece.body.is_empty() && piece.next == self.stream_end {
            self.succeeded();
            self.waiters.prove(self.round);
            return;
        }
        let (code, what) = match opening(&piece.body) {
            Opening::Ours(claim) => (StopCode::Fenced, format!("the claim of epoch {}", claim.epoch)),
            _ => (StopCode::ForeignWrite, "bytes that this process did not write".to_owned()),
        };
        self.stop(self.reset(code, &format!("{what} at offset {}, behind our own commits", self.stream_end)), out);
    }

    /// A reset with what to do about it.
    pub(super) fn reset(&self, code: StopCode, what: &str) -> StopReason {
        let advice = match code {
            // The stream is another one, or an older one: what was acknowledged may be in these files alone.
            StopCode::History | StopCode::Recreated => {
                "the stream may hold less than it acknowledged, and the local files hold everything: keep them, compare \
                 with `highwater db verify`, and go on either from a copy of the file, bound to a new stream, or from \
                 what `highwater db restore` brings to another path"
            }
            _ => {
                "commits that were not acknowledged stay in the local files, which are kept; run `highwater db restore` \
                 on another path to continue from the stream"
            }
        };
        StopReason::new(code, format!("{what}; {advice}"))
    }
}
