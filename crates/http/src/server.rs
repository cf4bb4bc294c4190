//! Connections: HTTP/1.1 and HTTP/2 on one listener, bounded, and ended with grace.

use crate::options::HttpOptions;
use crate::timed::Timed;
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Bytes of a request's head: a path of a kibibyte, every header of the contract, and room for a browser's own.
const HEAD_BYTES_MAX: u32 = 64 << 10;

/// Headers of a request's head.
const HEADERS_MAX: usize = 128;

/// Seconds between pings of a quiet HTTP/2 connection, and for their answer.
const PING_S: u64 = 20;

/// Milliseconds to wait after a failed accept, which usually means that descriptors ran out.
const ACCEPT_PAUSE_MS: u64 = 50;

/// Why a listener was not served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Open mode has no keys, so nobody but this machine may reach it.
    #[error(
        "{0} is not a loopback address: without keys this server listens on loopback only, for example 127.0.0.1:4437"
    )]
    NotLoopback(SocketAddr),
    /// The listener does not work.
    #[error("the listener failed")]
    Listener(#[from] io::Error),
}

/// Serves `router` on `listener` until `shutdown` resolves, and then lets requests in flight finish.
///
/// # Errors
/// `NotLoopback` before anything is accepted; `Listener` if its address cannot be told.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    options: HttpOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let address = listener.local_addr()?;
    if !address.ip().to_canonical().is_loopback() {
        return Err(ServeError::NotLoopback(address));
    }
    let builder = builder(&options);
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(options.connections_max));
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        let accepted = async {
            // The semaphore is never closed, so this waits for a place and nothing else.
            let place = places.clone().acquire_owned().await.ok();
            (listener.accept().await, place)
        };
        let (stream, place) = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => continue,
            (accepted, place) = accepted => match accepted {
                Ok((stream, _)) => (stream, place),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
                    continue;
                }
            },
        };
        let connection = connect(&builder, stream, &router, &options, &graceful);
        connections.spawn(async move {
            connection.await;
            drop(place);
        });
    }
    drop(listener);
    let end = Duration::from_millis(options.shutdown_ms_max);
    if tokio::time::timeout(end, graceful.shutdown()).await.is_err() {
        tracing::info!(connections = connections.len(), "requests in flight were cut when the server stopped");
    }
    connections.shutdown().await;
    Ok(())
}

fn builder(options: &HttpOptions) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(options.head_ms_max))
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(options.http2_requests_max)
        .max_header_list_size(HEAD_BYTES_MAX)
        .keep_alive_interval(Duration::from_secs(PING_S))
        .keep_alive_timeout(Duration::from_secs(PING_S));
    builder
}

/// One connection, from its first byte to its last.
fn connect(
    builder: &Builder<TokioExecutor>,
    stream: TcpStream,
    router: &Router,
    options: &HttpOptions,
    graceful: &GracefulShutdown,
) -> impl Future<Output = ()> + use<> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps its delay");
    }
    let io = TokioIo::new(Timed::new(stream, options.head_ms_max, options.write_idle_ms_max));
    let service = TowerToHyperService::new(router.clone());
    let connection = graceful.watch(builder.serve_connection(io, service).into_owned());
    async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}
