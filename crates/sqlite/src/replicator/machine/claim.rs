//! How ownership is taken: look, claim, look once more.

use super::gap::{Foreign, Gap};
use super::types::{Condition, Reply, Request};
use super::{Action, Environment, Machine, State};
use crate::batch::{Claim, HEADER_BYTES, NONCE_BYTES, Opening, opening};
use crate::engine::{ClaimWon, StopCode};
use highwater_base::{Offset, limits};
use highwater_client::{Answer, ClosedBy, Head, Outcome, Piece, ProducerRefusal, Receipt, TokenId, Written};

/// Bytes of a claim, all of them.
const CLAIM_BYTES: u64 = (HEADER_BYTES + 2 * NONCE_BYTES) as u64;

/// A claim in preparation.
#[derive(Debug)]
pub(super) struct Prepare {
    step: Step,
    gap: Gap,
    /// The end of the stream as the head named it.
    tail: Offset,
    /// The claim must be above this epoch.
    pub(super) floor: u64,
    /// The server had forgotten our epoch.
    pub(super) expired: bool,
    claim: Option<Claim>,
    /// Some attempt of this claim ended without a definite refusal.
    maybe_applied: bool,
    /// The number of the claim's last request.
    round: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Ask for the head.
    Head,
    /// Read the stream's first bytes.
    Opening,
    /// Read what lies behind our end before the claim.
    Gap,
    /// Claim.
    Claim,
    /// Read what came between our end and the claim, which is won.
    Closing(Receipt),
}

impl Prepare {
    pub(super) fn new(gap: Gap) -> Self {
        Self {
            step: Step::Head,
            gap,
            tail: Offset(0),
            floor: 0,
            expired: false,
            claim: None,
            maybe_applied: false,
            round: 0,
        }
    }
}

impl Machine {
    /// A reader of what lies behind our acknowledged end.
    pub(super) fn gap(&self) -> Gap {
        Gap::new(self.stream_end, self.lineage, self.in_flight.as_ref().map(|in_flight| in_flight.sealed))
    }

    pub(super) fn next_of_claim(&mut self, environment: &mut Environment<'_>) -> Option<Request> {
        let State::Claiming(prepare) = &mut self.state else { return None };
        if prepare.step == Step::Opening && (self.opening_seen || prepare.tail == Offset(0)) {
            prepare.step = Step::Gap;
        }
        if prepare.step == Step::Gap && prepare.gap.complete(prepare.tail) {
            prepare.step = Step::Claim;
        }
        Some(match prepare.step {
            Step::Head => Request::Head,
            Step::Opening => Request::Opening,
            Step::Gap => tail(&prepare.gap, prepare.tail),
            Step::Closing(receipt) => tail(&prepare.gap, receipt.range.map_or(prepare.tail, |(start, _)| start)),
            Step::Claim => {
                let claim = prepare.claim.unwrap_or_else(|| {
                    let mut nonce = [0; NONCE_BYTES];
                    let (low, high) = nonce.split_at_mut(NONCE_BYTES / 2);
                    low.copy_from_slice(&environment.random.next_u64().to_le_bytes());
                    high.copy_from_slice(&environment.random.next_u64().to_le_bytes());
                    let epoch = self.epoch.max(prepare.floor).max(prepare.gap.epoch()) + 1;
                    Claim { epoch, nonce, lineage: self.lineage, base_lsn: self.acknowledged_lsn }
                });
                prepare.claim = Some(claim);
                Request::Claim(claim)
            }
        })
    }

    /// The head is that of our stream, at our server.
    pub(super) fn head_seen(&mut self, head: &Head, environment: &mut Environment<'_>, out: &mut Vec<Action>) {
        if head.closed {
            let text = "the stream is closed and takes no more writes".to_owned();
            return self.block(Condition::Rejected, text, None, environment);
        }
        if head.next < self.stream_end {
            let text = format!(
                "server_lost_data: the stream ends at {}, although the server acknowledged everything up to {}; the local \
                 files are kept",
                head.next, self.stream_end
            );
            return self.block(Condition::Rejected, text, None, environment);
        }
        if let Some(probe) = self.probe.take() {
            match probe.verdict {
                Some(verdict) => self.block(Condition::Rejected, verdict, None, environment),
                None => self.retry(self.trouble.last_error.clone(), None, environment),
            }
            return;
        }
        self.sizing.advertise(head.request_bytes_max);
        let State::Claiming(prepare) = &mut self.state else { return };
        prepare.tail = head.next;
        prepare.step = Step::Opening;
        // The bound is generous: the one batch in flight, and claims of earlier processes that died right after them.
        if head.next.since(self.stream_end) > 2 * limits::READ_BYTES_MAX {
            let text = format!(
                "the stream ends at {}, far behind our own commits, which end at {}",
                head.next, self.stream_end
            );
            let code = if prepare.expired { StopCode::Expired } else { StopCode::Fenced };
            self.stop(self.reset(code, &text), out);
        }
    }

    pub(super) fn opening_answered(
        &mut self,
        token: TokenId,
        answer: &Answer<Piece>,
        environment: &mut Environment<'_>,
        out: &mut Vec<Action>,
    ) {
        let Some(piece) = self.piece(token, answer, environment, out) else { return };
        let State::Claiming(prepare) = &mut self.state else { return };
        let cut_short = (piece.body.len() as u64) < CLAIM_BYTES.min(prepare.tail.0);
        match opening(&piece.body) {
            Opening::Ours(_) => {
                prepare.step = Step::Gap;
                self.opening_seen = true;
            }
            _ if cut_short => self.retry("the stream's first bytes could not be read".to_owned(), None, environment),
            Opening::Empty | Opening::Foreign(_) => {
                let text = "the stream does not hold a database of this format; it was not touched".to_owned();
                self.block(Condition::Rejected, text, None, environment);
            }
        }
    }

    pub(super) fn gap_answered(
        &mut self,
        token: TokenId,
        answer: &Answer<Piece>,
        environment: &mut Environment<'_>,
        out: &mut Vec<Action>,
    ) {
        let Some(piece) = self.piece(token, answer, environment, out) else { return };
        let State::Claiming(prepare) = &mut self.state else { return };
        if piece.body.is_empty() {
            // The head promised bytes here.
            return self.retry("the end of the stream could not be read".to_owned(), None, environment);
        }
        let won = match prepare.step {
            Step::Closing(receipt) => Some(receipt),
            _ => None,
        };
        let end = won.and_then(|receipt| receipt.range).map_or(prepare.tail, |(start, _)| start);
        let wanted = usize::try_from(end.since(prepare.gap.next())).unwrap_or(usize::MAX);
        if let Err(foreign) = prepare.gap.push(&piece.body[..piece.body.len().min(wanted)]) {
            return self.foreign(&foreign, out);
        }
        if prepare.gap.next() == end && !prepare.gap.complete(end) {
            let what = "a piece of something that is not a batch".to_owned();
            let foreign = Foreign { code: StopCode::ForeignWrite, offset: prepare.gap.next().0, what };
            return self.foreign(&foreign, out);
        }
        if let (Some(receipt), true) = (won, prepare.gap.complete(end)) {
            self.won(&receipt, environment, out);
        }
    }

    pub(super) fn claim_answered(
        &mut self,
        claim: Claim,
        token: TokenId,
        reply: Reply,
        environment: &mut Environment<'_>,
        out: &mut Vec<Action>,
    ) {
        let Reply::Written { answer, .. } = reply else { return self.misdelivered(environment) };
        let State::Claiming(prepare) = &mut self.state else { return };
        match &answer.outcome {
            Outcome::Done(Written::Receipt(receipt))
                if receipt.incarnation == self.incarnation && receipt.epoch == claim.epoch =>
            {
                let receipt = *receipt;
                prepare.round = self.round;
                self.claimed(&receipt, environment, out);
            }
            Outcome::Done(_) | Outcome::Unknown => {
                prepare.maybe_applied = true;
                self.unknown(&answer, environment);
            }
            Outcome::Redirected => self.redirected(&answer, environment),
            Outcome::Refused(refusal) => match refusal.producer {
                Some(ProducerRefusal::EpochClosed { by: ClosedBy::History, .. }) => {
                    self.probe_then(Some(answer.describe()), environment);
                }
                Some(
                    ProducerRefusal::EpochClosed { epoch, .. }
                    | ProducerRefusal::StaleEpoch { epoch }
                    | ProducerRefusal::KeyConflict { epoch }
                    | ProducerRefusal::Expired { epoch },
                ) => {
                    // Somebody was faster, or we know too little. Look who it was before claiming above them.
                    prepare.floor = prepare.floor.max(epoch);
                    self.look_again();
                    self.retry(answer.describe(), answer.retry_after_ms, environment);
                }
                Some(ProducerRefusal::SeqGap { .. } | ProducerRefusal::EpochNotClaimed) => {
                    self.probe_then(Some(answer.describe()), environment);
                }
                None if refusal.status == 413 => {
                    self.block(Condition::RequestTooLarge, answer.describe(), answer.retry_after_ms, environment);
                }
                None => self.refused(refusal, token, &answer, environment, out),
            },
        }
    }

    /// The claim holds. What came between our end and it decides whether anything of ours was overtaken.
    fn claimed(&mut self, receipt: &Receipt, environment: &mut Environment<'_>, out: &mut Vec<Action>) {
        let State::Claiming(prepare) = &mut self.state else { return };
        let (Some((start, end)), 0) = (receipt.range, receipt.seq) else {
            let text = "another process wrote to the stream under this database's own producer key";
            return self.stop(self.reset(StopCode::Fenced, text), out);
        };
        if end.since(start) != CLAIM_BYTES || start.0 < prepare.gap.next().0 {
            let text = format!(
                "server_lost_data: the claim landed at {start}, although the stream was seen to reach {}; the local files \
                 are kept",
                prepare.gap.next()
            );
            self.look_again();
            return self.block(Condition::Rejected, text, None, environment);
        }
        if prepare.gap.complete(start) {
            self.won(receipt, environment, out);
        } else {
            prepare.step = Step::Closing(*receipt);
        }
    }

    /// Everything before the claim is ours.
    fn won(&mut self, receipt: &Receipt, environment: &mut Environment<'_>, out: &mut Vec<Action>) {
        let State::Claiming(prepare) = &self.state else { return };
        let Some((_, end)) = receipt.range else { return };
        let round = prepare.round;
        if let Some(in_flight) = self.in_flight.take() {
            let by_pair = receipt
                .closed
                .filter(|closed| closed.epoch == in_flight.sealed.epoch)
                .map(|closed| closed.seq >= in_flight.sealed.seq);
            if by_pair.is_some_and(|applied| applied != prepare.gap.applied()) {
                self.in_flight = Some(in_flight);
                let text = "server_lost_data: the server's record of our last batch and the stream's bytes disagree; the \
                            local files are kept";
                self.look_again();
                return self.block(Condition::Rejected, text.to_owned(), None, environment);
            }
            if prepare.gap.applied() {
                self.acknowledged = in_flight.sealed.to;
            }
        }
        // The claim voids the part of a record that lies before it: that record is sent again from its first byte.
        let resume = environment.log.record_start(self.acknowledged).unwrap_or(self.acknowledged);
        self.acknowledged = resume;
        self.acknowledged_lsn = environment.log.lsn_below(resume).unwrap_or(self.acknowledged_lsn);
        self.stream_end = end;
        self.epoch = receipt.epoch;
        self.next_seq = 1;
        self.state = State::Owner;
        out.push(Action::SaveClaim(ClaimWon { epoch: receipt.epoch, stream_end: end, resume, next_seq: 1 }));
        self.succeeded();
        if !receipt.repeat {
            self.waiters.prove(round);
        }
    }

    fn foreign(&mut self, foreign: &Foreign, out: &mut Vec<Action>) {
        let State::Claiming(prepare) = &self.state else { return };
        let code = if prepare.expired { StopCode::Expired } else { foreign.code };
        let text = format!("{} at offset {}, behind our own commits", foreign.what, foreign.offset);
        self.stop(self.reset(code, &text), out);
    }

    /// Starts over with the head, unless a claim is out of which nobody knows whether it applied: that one is repeated
    /// as it is.
    pub(super) fn look_again(&mut self) {
        let gap = self.gap();
        if let State::Claiming(prepare) = &mut self.state {
            prepare.step = Step::Head;
            prepare.gap = gap;
            prepare.claim = None;
            prepare.maybe_applied = false;
        }
    }

    /// Before a wait in which others may act: the next thing is a fresh look, if nothing is out.
    pub(super) fn look_again_unless_claimed(&mut self) {
        if let State::Claiming(prepare) = &self.state
            && !prepare.maybe_applied
            && !matches!(prepare.step, Step::Closing(_))
        {
            self.look_again();
        }
    }
}

fn tail(gap: &Gap, end: Offset) -> Request {
    let at = gap.next();
    Request::Tail { at, bytes_max: end.since(at).min(limits::READ_BYTES_MAX) }
}
