//! One connection, from its first byte to its last: the TLS handshake, HTTP/1.1 or HTTP/2, and the bounds of both.

use crate::bounds::HEAD_BYTES_MAX;
use crate::closing::Closing;
use crate::front::{Arrival, Front};
use crate::head_timer::HeadTimer;
use crate::options::HttpOptions;
use crate::places::Places;
use crate::router::{Answering, Routes};
use crate::timed::{Held, Timed};
use crate::traffic::{self, Traffic};
use axum::body::Body;
use axum::http::{StatusCode, header};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::Watcher;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

/// Bytes of an HTTP/2 head, counted as HTTP/2 does, beyond which the library answers by itself, without a body, or ends
/// the connection. Twice our own bound, so that what is a little over it gets our answer.
const HEAD_BYTES_HTTP2_MAX: u32 = 2 * HEAD_BYTES_MAX;

/// Seconds between pings of a quiet HTTP/2 connection, and for their answer.
const PING_S: u64 = 20;

/// Requests of an HTTP/2 connection that its client took back before they were looked at. More are an attack ("rapid
/// reset"), and end the connection.
const RESETS_PENDING_MAX: usize = 20;

/// Requests of an HTTP/2 connection that this server ended because its client broke the protocol.
const RESETS_OWN_MAX: usize = 128;

/// What all connections of a server share.
pub(crate) struct Gate {
    pub options: HttpOptions,
    pub closing: Closing,
    pub traffic: Arc<Traffic>,
    /// Places of the listeners that serve streams.
    pub places: Places,
    /// Places of those that do not, so that an operator gets in when the others are full.
    pub places_admin: Places,
    /// Lacks the timer of HTTP/1, which each connection has for itself.
    pub builder: Builder<TokioExecutor>,
}

impl Gate {
    pub(crate) fn new(options: HttpOptions, closing: Closing, traffic: Arc<Traffic>) -> Self {
        let places = Places::new(options.connections_max, options.connections_per_address_max);
        let places_admin = Places::new(options.connections_admin_max, options.connections_admin_max);
        let builder = builder(&options);
        Self { options, closing, traffic, places, places_admin, builder }
    }

    /// Serves one connection to its end.
    pub(crate) async fn serve(
        &self,
        stream: TcpStream,
        (peer, held): (SocketAddr, Held),
        tls: Option<TlsAcceptor>,
        front: Arc<Front>,
        routes: Routes,
        watcher: Watcher,
    ) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps its delay");
        }
        let arrival = Arrival::new(peer, tls.is_some(), front);
        let Some(tls) = tls else { return self.speak(stream, held, (routes, arrival), watcher).await };
        let patience = Duration::from_millis(self.options.handshake_ms_max);
        let shaken = tokio::select! {
            () = self.closing.wait() => return,
            shaken = tokio::time::timeout(patience, tls.accept(stream)) => shaken,
        };
        let reason = match shaken {
            Ok(Ok(stream)) => return self.speak(stream, held, (routes, arrival), watcher).await,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it took more than {} ms", self.options.handshake_ms_max),
        };
        traffic::count(&self.traffic.handshakes_failed);
        if let Some(untold) = self.traffic.failures_told.tell() {
            tracing::info!(event = "tls_handshake_failed", %peer, reason, untold, "a TLS handshake failed");
        }
    }

    async fn speak<T>(&self, io: T, held: Held, (routes, arrival): (Routes, Arrival), watcher: Watcher)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = Arriving { routes, arrival, held: held.clone() };
        let timed = Timed::new(io, &self.options, held);
        let mut builder = self.builder.clone();
        builder.http1().timer(HeadTimer::default());
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(timed), service).into_owned();
        if let Err(error) = watcher.watch(connection).await {
            if is_stall(&*error) {
                traffic::count(&self.traffic.readers_cut);
            }
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

/// Whether a connection ended because its peer took nothing.
fn is_stall(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| error.kind() == std::io::ErrorKind::TimedOut)
}

fn builder(options: &HttpOptions) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .header_read_timeout(Duration::from_millis(options.head_ms_max))
        .max_buf_size(HEAD_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(options.http2_requests_max)
        .max_pending_accept_reset_streams(RESETS_PENDING_MAX)
        .max_local_error_reset_streams(RESETS_OWN_MAX)
        .max_header_list_size(HEAD_BYTES_HTTP2_MAX)
        .keep_alive_interval(Duration::from_secs(PING_S))
        .keep_alive_timeout(Duration::from_secs(PING_S));
    builder
}

/// The routes, as one connection reaches them: every request carries where it comes from.
///
/// A connection that is upgraded ends here as one of HTTP, and keeps its place until whoever upgraded it lets it go.
struct Arriving {
    routes: Routes,
    arrival: Arrival,
    held: Held,
}

impl hyper::service::Service<hyper::Request<Incoming>> for Arriving {
    type Response = axum::response::Response;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(self.arrival.clone());
        // Nothing else becomes a socket, and a task of its own for each request would cost every one of them.
        if !request.headers().contains_key(header::UPGRADE) {
            return self.routes.answer(request);
        }
        let (answering, held) = (self.routes.answer(request), self.held.clone());
        Box::pin(async move {
            let answer = answering.await;
            if answer.as_ref().is_ok_and(|answer| answer.status() == StatusCode::SWITCHING_PROTOCOLS) {
                held.become_socket();
            }
            answer
        })
    }
}
