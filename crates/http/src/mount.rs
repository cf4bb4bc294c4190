//! What lives beside the node and is served through the same listeners: the AT Protocol's surface.
//!
//! Whoever brings it brings routers. `/xrpc` and `/.well-known` judge by themselves who asks, with what the protocol has for
//! that; this crate keeps bounds, places, the rules of open mode and the log. `/v1/pds` is administration: it is asked with
//! a key of this server's that has the scope `admin`, which was judged before the router hears of the request.
//!
//! Every request that reaches one of the routers has a [`ConnectInfo`] of who asks, for limits by address. A request that
//! is upgraded becomes a socket that holds its connection's place until it ends, and that whoever serves it ends when
//! [`crate::Server::closing`] begins.

use crate::error::{Code, Error};
use crate::front::Arrival;
use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::ConnectInfo;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, extract::Request};
use serde_json::{Value, json};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use tower::ServiceExt;

/// One number of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    /// Its family's name, without `_total`.
    pub name: &'static str,
    /// `gauge` or `counter`.
    pub kind: &'static str,
    /// What it means, for people.
    pub help: &'static str,
    /// Its value.
    pub value: u64,
}

/// What is told of the service on the pages of all of the server.
pub trait Told: Send + Sync {
    /// Its part of the status; may block for a moment.
    fn status(&self) -> Value;

    /// Its metrics; may block for a moment.
    fn numbers(&self) -> Vec<Number>;
}

/// The routers of a service that serves.
#[derive(Clone)]
pub struct Routers {
    /// `/xrpc`, `/.well-known` and `/robots.txt`.
    pub xrpc: Router,
    /// `/v1/pds`.
    pub operator: Router,
}

/// A service beside the node.
#[derive(Clone)]
pub struct Mounted {
    /// Its routers, or why it does not serve, for people.
    pub routers: Result<Routers, String>,
    /// What it tells of itself.
    pub told: Arc<dyn Told>,
}

impl fmt::Debug for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.routers.as_ref().map_or_else(|why| why.as_str(), |_| "serves");
        f.debug_tuple("Mounted").field(&state).finish()
    }
}

/// Whether a path is the AT Protocol's.
pub(crate) fn is_xrpc(path: &str) -> bool {
    below(path, "/xrpc") || below(path, "/.well-known") || path == "/robots.txt"
}

/// Whether a path is the operator's of the service.
pub(crate) fn is_operator(path: &str) -> bool {
    below(path, "/v1/pds")
}

fn below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a request below one of the service's roots.
pub(crate) async fn answer(mounted: Option<&Mounted>, arrival: &Arrival, mut request: Request) -> Response {
    let xrpc = is_xrpc(request.uri().path());
    let Some(mounted) = mounted else {
        let error = Error::new(Code::NotFound, "this server has no accounts of the AT Protocol (pds_enabled is false)");
        return if xrpc { refusal(&error) } else { error.into_response() };
    };
    let routers = match &mounted.routers {
        Ok(routers) => routers,
        Err(why) => {
            let error = Error::new(Code::PdsUnavailable, why.clone());
            return if xrpc { refusal(&error) } else { error.into_response() };
        }
    };
    let client = SocketAddr::new(arrival.client, arrival.peer.port());
    request.extensions_mut().insert(ConnectInfo(client));
    let router = if xrpc { &routers.xrpc } else { &routers.operator };
    match router.clone().oneshot(request.map(Body::new)).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// An error of this crate as the AT Protocol words errors.
///
/// Source: DESIGN decision 15; XRPC specification, error responses.
pub(crate) fn refusal(error: &Error) -> Response {
    let words = error.code().row().name.split('_').map(|word| {
        let (first, rest) = word.split_at(1);
        format!("{first}{}", rest.to_ascii_lowercase())
    });
    let body = json!({ "error": words.collect::<String>(), "message": error.message() });
    let mut response = (StatusCode::from_u16(error.status()).unwrap_or_default(), Json(body)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, crate::names::NO_STORE);
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    if let Some(seconds) = error.code().row().retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response.extensions_mut().insert(error.code());
    response
}
