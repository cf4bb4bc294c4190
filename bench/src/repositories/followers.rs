//! Who follows the stream: how soon, how fast, how many.

use super::subject::Subject;
use super::writes::create_request;
use crate::quantiles::Quantiles;
use crate::wire::Wire;
use anyhow::{Context as _, Result, bail, ensure};
use highwater_client::websocket::{Message, WebSocket, WebSocketOptions};
use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long nothing may come before a follower counts as having everything.
const QUIET: Duration = Duration::from_millis(500);
/// Idle followers.
const IDLE: usize = 500;
/// Of one address, which may have 64 sockets by default. Every address below 127 is this machine's, on Linux.
const IDLE_PER_ADDRESS: usize = 50;
/// Bytes that the system takes for an idle follower before it takes nothing more.
const IDLE_RECEIVED_BYTES: usize = 4 << 10;
/// Bytes of a segment to it, as on a network: loopback's segments of 64 KiB let the server's kernel hold megabytes for each.
const IDLE_SEGMENT_BYTES: u32 = 1_460;
/// Bytes that both ends of such a socket hold at the most.
const IDLE_HELD_BYTES_MAX: usize = 1 << 20;
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

/// Sockets that follow the stream and take nothing of it.
struct Idle(Vec<TcpStream>);

impl Idle {
    fn connect(subject: &Subject) -> Result<Self> {
        (0..IDLE).map(|number| idle(subject.address, number)).collect::<Result<_>>().map(Self)
    }

    /// How many the server closed.
    fn closed(&mut self) -> Result<usize> {
        let mut closed = 0;
        for socket in &mut self.0 {
            closed += usize::from(is_closed(socket)?);
        }
        Ok(closed)
    }
}

/// Whether the end comes behind what the kernels hold; a socket that is open has no such end, and would be filled again.
fn is_closed(socket: &mut TcpStream) -> Result<bool> {
    let (mut bytes, mut left) = ([0; 64 << 10], IDLE_HELD_BYTES_MAX);
    while left > 0 {
        match socket.read(&mut bytes) {
            Ok(0) => return Ok(true),
            Ok(read) => left = left.saturating_sub(read),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

fn idle(address: SocketAddr, number: usize) -> Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    let host = u8::try_from(2 + number / IDLE_PER_ADDRESS).context("an address for each fifty")?;
    let here = SocketAddr::from(([127, 0, 0, host], 0));
    socket.bind(&here.into()).context("followers from further addresses of this machine")?;
    socket.set_recv_buffer_size(IDLE_RECEIVED_BYTES)?;
    socket.set_tcp_mss(IDLE_SEGMENT_BYTES)?;
    socket.connect(&address.into())?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    let upgrade = format!(
        "GET /xrpc/com.atproto.sync.subscribeRepos HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    stream.write_all(upgrade.as_bytes())?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        answer.extend(byte);
    }
    ensure!(answer.starts_with(b"HTTP/1.1 101 "), "an idle follower: {}", String::from_utf8_lossy(&answer));
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// What became of many followers.
pub struct Crowd {
    /// Idle followers beside them.
    pub idle: u64,
    /// Of these, those that the server closed.
    pub idle_dropped: u64,
    /// Memory of the server's process for each of them, if it is known.
    pub idle_bytes: Option<f64>,
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

/// Each of `busy` followers reads everything, beside idle ones, which take nothing. Records are written at a rate over a few
/// connections. Servers let go who leaves some thousands of frames, so that there are fewer of them in all.
pub fn crowd(subject: &Subject, busy: usize, per_second: f64, duration: Duration) -> Result<Crowd> {
    let over = Arc::new(AtomicBool::new(false));
    let memory = || subject.usage().map(|used| used.memory_bytes as f64);
    let without = memory();
    let mut idle = Idle::connect(subject)?;
    std::thread::sleep(QUIET);
    let idle_bytes = memory().zip(without).map(|(with, without)| (with - without) / IDLE as f64);
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
        idle: idle.0.len() as u64,
        idle_dropped: idle.closed()? as u64,
        idle_bytes,
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
