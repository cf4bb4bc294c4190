//! What must not grow: with streams that idle, with what was written, at a restart, and behind a crash.

use crate::appends::{self, SYNCED};
use crate::calibrate::Calibration;
use crate::cell::{Cell, Row};
use crate::load::{self, Load};
use crate::server::Highwater;
use crate::subject::{Subject, request};
use crate::wire::Wire;
use anyhow::{Context as _, Result};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// The cells of this file.
pub fn cells() -> Vec<Cell> {
    vec![
        Cell { name: "streams that idle, 100,000".to_owned(), durability: SYNCED, run: Box::new(idle) },
        Cell { name: "memory after what is written".to_owned(), durability: SYNCED, run: Box::new(written) },
        Cell { name: "acknowledged and lost at a kill".to_owned(), durability: SYNCED, run: Box::new(lost) },
    ]
}

/// How many streams: all of them in a measurement, few to see that it works.
fn streams(duration: Duration) -> usize {
    if duration >= Duration::from_secs(1) { 100_000 } else { 1_000 }
}

/// Makes very many streams; what each costs, whether appends get slower, and how long a restart takes.
fn idle(directory: &Path, _: &Calibration, duration: Duration) -> Result<Vec<Row>> {
    let server = Highwater::start(directory)?;
    let count = streams(duration);
    let load = Load { writers: 64, streams: 64, ..Load::default() };
    let few = appends::run(&server.subject(), &load, duration)?.per_second;
    let mut rows = create(&server.subject(), count)?;
    // The creates' own checkpoints end.
    std::thread::sleep(duration.min(Duration::from_secs(2)));
    let many = load::run(&server.subject(), "a64-64-256-", &load, duration)?.per_second;
    rows.push(Row::figure("appends, 64 streams there", few, "/s"));
    rows.push(Row::figure("appends, all of them there", many, "/s"));
    rows.push(Row::at_least("one / the other", many / few, 0.8, "flat"));
    let server = server.restart()?;
    let size = count as f64 / 100_000.0;
    rows.push(Row::at_most("restart after a clean stop, s / 1 s", server.started.as_secs_f64() / size, 1.0, "≤ 1"));
    let memory = server.subject().usage().context("its memory")?.memory_bytes;
    rows.push(Row::figure("memory after it", memory as f64 / 1e6, "MB"));
    rows.push(Row::figure("memory for each stream", memory as f64 / count as f64, "B"));
    let server = server.kill_and_restart()?;
    rows.push(Row::figure("restart after a kill", server.started.as_secs_f64(), "s"));
    Ok(rows)
}

/// Creates streams on 64 connections.
pub fn create(subject: &Subject, count: usize) -> Result<Vec<Row>> {
    let before = subject.usage();
    let begun = Instant::now();
    Runtime::new()?.block_on(subject.create("idle/s", count, "application/octet-stream"))?;
    let mut rows = vec![Row::figure("creates", count as f64 / begun.elapsed().as_secs_f64(), "/s")];
    if let Some((now, before)) = subject.usage().zip(before) {
        let each = now.memory_bytes.saturating_sub(before.memory_bytes) as f64 / count as f64;
        rows.push(Row::figure("memory for each new stream", each, "B"));
    }
    Ok(rows)
}

/// Appends 16 KiB at a time until the time is over, and looks at the memory.
fn written(directory: &Path, _: &Calibration, duration: Duration) -> Result<Vec<Row>> {
    let server = Highwater::start(directory)?;
    let load = Load { writers: 16, streams: 16, bytes: 16 << 10, ..Load::default() };
    let report = appends::run(&server.subject(), &load, duration * 4)?;
    let used = report.used.context("its memory")?;
    Ok(vec![
        Row::figure("written", report.latency_us.count as f64 * 16.0 / 1024.0, "MiB"),
        Row::at_most("memory / 150 MB", used.memory_bytes as f64 / 150e6, 1.0, "≤ 1"),
    ])
}

/// Writers on their own streams, a kill in the middle, and what of the acknowledged is gone afterwards.
fn lost(directory: &Path, _: &Calibration, duration: Duration) -> Result<Vec<Row>> {
    const WRITERS: usize = 16;
    const BYTES: usize = 1_000;
    let mut server = Highwater::start(directory)?;
    let runtime = Runtime::new()?;
    let (mut acknowledged, mut missing) = (0, 0);
    for round in 0..3 {
        let name = format!("lost{round}-");
        let subject = server.subject();
        runtime.block_on(subject.create(&name, WRITERS, "application/octet-stream"))?;
        let counts: Vec<_> = (0..WRITERS).map(|_| Arc::new(AtomicU64::new(0))).collect();
        let mut writers = JoinSet::new();
        for (number, count) in counts.iter().enumerate() {
            let body = vec![b'x'; BYTES];
            let template = subject.append_template(&format!("{name}{number}"), &body, "application/octet-stream");
            writers.spawn_on(until_killed(subject.clone(), template, count.clone()), runtime.handle());
        }
        std::thread::sleep(duration / 3);
        server = server.kill_and_restart()?;
        runtime.block_on(async { while writers.join_next().await.is_some() {} });
        for (number, count) in counts.iter().enumerate() {
            let tail = runtime.block_on(tail(&server.subject(), &format!("{name}{number}")))?;
            let count = count.load(Ordering::Relaxed) * BYTES as u64;
            acknowledged += count;
            missing += count.saturating_sub(tail);
        }
    }
    Ok(vec![
        Row::figure("acknowledged", acknowledged as f64, "B"),
        Row::at_most("acknowledged and lost", missing as f64, 0.0, "0 B"),
    ])
}

async fn until_killed(subject: Subject, template: crate::subject::Template, count: Arc<AtomicU64>) -> Result<()> {
    let (mut wire, mut append) = (Wire::connect(subject.address).await?, Vec::new());
    template.write(format_args!(""), &mut append);
    loop {
        wire.ask(&append).await?;
        count.fetch_add(1, Ordering::Relaxed);
    }
}

async fn tail(subject: &Subject, stream: &str) -> Result<u64> {
    let mut wire = Wire::connect(subject.address).await?;
    wire.send(&request("HEAD", &subject.path(stream), "", b"")).await?;
    wire.head().await?.next_offset.and_then(|next| next.number()).context("a tail")
}
