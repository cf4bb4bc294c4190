//! Threads that serve connections, each with the connections that it was given.
//!
//! A runtime whose workers share everything wakes a second worker for every request: reading a body wakes the task that
//! reads it, and a task that is woken while it runs is offered to others. On a small machine that wake-up costs more than
//! what is done for the request. A connection that stays on one thread wakes nobody else.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Threads that serve connections. They end when this is dropped, and what is still under way on them is cut.
///
/// Without any, connections are served by the runtime that accepts them.
#[derive(Debug, Default)]
pub struct Lanes(Vec<Lane>);

#[derive(Debug)]
struct Lane {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
    /// The thread ends when this is dropped.
    _open: oneshot::Sender<()>,
}

/// A connection's place on a lane.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lanes {
    /// As many as the machine runs threads at once.
    /// # Errors
    /// The system gives no thread, or no descriptors for it.
    pub fn start() -> io::Result<Self> {
        (0..thread::available_parallelism()?.get()).map(Lane::start).collect::<io::Result<_>>().map(Self)
    }

    /// Serves a connection among `connections`, on the lane that has the fewest.
    pub(crate) fn spawn<F>(
        &self,
        connections: &mut JoinSet<()>,
        stream: TcpStream,
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) -> io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(lane) = self.0.iter().min_by_key(|lane| lane.connections.load(Ordering::Relaxed)) else {
            connections.spawn(serve(stream));
            return Ok(());
        };
        lane.connections.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(&lane.connections));
        let stream = stream.into_std()?;
        let task = async move {
            let _place = place;
            // Only here does the lane's own thread hear of it.
            match TcpStream::from_std(stream) {
                Ok(stream) => serve(stream).await,
                Err(error) => tracing::warn!(event = "accept_failed", %error, "a connection could not be served"),
            }
        };
        connections.spawn_on(task, &lane.runtime);
        Ok(())
    }
}

impl Lane {
    fn start(number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (open, closed) = oneshot::channel::<()>();
        let handle = runtime.handle().clone();
        thread::Builder::new().name(format!("http-{number}")).spawn(move || {
            // Either way it ends, nothing is served here any more.
            drop(runtime.block_on(closed));
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, connections: Arc::default(), _open: open })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Mutex;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    /// Where each of four connections is served, and then one more after the others of a lane have gone.
    #[tokio::test]
    async fn connections_are_dealt_out_and_each_stays_where_it_is() {
        let lanes = Lanes((0..2).map(Lane::start).collect::<io::Result<_>>().expect("two threads"));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let address = listener.local_addr().expect("an address");
        let (mut connections, mut peers) = (JoinSet::new(), Vec::new());
        let served: Arc<Mutex<Vec<String>>> = Arc::default();
        for _ in 0..4 {
            peers.push(TcpStream::connect(address).await.expect("a connection"));
            let (stream, _) = listener.accept().await.expect("accepted");
            let served = Arc::clone(&served);
            let serve = |mut stream: TcpStream| async move {
                let mut byte = [0];
                while stream.read_exact(&mut byte).await.is_ok() {
                    let name = thread::current().name().unwrap_or_default().to_owned();
                    served.lock().expect("no panic").push(name);
                }
            };
            lanes.spawn(&mut connections, stream, serve).expect("spawned");
        }
        for peer in &peers {
            for _ in 0..3 {
                peer.writable().await.expect("open");
                peer.try_write(b"x").expect("written");
            }
        }
        drop(peers);
        connections.join_all().await;
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        served.lock().expect("no panic").iter().for_each(|name| *counts.entry(name.clone()).or_default() += 1);
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), [("http-0".to_owned(), 6), ("http-1".to_owned(), 6)]);
        assert!(
            lanes.0.iter().all(|lane| lane.connections.load(Ordering::Relaxed) == 0),
            "their places are free again"
        );
    }

    #[test]
    fn lanes_that_are_dropped_cut_what_is_under_way() {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let lanes = Lanes::start().expect("threads");
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
            let mut peer = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
            let (stream, _) = listener.accept().await.expect("accepted");
            let mut connections = JoinSet::new();
            let serve = |stream: TcpStream| async move {
                let _held = stream;
                std::future::pending::<()>().await;
            };
            lanes.spawn(&mut connections, stream, serve).expect("spawned");
            drop(lanes);
            assert_eq!(peer.read(&mut [0]).await.expect("an end"), 0);
        });
    }
}
