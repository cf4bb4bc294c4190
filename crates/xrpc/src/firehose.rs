//! The stream's socket: `com.atproto.sync.subscribeRepos`.
//!
//! The frames of the WebSocket are written here and not by a library: one that copies each message into a buffer of its own
//! socket would hold the largest ones as often as there are slow readers, where all of them can share the same bytes. Tests
//! read them with a library.

mod followers;
mod handshake;
mod message;
mod outgoing;
mod places;
mod socket;
#[cfg(test)]
mod tests;

pub use followers::Followers;
pub use message::Incoming;
pub use places::Places;

use crate::call::Call;
use crate::error::{Error, Name, Result};
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use highwater_host::subscription::{Delivery, Subscription};
use highwater_host::{CursorRefused, Host};
use highwater_pds::{cursor, frame};
use hyper_util::rt::TokioIo;
use places::Full;
use socket::{Ended, Frames, Next, POLICY};
use tokio::task::JoinHandle;

/// Seconds after which somebody for whom there was no place may come again.
const RETRY_S: u64 = 30;

/// `com.atproto.sync.subscribeRepos`
pub async fn subscribe_repos(mut call: Call) -> Result {
    let cursor = call.query.optional("cursor")?.map(cursor::parse).transpose();
    let cursor = cursor.map_err(|error| Error::invalid(error.to_string()))?;
    let (upgrade, answer) = handshake::accept(&mut call.head)?;
    let (context, peer) = (call.context, call.peer);
    let place = context.places.take(peer).map_err(|full| {
        let error = match full {
            Full::Address => Error::new(Name::RateLimitExceeded, "this address has as many sockets as it may"),
            Full::All => Error::new(Name::NotEnoughResources, "the stream has as many readers as it can have"),
        };
        error.with(header::RETRY_AFTER, HeaderValue::from(RETRY_S))
    })?;
    let frames = Following::begin(&context.host, cursor)?;
    let follower = frames.id().map(|id| context.followers.add(id, peer));
    tokio::spawn(async move {
        let Ok(io) = upgrade.await else { return };
        tracing::info!(event = "subscriber_joined", %peer, ?cursor, "a subscriber follows the stream");
        let stop = async {
            tokio::select! {
                () = context.closing() => "the server stops",
                () = place.lost() => "others need the place",
            }
        };
        let ended = socket::serve(TokioIo::new(io), frames, &context.options.stream, stop).await;
        match ended {
            Ended::Gone => tracing::info!(event = "subscriber_left", %peer, "a subscriber went"),
            Ended::Stalled => {
                tracing::warn!(event = "subscriber_cut", %peer, reason = "it took nothing for too long", "a subscriber was cut");
            }
            Ended::Violation(reason) | Ended::Closed(reason) => {
                tracing::warn!(event = "subscriber_closed", %peer, reason, "a subscriber's socket was closed");
            }
        }
        drop((place, follower));
    });
    Ok(answer.into_response())
}

/// Frames of the host's stream, read from the disk on threads that may wait for it.
enum Following {
    /// At hand.
    Here(Box<Subscription>),
    /// Being read.
    Reading(JoinHandle<(Box<Subscription>, Option<Delivery>)>),
    /// Nothing follows but this.
    Over(&'static str, Option<Bytes>),
}

impl Following {
    fn begin(host: &Host, cursor: Option<u64>) -> Result<Self> {
        match host.subscribe(cursor) {
            Ok(subscription) => Ok(Self::Here(Box::new(subscription))),
            Err(refused @ CursorRefused::Future { .. }) => {
                Ok(Self::Over("FutureCursor", Some(frame::error("FutureCursor", &refused.to_string()))))
            }
            Err(CursorRefused::Stopped(_)) => Err(Error::new(Name::NotEnoughResources, "the server stops")),
        }
    }

    /// Which subscriber it is, if it is one.
    fn id(&self) -> Option<u64> {
        match self {
            Self::Here(subscription) => Some(subscription.id()),
            Self::Reading(_) | Self::Over(..) => None,
        }
    }

    /// What there is now, unless the disk must be asked first.
    async fn taken(&mut self) -> Option<Delivery> {
        loop {
            match self {
                Self::Over(..) => return None,
                Self::Reading(reading) => match reading.await {
                    Ok((subscription, delivery)) => {
                        *self = Self::Here(subscription);
                        if delivery.is_some() {
                            return delivery;
                        }
                    }
                    Err(_) => {
                        *self = Self::Over("the server failed", None);
                        return None;
                    }
                },
                Self::Here(subscription) => {
                    subscription.ready().await;
                    if !subscription.reads_disk() {
                        if let Some(delivery) = subscription.take() {
                            return Some(delivery);
                        }
                        continue;
                    }
                    let Self::Here(mut subscription) = std::mem::replace(self, Self::Over("the server failed", None))
                    else {
                        return None;
                    };
                    *self = Self::Reading(tokio::task::spawn_blocking(move || {
                        let delivery = subscription.take();
                        (subscription, delivery)
                    }));
                }
            }
        }
    }
}

impl Frames for Following {
    async fn next(&mut self) -> Next {
        match self.taken().await {
            Some(Delivery::Frames(frames)) => Next::Frames(frames),
            Some(Delivery::TooSlow) => {
                let message = "more frames wait for you than this server keeps at hand; come back with your cursor";
                Next::End(Some(frame::error("ConsumerTooSlow", message)), POLICY, "ConsumerTooSlow")
            }
            Some(Delivery::Ended(why)) => {
                tracing::warn!(event = "stream_ended", why, "the stream ended for a subscriber");
                Next::Break("the stream ended")
            }
            None => match self {
                Self::Over(reason, Some(frame)) => Next::End(Some(frame.clone()), POLICY, reason),
                Self::Over(reason, None) => Next::Break(reason),
                _ => Next::Break("the stream ended"),
            },
        }
    }
}
