//! Bodies on their way in, bounded in time.

use crate::error::{Error, Name, Result};
use crate::options::Options;
use axum::body::Body;
use axum::http::header;
use axum::http::request::Parts;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Bytes that a request says its body has.
/// # Errors
/// `UnsupportedMediaType` if it is compressed.
pub(crate) fn declared(head: &Parts) -> Result<Option<u64>> {
    if head.headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(Error::new(Name::UnsupportedMediaType, "the body must not be compressed"));
    }
    let length = head.headers.get(header::CONTENT_LENGTH);
    Ok(length.and_then(|length| length.to_str().ok()?.parse().ok()))
}

/// A body that is read piece by piece, and given up when its sender stops or crawls: what it holds is others' as well.
pub(crate) struct Arriving<'a> {
    body: &'a mut Body,
    begun: Instant,
    received: u64,
    idle: Duration,
    grace: Duration,
    bytes_per_second_min: u64,
    whole: Option<Duration>,
}

impl<'a> Arriving<'a> {
    pub fn new(body: &'a mut Body, options: &Options) -> Self {
        Self {
            body,
            begun: Instant::now(),
            received: 0,
            idle: Duration::from_millis(options.body_idle_ms_max),
            grace: Duration::from_millis(options.body_grace_ms),
            bytes_per_second_min: options.body_bytes_per_second_min.max(1),
            whole: None,
        }
    }

    /// Whatever its rate, it takes no longer than this.
    pub fn within(self, milliseconds: u64) -> Self {
        Self { whole: Some(Duration::from_millis(milliseconds)), ..self }
    }

    /// When it is given up unless more comes.
    fn deadline(&self) -> Instant {
        let earned = Duration::from_secs(self.received / self.bytes_per_second_min);
        let rate = self.grace + earned;
        let end = self.begun + self.whole.map_or(rate, |whole| whole.min(rate));
        end.min(Instant::now() + self.idle)
    }

    /// The next bytes; none at the end.
    /// # Errors
    /// `RequestTimeout`; `InvalidRequest` if it breaks off.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let frame = timeout_at(self.deadline(), self.body.frame()).await;
            let late = |_| Error::new(Name::RequestTimeout, "the body stopped coming, or came too slowly");
            let Some(frame) = frame.map_err(late)? else { return Ok(None) };
            let frame = frame.map_err(|_| Error::invalid("the body did not come whole"))?;
            if let Ok(bytes) = frame.into_data() {
                self.received += bytes.len() as u64;
                return Ok(Some(bytes));
            }
        }
    }
}
