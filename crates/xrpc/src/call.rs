//! What a method is asked.

use crate::auth::Access;
use crate::context::Context;
use crate::error::{Error, Name, Result};
use crate::query::Query;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::header;
use axum::http::request::Parts;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Whose request it is, as an extension of the request, if somebody in front of these routes knows better than the socket.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

/// A request to a method.
pub struct Call {
    /// What all methods share.
    pub context: Arc<Context>,
    /// The request's head.
    pub head: Parts,
    /// Its parameters.
    pub query: Query,
    /// Where it comes from.
    pub peer: IpAddr,
    /// Its body, not read yet.
    pub body: Body,
    /// Its token was taken, and is to be judged once more when the body is there.
    judged: AtomicBool,
}

impl Call {
    pub(crate) fn new(context: Arc<Context>, head: Parts, body: Body) -> Result<Self> {
        let (query, peer) = (Query::parse(head.uri.query())?, peer(&head));
        Ok(Self { context, head, query, peer, body, judged: AtomicBool::new(false) })
    }

    /// Whose request it is. A body that is read afterwards is only handed over if that still holds at its end: whoever sends it
    /// slowly must not outlast a lock, a logout or another password.
    /// # Errors
    /// As [`crate::Gatekeeper::access`].
    pub fn access(&self) -> Result<Access> {
        let access = self.context.gatekeeper.access(&self.context, &self.head)?;
        self.judged.store(true, Ordering::Relaxed);
        Ok(access)
    }

    /// The body's media type, in lower case and without its parameters.
    #[must_use]
    pub fn media_type(&self) -> Option<String> {
        let value = self.head.headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
        Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
    }

    /// Reads a body of JSON.
    /// # Errors
    /// `UnsupportedMediaType`, `PayloadTooLarge`, `RequestTimeout`, `NotEnoughResources`; `InvalidRequest` if it is not what
    /// the method reads.
    pub async fn json<T: DeserializeOwned>(&mut self) -> Result<T> {
        if self.media_type().as_deref() != Some("application/json") {
            return Err(Error::new(Name::UnsupportedMediaType, "the body must be application/json"));
        }
        let body = self.bytes(self.context.options.json_bytes_max).await?;
        serde_json::from_slice(&body).map_err(|error| Error::invalid(format!("the body: {error}")))
    }

    /// Reads a whole body of at most `bytes_max` bytes.
    /// # Errors
    /// `UnsupportedMediaType` if it is compressed; `PayloadTooLarge`, `RequestTimeout`, `NotEnoughResources`; as [`Self::access`]
    /// if what let the request in has ended meanwhile.
    pub async fn bytes(&mut self, bytes_max: usize) -> Result<Bytes> {
        if self.head.headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            return Err(Error::new(Name::UnsupportedMediaType, "the body must not be compressed"));
        }
        let declared =
            self.head.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let too_large =
            || Error::new(Name::PayloadTooLarge, format!("the body may have {bytes_max} bytes at the most"));
        let expected: usize = declared.unwrap_or(bytes_max);
        if expected > bytes_max {
            return Err(too_large());
        }
        let options = &self.context.options;
        let room = (expected >> 10) as u32 + 1;
        let _room = self.context.bodies.try_acquire_many(room).map_err(|_| {
            Error::new(Name::NotEnoughResources, "too many bodies are being read; try again in a moment")
        })?;
        let (idle, end) = (Duration::from_millis(options.body_idle_ms_max), Duration::from_millis(options.body_ms_max));
        let end = Instant::now() + end;
        let mut read = BytesMut::with_capacity(expected.min(64 << 10));
        loop {
            let next = timeout_at(end.min(Instant::now() + idle), self.body.frame()).await;
            let next = next.map_err(|_| Error::new(Name::RequestTimeout, "the body did not come in time"))?;
            let Some(frame) = next else { break };
            let frame = frame.map_err(|_| Error::invalid("the body did not come whole"))?;
            if let Some(data) = frame.data_ref() {
                if read.len() + data.len() > bytes_max {
                    return Err(too_large());
                }
                read.extend_from_slice(data);
            }
        }
        if self.judged.load(Ordering::Relaxed) {
            self.access()?;
        }
        Ok(read.freeze())
    }
}

/// Does what may wait for the disk, on a thread for that.
/// # Errors
/// `InternalServerError` if it panicked.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| crate::answer::internal(&error))
}

/// Where a request comes from.
fn peer(head: &Parts) -> IpAddr {
    let told = head.extensions.get::<Peer>().map(|peer| peer.0);
    let socket = || head.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    told.or_else(socket).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)).to_canonical()
}
