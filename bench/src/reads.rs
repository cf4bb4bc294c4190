//! Reads: catching up, looking at the tail, and waiting for what comes.

use crate::calibrate::Calibration;
use crate::cell::{Cell, Row};
use crate::quantiles::{Quantiles, Recorder};
use crate::server::Highwater;
use crate::subject::{Subject, request};
use crate::wire::Wire;
use anyhow::{Context as _, Result, ensure};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Bytes of the stream that is caught up with.
const CATCH_UP_BYTES: u64 = 16 << 20;

/// Events a second of the fan-out cells.
const EVENTS_PER_SECOND: f64 = 20.0;

const READS: &str = "reads; what they read was synced";

/// The cells of this file.
pub fn cells() -> Vec<Cell> {
    let cell = |name: String, run: Measure| Cell { name, durability: READS, run };
    let mut cells = Vec::new();
    for connections in [1, 8, 32] {
        let name = format!("catch-up, 16 MiB, {connections} at once");
        cells.push(cell(name, with_server(move |subject, duration| catch_up(subject, connections, duration))));
    }
    for connections in [1, 64] {
        let name = format!("read at the tail, {connections} at once");
        cells.push(cell(name, with_server(move |subject, duration| tail(subject, connections, duration))));
    }
    for readers in [1, 100, 1_000] {
        let name = format!("fan-out by events, {readers} readers");
        cells.push(cell(name, with_server(move |subject, duration| fan_out(subject, readers, duration))));
    }
    cells.push(cell("long-polls that wait, 10,000".to_owned(), with_server(waiting)));
    cells
}

type Measure = Box<dyn Fn(&Path, &Calibration, Duration) -> Result<Vec<Row>>>;

fn with_server(measure: impl Fn(&Subject, Duration) -> Result<Vec<Row>> + 'static) -> Measure {
    Box::new(move |directory, _, duration| measure(&Highwater::start(directory)?.subject(), duration))
}

/// Appends so many bytes to a new stream.
async fn fill(subject: &Subject, name: &str, bytes: u64) -> Result<()> {
    const PIECE: usize = 256 << 10;
    subject.create(name, 1, "application/octet-stream").await?;
    let template = subject.append_template(&format!("{name}0"), &vec![b'y'; PIECE], "application/octet-stream");
    let (mut wire, mut append) = (Wire::connect(subject.address).await?, Vec::new());
    template.write(format_args!(""), &mut append);
    for _ in 0..bytes / PIECE as u64 {
        wire.ask(&append).await?;
    }
    Ok(())
}

/// Reads a stream from its start to its end, over and over.
pub fn catch_up(subject: &Subject, connections: usize, duration: Duration) -> Result<Vec<Row>> {
    Runtime::new()?.block_on(async {
        let name = format!("catch-up{connections}-");
        fill(subject, &name, CATCH_UP_BYTES).await?;
        let (path, begun) = (subject.path(&format!("{name}0")), Instant::now());
        let read = Arc::new(AtomicU64::new(0));
        let before = subject.usage();
        let mut readers = JoinSet::new();
        for _ in 0..connections {
            let (address, path, read) = (subject.address, path.clone(), read.clone());
            readers.spawn(async move {
                let (mut wire, mut offset) = (Wire::connect(address).await?, "-1".to_owned());
                while begun.elapsed() < duration {
                    wire.send(&request("GET", &format!("{path}?offset={offset}"), "", b"")).await?;
                    let head = wire
                        .receive(|piece| {
                            read.fetch_add(piece.len() as u64, Ordering::Relaxed);
                        })
                        .await?;
                    ensure!(head.status == 200, "{}", head.status);
                    let next = head.next_offset.map(|next| next.text().to_owned());
                    offset = next.filter(|_| !head.up_to_date).unwrap_or_else(|| "-1".to_owned());
                }
                Ok(())
            });
        }
        while let Some(done) = readers.join_next().await {
            done??;
        }
        let mib = read.load(Ordering::Relaxed) as f64 / f64::from(1 << 20);
        let mut rows = vec![Row::figure("read", mib / begun.elapsed().as_secs_f64(), "MiB/s")];
        if let Some((after, before)) = subject.usage().zip(before) {
            let cpu_s = (after.cpu_us - before.cpu_us) as f64 / 1e6;
            rows.push(Row::figure("read for each second of the server's processor time", mib / cpu_s.max(1e-6), "MiB"));
        }
        Ok(with_memory(rows, subject))
    })
}

/// Asks for what follows the last byte, which is nothing.
pub fn tail(subject: &Subject, connections: usize, duration: Duration) -> Result<Vec<Row>> {
    Runtime::new()?.block_on(async {
        let name = format!("tail{connections}-");
        fill(subject, &name, 256 << 10).await?;
        let end = crate::load::get(subject, &format!("{}?offset=now", subject.path(&format!("{name}0")))).await?;
        let offset = end.next_offset.context("the tail")?;
        let path = format!("{}?offset={}", subject.path(&format!("{name}0")), offset.text());
        let ask = request("GET", &path, "", b"");
        let begun = Instant::now();
        let mut readers: JoinSet<Result<Recorder>> = JoinSet::new();
        for _ in 0..connections {
            let (address, ask) = (subject.address, ask.clone());
            readers.spawn(async move {
                let (mut wire, mut latencies) = (Wire::connect(address).await?, Quantiles::recorder());
                while begun.elapsed() < duration {
                    let asked = Instant::now();
                    wire.ask(&ask).await?;
                    latencies.record(asked.elapsed());
                }
                Ok(latencies)
            });
        }
        let latency_us = merged(&mut readers).await?;
        let reads = latency_us.count as f64 / begun.elapsed().as_secs_f64();
        Ok(vec![
            Row::figure("reads", reads, "/s"),
            Row::figure("p50", latency_us.p50, "µs"),
            Row::figure("p99", latency_us.p99, "µs"),
        ])
    })
}

async fn merged(tasks: &mut JoinSet<Result<Recorder>>) -> Result<Quantiles> {
    let mut all = Quantiles::recorder();
    while let Some(done) = tasks.join_next().await {
        all.merge(&done??);
    }
    Ok(all.finish())
}

/// One writer, many readers of its events: from the append's start to each reader's receipt.
pub fn fan_out(subject: &Subject, readers: usize, duration: Duration) -> Result<Vec<Row>> {
    Runtime::new()?.block_on(async {
        let name = format!("fan-out{readers}-");
        subject.create(&name, 1, "text/plain").await?;
        let before = subject.usage();
        let (path, epoch) = (subject.path(&format!("{name}0")), Instant::now());
        let events = (duration.as_secs_f64() * EVENTS_PER_SECOND).ceil().max(3.0) as u64;
        let connected = Arc::new(Barrier::new(readers + 1));
        let mut tasks: JoinSet<Result<Recorder>> = JoinSet::new();
        for _ in 0..readers {
            let (address, path, connected) = (subject.address, path.clone(), connected.clone());
            tasks.spawn(async move {
                let mut wire = Wire::connect(address).await?;
                wire.send(&request("GET", &format!("{path}?offset=-1&live=sse"), "", b"")).await?;
                let head = wire.head().await?;
                ensure!(head.status == 200, "{}", head.status);
                connected.wait().await;
                follow(&mut wire, epoch, events).await
            });
        }
        connected.wait().await;
        let memory =
            subject.usage().zip(before).map(|(now, before)| now.memory_bytes.saturating_sub(before.memory_bytes));
        let (mut wire, mut append) = (Wire::connect(subject.address).await?, Vec::new());
        let waiting = subject.usage();
        let mut due = tokio::time::interval(Duration::from_secs_f64(1.0 / EVENTS_PER_SECOND));
        for _ in 0..events {
            due.tick().await;
            let body = format!("t={:016x} {}\n", epoch.elapsed().as_nanos(), "z".repeat(236));
            let template = subject.append_template(&format!("{name}0"), body.as_bytes(), "text/plain");
            template.write(format_args!(""), &mut append);
            wire.ask(&append).await?;
        }
        let all = tokio::time::timeout(Duration::from_secs(30), merged(&mut tasks));
        let latency_us = all.await.context("not every event arrived within half a minute")??;
        let mut rows =
            vec![Row::figure("events received", latency_us.count as f64, ""), Row::figure("p50", latency_us.p50, "µs")];
        rows.push(match readers {
            1_000 => Row::at_most("p99 / 10 ms", latency_us.p99 / 10_000.0, 1.0, "≤ 1 (10 ms)"),
            _ => Row::figure("p99", latency_us.p99, "µs"),
        });
        rows.extend(memory.map(|bytes| Row::figure("memory for each reader", bytes as f64 / readers as f64, "B")));
        if let Some((after, before)) = subject.usage().zip(waiting) {
            let each = |used: u64| used as f64 / (events as f64 * readers as f64);
            let cpu_us = each(after.cpu_us - before.cpu_us);
            rows.push(Row::figure("server's processor time for each event and reader", cpu_us, "µs"));
            let sleeps = each(after.switches.saturating_sub(before.switches));
            rows.push(Row::figure("sleeps of a server's thread for each", sleeps, ""));
        }
        Ok(rows)
    })
}

/// Receives so many events and notes how long each was under way. An event says when it was sent, as `t=` and 16 hex
/// digits, which may come in pieces.
async fn follow(wire: &mut Wire, epoch: Instant, events: u64) -> Result<Recorder> {
    const MARK_BYTES: usize = 18;
    let (mut latencies, mut seen, mut rest) = (Quantiles::recorder(), 0, Vec::new());
    while seen < events {
        rest.extend_from_slice(wire.some().await?);
        let now = epoch.elapsed();
        while let Some(at) = rest.windows(2).position(|window| window == b"t=") {
            let Some(digits) = rest.get(at + 2..at + MARK_BYTES) else { break };
            if let Some(sent) = std::str::from_utf8(digits).ok().and_then(|text| u64::from_str_radix(text, 16).ok()) {
                latencies.record(now.saturating_sub(Duration::from_nanos(sent)));
                seen += 1;
            }
            drop(rest.drain(..at + MARK_BYTES.min(rest.len() - at)));
        }
        let keep = rest.len().saturating_sub(MARK_BYTES);
        drop(rest.drain(..keep));
    }
    Ok(latencies)
}

/// Ten thousand readers that wait at the tail of a hundred streams, and are all woken.
pub fn waiting(subject: &Subject, duration: Duration) -> Result<Vec<Row>> {
    let readers = if duration >= Duration::from_secs(1) { 10_000 } else { 500 };
    const STREAMS: usize = 100;
    Runtime::new()?.block_on(async {
        subject.create("waiting", STREAMS, "application/octet-stream").await?;
        let before = subject.usage();
        let mut tasks: JoinSet<Result<Recorder>> = JoinSet::new();
        let woken_at = Arc::new(tokio::sync::OnceCell::<Instant>::new());
        for number in 0..readers {
            let mut wire = Wire::connect_small(subject.address).await?;
            let path = subject.path(&format!("waiting{}", number % STREAMS));
            wire.send(&request("GET", &format!("{path}?offset=-1&live=long-poll&timeout_ms=60000"), "", b"")).await?;
            let woken_at = woken_at.clone();
            tasks.spawn(async move {
                let head = wire.receive(|_| ()).await?;
                let mut latency = Quantiles::recorder();
                let woken_at = woken_at.get().context("it was answered before anything was appended")?;
                latency.record(woken_at.elapsed());
                ensure!(head.status == 200, "{}", head.status);
                Ok(latency)
            });
        }
        // The last of them have been asked, and not yet been taken note of.
        tokio::time::sleep(Duration::from_secs(1).min(duration * 2)).await;
        let memory =
            subject.usage().zip(before).map(|(now, before)| now.memory_bytes.saturating_sub(before.memory_bytes));
        woken_at.set(Instant::now())?;
        let (mut wire, mut append) = (Wire::connect(subject.address).await?, Vec::new());
        for number in 0..STREAMS {
            let template = subject.append_template(&format!("waiting{number}"), b"news", "application/octet-stream");
            template.write(format_args!(""), &mut append);
            wire.ask(&append).await?;
        }
        let latency_us = merged(&mut tasks).await?;
        let mut rows = vec![
            Row::figure("readers woken", latency_us.count as f64, ""),
            Row::figure("the last after", latency_us.max / 1000.0, "ms"),
        ];
        rows.extend(memory.map(|bytes| Row::figure("memory for each", bytes as f64 / readers as f64, "B")));
        Ok(rows)
    })
}

fn with_memory(mut rows: Vec<Row>, subject: &Subject) -> Vec<Row> {
    rows.extend(subject.usage().map(|used| Row::figure("memory after it", used.memory_bytes as f64 / 1e6, "MB")));
    rows
}
