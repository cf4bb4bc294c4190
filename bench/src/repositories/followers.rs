//! Who follows the stream: how soon, how fast, how many.

use super::subject::Subject;
use super::writes::create_request;
use crate::quantiles::Quantiles;
use crate::wire::Wire;
use anyhow::{Context as _, Result, bail, ensure};
use highwater_client::websocket::{Message, WebSocket, WebSocketOptions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long nothing may come before a follower counts as having everything.
const QUIET: Duration = Duration::from_millis(500);
/// Idle followers at the most.
const IDLE_MAX: usize = 500;
/// Before a cell gives up.
const PATIENCE: Duration = Duration::from_secs(30);

fn follow(subject: &Subject, cursor: Option<u64>) -> Result<WebSocket> {
    let cursor = cursor.map(|cursor| format!("?cursor={cursor}")).unwrap_or_default();
    let url = format!("ws://{}/xrpc/com.atproto.sync.subscribeRepos{cursor}", subject.address);
    Ok(WebSocket::connect(&url, &WebSocketOptions::default())?)
}

fn frame(socket: &mut WebSocket, wait: Duration) -> Result<Option<usize>> {
    match socket.read(wait)? {
        Some(Message::Binary(frame)) => Ok(Some(frame.len())),
        Some(Message::Close { code, reason }) => bail!("the server closed: {code} {reason}"),
        _ => Ok(None),
    }
}

/// One client writes one record at a time; from the request's first byte to the frame's last.
pub fn to_frame(subject: &Subject, duration: Duration) -> Result<Quantiles> {
    let mut socket = follow(subject, None)?;
    let request = create_request(&subject.accounts[0], 0);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut wire = runtime.block_on(Wire::connect(subject.address))?;
    let (mut latencies, start) = (Quantiles::recorder(), Instant::now());
    // A socket that is open may not be subscribed yet: the first write is not counted.
    let mut first = true;
    while start.elapsed() < duration || latencies.finish().count == 0 {
        let begun = Instant::now();
        let answered = runtime.spawn({
            let request = request.clone();
            async move {
                wire.ask(&request).await?;
                anyhow::Ok(wire)
            }
        });
        ensure!(frame(&mut socket, PATIENCE)?.is_some() || first, "no frame came");
        if !first {
            latencies.record(begun.elapsed());
        }
        first = false;
        wire = runtime.block_on(answered)??;
    }
    Ok(latencies.finish())
}

/// What a replay was.
pub struct Replayed {
    /// Frames.
    pub events: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// From connecting to the last one.
    pub took: Duration,
}

/// Reads everything that is kept.
pub fn replay(subject: &Subject) -> Result<Replayed> {
    let begun = Instant::now();
    let mut socket = follow(subject, Some(0))?;
    let mut replayed = Replayed { events: 0, bytes: 0, took: Duration::ZERO };
    while let Some(bytes) = frame(&mut socket, QUIET)? {
        replayed.events += 1;
        replayed.bytes += bytes as u64;
        replayed.took = begun.elapsed();
    }
    ensure!(replayed.events > 0, "nothing was replayed");
    Ok(replayed)
}

/// What became of many followers.
pub struct Crowd {
    /// Idle followers beside them.
    pub idle: u64,
    /// Records that were written.
    pub written: u64,
    /// Frames that all followers received together.
    pub received: u64,
    /// Followers that the server closed.
    pub dropped: u64,
    /// Frames that some follower did not get.
    pub missing: u64,
    /// From a write's request to its frame at the last of the busy followers; of one write in each round.
    pub latency_us: Quantiles,
}

/// Each of `busy` followers reads everything, beside idle ones: as many as one address may have. Records are written at a rate
/// over a few connections.
pub fn crowd(subject: &Subject, busy: usize, per_second: f64, duration: Duration) -> Result<Crowd> {
    let over = Arc::new(AtomicBool::new(false));
    let (received, dropped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    // When each follower got its n-th frame: the last of them is what counts.
    let last_seen: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let mut threads = Vec::new();
    for _ in 0..busy {
        let mut socket = follow(subject, None)?;
        let (over, received, dropped, last_seen) =
            (Arc::clone(&over), Arc::clone(&received), Arc::clone(&dropped), Arc::clone(&last_seen));
        threads.push(std::thread::Builder::new().stack_size(256 << 10).spawn(move || {
            let mut mine = 0_usize;
            loop {
                match frame(&mut socket, QUIET) {
                    Ok(Some(_)) => {
                        received.fetch_add(1, Ordering::Relaxed);
                        note(&last_seen, mine);
                        mine += 1;
                    }
                    Ok(None) if over.load(Ordering::Relaxed) => return mine,
                    Ok(None) => {}
                    Err(_) => {
                        dropped.fetch_add(1, Ordering::Relaxed);
                        return mine;
                    }
                }
            }
        })?);
    }
    let idle: Vec<WebSocket> = (0..IDLE_MAX).map_while(|_| follow(subject, None).ok()).collect();
    std::thread::sleep(QUIET);
    let sent = write(subject, per_second, duration)?;
    over.store(true, Ordering::Relaxed);
    let counts: Vec<usize> =
        threads.into_iter().map(|thread| thread.join().ok().context("a follower panicked")).collect::<Result<_>>()?;
    let mut latencies = Quantiles::recorder();
    let seen = last_seen.lock().unwrap_or_else(PoisonError::into_inner);
    // Answers come in the order of the log, so that the n-th request is about the n-th frame.
    for (sent, seen) in sent.iter().zip(seen.iter()) {
        latencies.record(seen.saturating_duration_since(*sent));
    }
    let missing = counts.iter().map(|count| sent.len().saturating_sub(*count) as u64).max().unwrap_or(0);
    Ok(Crowd {
        idle: idle.len() as u64,
        written: sent.len() as u64,
        received: received.load(Ordering::Relaxed),
        dropped: dropped.load(Ordering::Relaxed),
        missing,
        latency_us: latencies.finish(),
    })
}

fn note(last_seen: &Mutex<Vec<Instant>>, number: usize) {
    let now = Instant::now();
    let mut seen = last_seen.lock().unwrap_or_else(PoisonError::into_inner);
    match seen.get_mut(number) {
        Some(last) => *last = now,
        None => seen.push(now),
    }
}

/// Writes at a rate over as many connections as there are accounts; returns when each request was sent, in order.
fn write(subject: &Subject, per_second: f64, duration: Duration) -> Result<Vec<Instant>> {
    let lanes = subject.accounts.len();
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let pause = Duration::from_secs_f64(lanes as f64 / per_second);
        let start = Instant::now();
        let tasks = (0..lanes).map(|lane| {
            let (address, request) = (subject.address, create_request(&subject.accounts[lane], lane));
            tokio::spawn(async move {
                let mut wire = Wire::connect(address).await?;
                let (mut due, mut sent) = (start + pause * lane as u32 / lanes as u32, Vec::new());
                while start.elapsed() < duration {
                    tokio::time::sleep_until(due.into()).await;
                    sent.push(Instant::now());
                    wire.ask(&request).await?;
                    due += pause;
                }
                anyhow::Ok(sent)
            })
        });
        let mut sent = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            sent.extend(task.await??);
        }
        sent.sort_unstable();
        Ok(sent)
    })
}
