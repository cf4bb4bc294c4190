//! Bodies of requests: bounded in size, in time, and in what all of them hold together.

use crate::auth;
use crate::error::{Code, Error};
use crate::names;
use crate::options::HttpOptions;
use crate::router::App;
use crate::service::Service;
use axum::body::Body;
use axum::http::header;
use axum::http::request::Parts;
use bytes::{Bytes, BytesMut};
use highwater_base::Digest;
use http_body_util::BodyExt;
use hyper::body::Body as _;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Bytes of room that a body takes at a time, as it arrives. A body that is announced takes no room: whoever announces
/// the largest and sends nothing would otherwise keep eight such requests' worth of it from everybody else.
const STEP_BYTES: u64 = 256 << 10;

/// Bodies larger than this are hashed on a thread where blocking is fine: a quarter of a mebibyte takes BLAKE3 about
/// a tenth of a millisecond, which other requests of the same thread can wait.
const HASH_INLINE_BYTES_MAX: usize = 256 << 10;

/// Seconds that a body may take before its average rate counts.
const GRACE_S: u64 = 30;

/// `REQUEST_TOO_LARGE`, naming the limit.
pub(crate) fn too_large(options: &HttpOptions) -> Error {
    let limit = options.request_bytes_max;
    Error::new(Code::RequestTooLarge, format!("a request's body has at most {limit} bytes"))
        .with(names::URSULA_MAX_REQUEST_BYTES, limit)
}

/// Refuses a body whose head already says that it is too large; the first check of every request.
pub(crate) fn check_length(body: &Body, options: &HttpOptions) -> Result<(), Error> {
    // The lower bound is the declared length, and zero where there is none.
    if body.size_hint().lower() > options.request_bytes_max { Err(too_large(options)) } else { Ok(()) }
}

/// A body, read whole, with the room that the node gave it.
pub(crate) struct Whole<A> {
    /// Its bytes.
    pub bytes: Bytes,
    /// The room of its first part, which goes to the node with it.
    pub admission: A,
    /// Further room, of a body larger than a step; held until the answer.
    pub _more: Vec<A>,
}

/// Reads the body of a request whole, and judges the request again when the last byte is there.
///
/// # Errors
/// The node's pressures, before anything is read, or when a body of unknown length outgrows what is left;
/// `REQUEST_TOO_LARGE`; `BODY_TOO_SLOW`; `BODY_UNREADABLE` if it breaks off; why the request is refused by now. Nothing of
/// it is proposed.
pub(crate) async fn read<S: Service>(body: Body, app: &App<S>, head: &Parts) -> Result<Whole<S::Admission>, Error> {
    let whole = read_whole(body, &app.service, &app.options).await?;
    auth::still(app, head)?;
    Ok(whole)
}

async fn read_whole<S: Service>(
    mut body: Body,
    service: &S,
    options: &HttpOptions,
) -> Result<Whole<S::Admission>, Error> {
    let declared = body.size_hint().exact();
    let mut admitted = declared.unwrap_or(STEP_BYTES).min(STEP_BYTES);
    let admission = service.admit(admitted)?;
    let mut more = Vec::new();
    let mut bytes = BytesMut::new();
    let start = Instant::now();
    loop {
        let frame = match timeout_at(deadline(start, bytes.len() as u64, options), body.frame()).await {
            Err(_) => return Err(too_slow()),
            Ok(None) => return Ok(Whole { bytes: bytes.freeze(), admission, _more: more }),
            Ok(Some(Err(_))) => return Err(Error::new(Code::BodyUnreadable, "the body could not be read to its end")),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        let length = bytes.len() as u64 + data.len() as u64;
        if length > options.request_bytes_max {
            return Err(too_large(options));
        }
        if bytes.is_empty() && declared == Some(length) {
            more.extend(room(service, length, &mut admitted)?);
            return Ok(Whole { bytes: data, admission, _more: more });
        }
        // What is reserved for an announced body is memory only once bytes stand in it; one that is not announced
        // grows by doubling, and all of that counts.
        match declared {
            Some(declared) if bytes.capacity() == 0 => bytes.reserve(usize::try_from(declared).unwrap_or(0)),
            _ => bytes.reserve(data.len()),
        }
        let held = if declared.is_some() { length } else { bytes.capacity() as u64 };
        more.extend(room(service, held, &mut admitted)?);
        bytes.extend_from_slice(&data);
    }
}

/// Takes what is lacking to `held` bytes of room, in whole steps.
fn room<S: Service>(service: &S, held: u64, admitted: &mut u64) -> Result<Option<S::Admission>, Error> {
    let lacking = held.saturating_sub(*admitted).div_ceil(STEP_BYTES) * STEP_BYTES;
    if lacking == 0 {
        return Ok(None);
    }
    let room = service.admit(lacking)?;
    *admitted += lacking;
    Ok(Some(room))
}

/// When a body that has come to `received` bytes is given up unless more comes.
fn deadline(start: Instant, received: u64, options: &HttpOptions) -> Instant {
    let idle = Instant::now() + Duration::from_millis(options.body_idle_ms_max);
    let rate = options.body_bytes_per_second_min.max(1);
    idle.min(start + Duration::from_secs(GRACE_S + received / rate))
}

fn too_slow() -> Error {
    Error::new(Code::BodyTooSlow, "the body stopped arriving, or arrived too slowly; nothing of it was kept")
        .with(header::CONNECTION, "close")
}

/// Whether a body has the digest that its key states; `true` where it states none.
pub(crate) async fn digest_matches(body: &Bytes, digest: Option<Digest>) -> bool {
    let Some(stated) = digest else { return true };
    if body.len() <= HASH_INLINE_BYTES_MAX {
        return Digest::of(body) == stated;
    }
    let body = body.clone();
    // A thread that panicked computed no digest, and no digest matches nothing.
    tokio::task::spawn_blocking(move || Digest::of(&body) == stated).await.unwrap_or(false)
}
