//! Listeners, from their sockets to a clean end.

use crate::closing::Closing;
use crate::connection::Gate;
use crate::front::{Front, Services};
use crate::lanes::Lanes;
use crate::mount::Mounted;
use crate::network::Network;
use crate::options::HttpOptions;
use crate::router::{App, Routes};
use crate::service::Service;
use crate::timed::Held;
use crate::tls::{Reloaded, Standing, Tls};
use crate::traffic::{self, Traffic};
use axum::Router;
use highwater_base::Millis;
use hyper_util::server::graceful::GracefulShutdown;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Milliseconds to wait after a failed accept, which usually means that descriptors ran out.
const ACCEPT_PAUSE_MS: u64 = 50;

/// Milliseconds between two looks at whether the last socket has ended.
const SOCKETS_LOOK_MS: u64 = 10;

/// Why a listener was not served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Open mode has no keys, so nobody but this machine may reach it.
    #[error(
        "{0} is not a loopback address: without keys this server listens on loopback only, for example 127.0.0.1:4437"
    )]
    NotLoopback(SocketAddr),
    /// Keys would cross the network in the clear.
    #[error("{0} is not a loopback address, and has neither TLS nor a stated proxy in front that has it")]
    Unprotected(SocketAddr),
    /// The listener does not work.
    #[error("the listener failed")]
    Listener(#[from] io::Error),
}

/// A socket that listens, and what is served on it.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub socket: TcpListener,
    /// With TLS, or without.
    pub tls: Option<Tls>,
    /// What is served, and to whom.
    pub front: Front,
}

impl Listener {
    /// Refuses what would be open to others, or carry their keys in the clear.
    fn check(&self) -> Result<SocketAddr, ServeError> {
        let address = self.socket.local_addr()?;
        if address.ip().to_canonical().is_loopback() {
            return Ok(address);
        }
        if self.front.open {
            return Err(ServeError::NotLoopback(address));
        }
        if self.tls.is_none() && self.front.proxies.is_empty() {
            return Err(ServeError::Unprotected(address));
        }
        Ok(address)
    }
}

/// A server of one node on any number of listeners, which share its limits.
#[derive(Debug)]
pub struct Server<S> {
    app: App<S>,
    lanes: Lanes,
}

impl<S: Service> Server<S> {
    /// A server that does not listen yet.
    pub fn new(service: S, options: HttpOptions) -> Self {
        Self { app: App::new(service, options), lanes: Lanes::default() }
    }

    /// Serves what lives beside the node too.
    #[must_use]
    pub fn beside(mut self, mounted: Mounted) -> Self {
        self.app.mounted = Some(Arc::new(mounted));
        self
    }

    /// The moment from which the server stops, for what holds sockets of its own.
    #[must_use]
    pub fn closing(&self) -> Closing {
        self.app.closing.clone()
    }

    /// Serves its connections on threads of their own, rather than on the runtime that accepts them.
    #[must_use]
    pub fn over(self, lanes: Lanes) -> Self {
        Self { lanes, ..self }
    }

    /// Serves until `shutdown` resolves. Then readers that wait are answered at once, requests that do something
    /// finish, and what takes longer than `shutdown_ms_max` is cut.
    ///
    /// # Errors
    /// `NotLoopback` and `Unprotected` before anything is accepted; `Listener` if an address cannot be told.
    pub async fn serve(self, listeners: Vec<Listener>, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Self { mut app, lanes } = self;
        let gate = Arc::new(Gate::new((*app.options).clone(), app.closing.clone(), app.traffic.clone()));
        app.certificates = listeners.iter().filter_map(|listener| listener.tls.clone()).collect();
        let mut watching = JoinSet::new();
        for tls in &app.certificates {
            watching.spawn(watch(tls.clone(), app.service.clone(), gate.clone()));
        }
        let served = listen(gate, Arc::new(lanes), listeners, app.routes(), shutdown).await;
        watching.shutdown().await;
        served
    }
}

/// Serves any `router` on `listener`, in open mode, until `shutdown` resolves, and then lets requests in flight finish.
///
/// # Errors
/// As [`Server::serve`].
pub async fn serve(
    listener: TcpListener,
    router: Router,
    options: HttpOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let gate = Gate::new(options, Closing::default(), Arc::default());
    let listener = Listener { socket: listener, tls: None, front: Front::default() };
    listen(Arc::new(gate), Arc::default(), vec![listener], router.into(), shutdown).await
}

async fn listen(
    gate: Arc<Gate>,
    lanes: Arc<Lanes>,
    listeners: Vec<Listener>,
    routes: Routes,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    for listener in &listeners {
        let address = listener.check()?;
        let Services { streams, admin, xrpc } = listener.front.services;
        let (tls, open) = (listener.tls.is_some(), listener.front.open);
        tracing::info!(event = "listening", %address, tls, open, streams, admin, xrpc, "a listener is open");
    }
    let graceful = Arc::new(GracefulShutdown::new());
    let mut accepting = JoinSet::new();
    for listener in listeners {
        accepting.spawn(accept(gate.clone(), lanes.clone(), listener, routes.clone(), graceful.clone()));
    }
    shutdown.await;
    gate.closing.begin();
    let mut connections = accepting.join_all().await;
    let end = Duration::from_millis(gate.options.shutdown_ms_max);
    // Whoever accepted held the only others.
    let graceful = Arc::into_inner(graceful).unwrap_or_default();
    let ended = async {
        graceful.shutdown().await;
        // A connection that became a socket is not among those that are watched; it has its place until it ends.
        while gate.traffic.open.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(SOCKETS_LOOK_MS)).await;
        }
    };
    if tokio::time::timeout(end, ended).await.is_err() {
        let left = gate.traffic.open.load(Ordering::Relaxed);
        tracing::warn!(
            event = "cut_at_stop",
            connections = left,
            "requests in flight were cut when the server stopped"
        );
    }
    for connections in &mut connections {
        connections.shutdown().await;
    }
    Ok(())
}

/// Accepts connections until the server stops, and gives those that are left.
async fn accept(
    gate: Arc<Gate>,
    lanes: Arc<Lanes>,
    listener: Listener,
    routes: Routes,
    graceful: Arc<GracefulShutdown>,
) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    let front = Arc::new(listener.front);
    let public = front.services.streams || front.services.xrpc;
    let places = if public { &gate.places } else { &gate.places_admin };
    // A proxy's address stands for many clients, and this machine's own for all its processes.
    let spared: Vec<Network> = front.proxies.iter().copied().chain(Network::LOOPBACK).collect();
    loop {
        let accepted = async {
            let one_of_all = places.wait().await;
            (listener.socket.accept().await, one_of_all)
        };
        let (stream, peer, one_of_all) = tokio::select! {
            () = gate.closing.wait() => break,
            Some(_) = connections.join_next() => continue,
            accepted = accepted => match accepted {
                (Ok((stream, peer)), Some(one_of_all)) => (stream, peer, one_of_all),
                (Ok(_), None) => break,
                (Err(error), _) => {
                    tracing::warn!(event = "accept_failed", %error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
                    continue;
                }
            },
        };
        let Some(place) = places.take(one_of_all, peer.ip(), &spared) else {
            refuse(&gate.traffic, peer);
            continue;
        };
        let present = gate.traffic.enter();
        let (gate, tls) = (gate.clone(), listener.tls.as_ref().map(Tls::acceptor));
        let (front, routes, watcher) = (front.clone(), routes.clone(), graceful.watcher());
        let held = Held::new((place, present));
        let serve = move |stream| async move { gate.serve(stream, (peer, held), tls, front, routes, watcher).await };
        if let Err(error) = lanes.spawn(&mut connections, stream, serve) {
            tracing::warn!(event = "accept_failed", %error, "a connection could not be served");
        }
    }
    connections
}

/// A connection from an address that has as many as it may is closed without a word.
fn refuse(traffic: &Traffic, peer: SocketAddr) {
    traffic::count(&traffic.refused);
    if let Some(untold) = traffic.refusals_told.tell() {
        let reason = "its address has as many connections as it may";
        tracing::warn!(event = "connection_refused", %peer, reason, untold, "a connection was refused");
    }
}

/// Milliseconds between two lines about a certificate that needs to be renewed.
const STANDING_TOLD_MS: u64 = 86_400_000;

/// Looks for new certificates for as long as it runs, and tells of one whose end comes near.
async fn watch<S: Service>(tls: Tls, service: S, gate: Arc<Gate>) {
    let mut told = None;
    loop {
        let now = service.wall();
        let standing = tls.validity().map(|validity| validity.at(now));
        let due = |(said, at): (Option<Standing>, Millis)| said != standing || now.since(at) >= STANDING_TOLD_MS;
        if told.is_none_or(due) {
            told = Some((standing, now));
            tls.tell_standing(now);
        }
        tokio::time::sleep(Duration::from_millis(gate.options.tls_watch_ms)).await;
        let (again, now) = (tls.clone(), service.wall());
        // Reading files may block; a thread that panicked changed nothing.
        let Ok(reloaded) = tokio::task::spawn_blocking(move || again.reload(now)).await else { continue };
        match &reloaded {
            Reloaded::Changed => traffic::count(&gate.traffic.certificates_taken),
            Reloaded::Refused(_) => traffic::count(&gate.traffic.certificates_refused),
            Reloaded::Unchanged | Reloaded::RefusedBefore => {}
        }
        tls.tell(&reloaded);
    }
}
