//! What every kind of request does with an answer that is not its success.

use super::types::{Condition, Reply, Request};
use super::{Action, Environment, Machine, Probe, State, pace};
use crate::engine::StopCode;
use highwater_client::{Answer, Head, HeadAnswer, Outcome, PROTOCOL, Piece, Refusal, TokenId};

/// Redirects in a row after which it is said that something answers with them.
const REDIRECTS_MAX: u32 = 3;

impl Machine {
    pub(super) fn answered(
        &mut self,
        request: Request,
        token: TokenId,
        reply: Reply,
        environment: &mut Environment<'_>,
        out: &mut Vec<Action>,
    ) {
        if let Reply::Local(cause) = reply {
            return self.retry(format!("local: {cause}"), None, environment);
        }
        match (request, reply) {
            (Request::Head, Reply::Head(answer)) => self.head_answered(token, &answer, environment, out),
            (Request::Opening, Reply::Read(answer)) => self.opening_answered(token, &answer, environment, out),
            (Request::Tail { .. }, Reply::Read(answer)) => match self.state {
                State::Owner => self.proof_answered(token, &answer, environment, out),
                _ => self.gap_answered(token, &answer, environment, out),
            },
            (Request::Claim(claim), reply) => self.claim_answered(claim, token, reply, environment, out),
            (Request::Append(sealed), reply) => self.append_answered(sealed, token, reply, environment, out),
            _ => self.misdelivered(environment),
        }
    }

    /// A reply of another request's kind: the driver erred, and nothing is known.
    pub(super) fn misdelivered(&mut self, environment: &mut Environment<'_>) {
        self.retry("local: a reply of another kind than the request".to_owned(), None, environment);
    }

    fn head_answered(
        &mut self,
        token: TokenId,
        HeadAnswer { identity, answer }: &HeadAnswer,
        environment: &mut Environment<'_>,
        out: &mut Vec<Action>,
    ) {
        let speaks_for_a_stream = match &answer.outcome {
            Outcome::Done(_) => true,
            Outcome::Refused(refusal) => refusal.status == 404,
            _ => false,
        };
        if speaks_for_a_stream {
            let missing = !matches!(answer.outcome, Outcome::Done(_));
            match identity {
                // Bound here before: a private stream is concealed from those who may not see it.
                None if missing => return self.block_after_probe(Condition::Forbidden, answer, environment),
                None => return self.block_after_probe(Condition::NoServerIdentity, answer, environment),
                Some(identity) if identity.protocol != PROTOCOL => {
                    return self.block_after_probe(Condition::ProtocolMismatch, answer, environment);
                }
                Some(identity) if identity.cluster_id != self.cluster_id => {
                    return self.block_after_probe(Condition::WrongCluster, answer, environment);
                }
                Some(_) if missing => return self.block_after_probe(Condition::Rejected, answer, environment),
                Some(_) => {}
            }
        }
        match &answer.outcome {
            Outcome::Done(head) if head.incarnation == self.incarnation => {
                let head = head.clone();
                self.head_seen(&head, environment, out);
            }
            Outcome::Done(head) => {
                let (code, text) = self.other_history(head);
                self.stop(self.reset(code, text), out);
            }
            Outcome::Redirected => self.redirected(answer, environment),
            Outcome::Unknown => self.unknown(answer, environment),
            Outcome::Refused(refusal) => self.refused(refusal, token, answer, environment, out),
        }
    }

    fn other_history(&self, head: &Head) -> (StopCode, &'static str) {
        match head.previous {
            Some((previous, _)) if previous == self.incarnation => {
                (StopCode::History, "the server was restored, or accepted a loss: the stream's history was rewritten")
            }
            _ => (StopCode::Recreated, "the stream was deleted and created again"),
        }
    }

    /// The piece in a read's answer, or the consequence of there being none.
    pub(super) fn piece(
        &mut self,
        token: TokenId,
        answer: &Answer<Piece>,
        environment: &mut Environment<'_>,
        out: &mut Vec<Action>,
    ) -> Option<Piece> {
        match &answer.outcome {
            Outcome::Done(piece) if piece.incarnation == self.incarnation => return Some(piece.clone()),
            Outcome::Done(_) => self.probe_then(None, environment),
            Outcome::Redirected => self.redirected(answer, environment),
            Outcome::Unknown => self.unknown(answer, environment),
            Outcome::Refused(refusal) => self.refused(refusal, token, answer, environment, out),
        }
        None
    }

    /// A refusal that any request can meet; those that speak of a producer's key, or of a body's size, are dealt with
    /// before.
    pub(super) fn refused<T>(
        &mut self,
        refusal: &Refusal,
        token: TokenId,
        answer: &Answer<T>,
        environment: &mut Environment<'_>,
        out: &mut Vec<Action>,
    ) {
        let text = answer.describe();
        match refusal.status {
            401 => {
                out.push(Action::RereadToken);
                if self.trouble.refused_token.replace(token) == Some(token) {
                    self.block(Condition::Unauthorized, text, answer.retry_after_ms, environment);
                } else {
                    self.retry(text, answer.retry_after_ms, environment);
                }
            }
            402 => self.block(Condition::PaymentRequired, text, answer.retry_after_ms, environment),
            403 => self.block(Condition::Forbidden, text, answer.retry_after_ms, environment),
            // Nothing is wrong with the request if the token is still ours.
            412 | 416 => self.probe_then(None, environment),
            408 | 429 | 500..=599 => self.retry(text, answer.retry_after_ms, environment),
            _ => self.probe_then(Some(text), environment),
        }
    }

    /// An answer that proves nothing. Those redirects do that a login page answers with: whether something was applied is
    /// not known, but that they are redirects is.
    pub(super) fn unknown<T>(&mut self, answer: &Answer<T>, environment: &mut Environment<'_>) {
        match answer.status {
            301..=303 => self.redirected(answer, environment),
            _ => self.retry(answer.describe(), answer.retry_after_ms, environment),
        }
    }

    pub(super) fn redirected<T>(&mut self, answer: &Answer<T>, environment: &mut Environment<'_>) {
        let redirects = self.trouble.redirects + 1;
        let text = format!("something answers with a redirect ({}), which is never followed", answer.describe());
        if redirects >= REDIRECTS_MAX {
            self.block(Condition::Redirected, text, answer.retry_after_ms, environment);
        } else {
            self.retry(text, answer.retry_after_ms, environment);
        }
        self.trouble.redirects = redirects;
    }

    /// The head is asked next, and if it explains nothing the verdict stands.
    pub(super) fn probe_then(&mut self, verdict: Option<String>, environment: &mut Environment<'_>) {
        let held = self.trouble.condition;
        let cause = verdict.clone().unwrap_or_else(|| "the stream's token or end is not as expected".to_owned());
        self.retry(cause, None, environment);
        // What the head says decides the condition; until then the one that holds stays, or it would flicker.
        self.trouble.condition = held.or(self.trouble.condition);
        self.probe = Some(Probe { verdict });
    }

    /// The same request again after a wait that grows.
    pub(super) fn retry(&mut self, cause: String, retry_after_ms: Option<u64>, environment: &mut Environment<'_>) {
        let attempts = self.trouble.attempts.saturating_add(1);
        let wait = pace::backoff_ms(attempts, retry_after_ms, environment.random);
        self.troubled(Condition::Retrying, cause, attempts, wait, environment.now_ms);
    }

    /// The same request again every half minute: somebody has to do something.
    pub(super) fn block(
        &mut self,
        condition: Condition,
        cause: String,
        retry_after_ms: Option<u64>,
        environment: &mut Environment<'_>,
    ) {
        let attempts = self.trouble.attempts.saturating_add(1);
        self.troubled(condition, cause, attempts, pace::blocked_ms(retry_after_ms), environment.now_ms);
        self.look_again_unless_claimed();
    }

    fn block_after_probe(&mut self, condition: Condition, answer: &Answer<Head>, environment: &mut Environment<'_>) {
        let text = match answer.outcome {
            Outcome::Done(_) => "the server that answers is not the one this database was bound at".to_owned(),
            _ => answer.describe(),
        };
        self.block(condition, text, answer.retry_after_ms, environment);
    }

    fn troubled(&mut self, condition: Condition, cause: String, attempts: u32, wait_ms: u64, now_ms: u64) {
        let since = match self.trouble.condition {
            Some((same, since)) if same == condition => since,
            _ => now_ms,
        };
        self.trouble.condition = Some((condition, since));
        self.trouble.attempts = attempts;
        self.trouble.retry_at = Some(now_ms.saturating_add(wait_ms));
        self.trouble.last_error = cause;
        // Only redirects in a row count; their own caller counts on.
        self.trouble.redirects = 0;
    }
}
