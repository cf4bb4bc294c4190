//! How fast an account may ask and append: two token buckets, filled as its plan says.

use axum::body::Body;
use bytes::Bytes;
use highwater_control::PlanLimits;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

/// The buckets of every account that asked.
#[derive(Debug, Default)]
pub(super) struct Rates(Arc<Mutex<BTreeMap<String, Used>>>);

/// What one account used: absent until its plan first bounded it.
#[derive(Debug, Default)]
struct Used {
    requests: Option<Tokens>,
    bytes: Option<Tokens>,
}

/// A bucket of tokens. It may go below nothing: a body is taken whole or not at all, so that a large one is paid for
/// afterwards, and the average is what the plan says.
#[derive(Debug, Clone, Copy)]
struct Tokens {
    left: f64,
    at: Instant,
}

impl Tokens {
    /// Fills up at `rate` a second to `burst` at the most. A new bucket is full.
    fn fill(slot: &mut Option<Self>, rate: f64, burst: f64, now: Instant) -> &mut Self {
        let tokens = slot.get_or_insert(Self { left: burst, at: now });
        let gained = now.saturating_duration_since(tokens.at).as_secs_f64() * rate;
        *tokens = Self { left: (tokens.left + gained).min(burst), at: now };
        tokens
    }

    /// Whole seconds until it holds `least`, at least one.
    fn wait_s(self, least: f64, rate: f64) -> u64 {
        // A rate of nothing is never met; a client then comes again after the hour that is the longest that is told.
        ((least - self.left) / rate).ceil().clamp(1.0, 3_600.0) as u64
    }
}

impl Rates {
    /// Takes one request off an account. Gives a meter for its body if the plan bounds bytes and it writes.
    /// # Errors
    /// Seconds until the next one is allowed.
    pub(super) fn take(&self, account: &str, limits: &PlanLimits, writes: bool) -> Result<Option<Meter>, u64> {
        self.take_at(account, limits, writes, Instant::now())
    }

    fn take_at(&self, account: &str, limits: &PlanLimits, writes: bool, now: Instant) -> Result<Option<Meter>, u64> {
        let bytes_rate = limits.append_bytes_per_second.filter(|_| writes);
        if limits.requests_per_second.is_none() && bytes_rate.is_none() {
            return Ok(None);
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(account) {
            all.insert(account.to_owned(), Used::default());
        }
        let Some(used) = all.get_mut(account) else { return Ok(None) };
        if let Some(rate) = bytes_rate {
            let rate = rate as f64;
            let bytes = *Tokens::fill(&mut used.bytes, rate, rate, now);
            if bytes.left <= 0.0 {
                return Err(bytes.wait_s(1.0, rate));
            }
        }
        if let Some(rate) = limits.requests_per_second {
            let burst = limits.requests_burst.unwrap_or(rate).max(1) as f64;
            let requests = Tokens::fill(&mut used.requests, rate as f64, burst, now);
            if requests.left < 1.0 {
                return Err(requests.wait_s(1.0, rate as f64));
            }
            requests.left -= 1.0;
        }
        Ok(bytes_rate.map(|_| Meter { rates: Arc::clone(&self.0), account: account.to_owned() }))
    }
}

/// Takes the bytes of a body off an account.
#[derive(Debug)]
pub(super) struct Meter {
    rates: Arc<Mutex<BTreeMap<String, Used>>>,
    account: String,
}

impl Meter {
    /// The body, counted as it is read.
    pub(super) fn around(self, body: Body) -> Body {
        if body.is_end_stream() { body } else { Body::new(Metered { body, meter: self }) }
    }

    fn count(&self, bytes: usize) {
        let mut all = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tokens) = all.get_mut(&self.account).and_then(|used| used.bytes.as_mut()) {
            tokens.left -= bytes as f64;
        }
    }
}

struct Metered {
    body: Body,
    meter: Meter,
}

impl HttpBody for Metered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            self.meter.count(frame.data_ref().map_or(0, Bytes::len));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn limits(requests: Option<u64>, burst: Option<u64>, bytes: Option<u64>) -> PlanLimits {
        PlanLimits {
            requests_per_second: requests,
            requests_burst: burst,
            append_bytes_per_second: bytes,
            ..PlanLimits::default()
        }
    }

    #[test]
    fn requests_come_in_bursts_and_at_the_rate_on_average() {
        let (rates, start, plan) = (Rates::default(), Instant::now(), limits(Some(2), Some(4), None));
        let take = |ms| rates.take_at("a", &plan, false, start + Duration::from_millis(ms)).map(drop);
        assert_eq!((0..5).map(|_| take(0)).collect::<Vec<_>>(), [Ok(()), Ok(()), Ok(()), Ok(()), Err(1)]);
        assert_eq!((take(499), take(500), take(600)), (Err(1), Ok(()), Err(1)));
        let taken = (0..100).filter(|n| take(600 + n * 100).is_ok()).count();
        assert!((20..=22).contains(&taken), "{taken} in ten seconds");
        assert!(rates.take_at("b", &plan, false, start).is_ok(), "another account has its own");
    }

    #[test]
    fn a_large_body_is_paid_for_afterwards() {
        let (rates, start, plan) = (Rates::default(), Instant::now(), limits(None, None, Some(1_000)));
        let take = |ms| rates.take_at("a", &plan, true, start + Duration::from_millis(ms));
        take(0).expect("full").expect("a meter").count(5_000);
        assert_eq!(take(0).map(drop), Err(5));
        assert_eq!(take(3_000).map(drop), Err(2));
        assert!(take(4_100).is_ok());
        assert!(rates.take_at("a", &plan, false, start).expect("a read").is_none(), "reads append nothing");
    }

    #[test]
    fn a_plan_without_rates_keeps_nothing() {
        let rates = Rates::default();
        assert!(rates.take("a", &limits(None, None, None), true).expect("unbounded").is_none());
        assert!(rates.0.lock().expect("unpoisoned").is_empty());
    }

    #[test]
    fn a_rate_of_nothing_says_to_come_back_within_the_hour() {
        let (rates, plan) = (Rates::default(), limits(Some(0), None, None));
        assert!(rates.take("a", &plan, false).is_ok(), "the first of a burst of one");
        assert_eq!(rates.take("a", &plan, false).map(drop), Err(3_600));
    }
}
