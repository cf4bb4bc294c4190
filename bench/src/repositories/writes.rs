//! Records written and exported.

use super::subject::{Account, Subject, post};
use crate::load::Report;
use crate::quantiles::{Quantiles, Recorder};
use crate::subject::request;
use crate::wire::Wire;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Writes of a batch: as many as a commit takes.
pub const BATCH: usize = 200;

/// The kind of record that is written.
const COLLECTION: &str = "com.example.bench";

/// A record of about 200 bytes, as a short post has.
fn record(number: usize) -> Value {
    json!({ "$type": COLLECTION, "number": number, "createdAt": "2026-01-31T12:00:00.000Z", "text": "word ".repeat(24) })
}

/// A request that creates one record in an account.
pub fn create_request(account: &Account, number: usize) -> Vec<u8> {
    let body = json!({ "repo": account.did, "collection": COLLECTION, "validate": false, "record": record(number) });
    procedure(account, "com.atproto.repo.createRecord", &body)
}

fn procedure(account: &Account, method: &str, body: &Value) -> Vec<u8> {
    let headers = format!("Content-Type: application/json\r\n{}", account.authorization());
    request("POST", &format!("/xrpc/{method}"), &headers, body.to_string().as_bytes())
}

fn batch(account: &Account) -> Value {
    let writes = (0..BATCH).map(|number| {
        json!({ "$type": "com.atproto.repo.applyWrites#create", "collection": COLLECTION, "value": record(number) })
    });
    json!({ "repo": account.did, "validate": false, "writes": writes.collect::<Vec<_>>() })
}

/// Creates records over so many connections, each with one request in flight, spread over the accounts.
pub fn create(subject: &Subject, clients: usize, duration: Duration) -> Result<Report> {
    send(subject, clients, duration, |client| {
        create_request(&subject.accounts[client % subject.accounts.len()], client)
    })
}

/// Creates records in batches, one client for each of four accounts.
pub fn batches(subject: &Subject, duration: Duration) -> Result<Report> {
    let clients = subject.accounts.len().min(4);
    send(subject, clients, duration, |client| {
        let account = &subject.accounts[client];
        procedure(account, "com.atproto.repo.applyWrites", &batch(account))
    })
}

/// Sends the same request again and again over each connection.
fn send(subject: &Subject, clients: usize, duration: Duration, request: impl Fn(usize) -> Vec<u8>) -> Result<Report> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let begun = Instant::now();
        let tasks = (0..clients).map(|client| tokio::spawn(repeat(subject.address, request(client), duration)));
        let mut all = Quantiles::recorder();
        for task in tasks.collect::<Vec<_>>() {
            all.merge(&task.await??);
        }
        let latency_us = all.finish();
        let per_second = latency_us.count as f64 / begun.elapsed().as_secs_f64();
        Ok(Report { per_second, latency_us, used: None })
    })
}

async fn repeat(address: SocketAddr, request: Vec<u8>, duration: Duration) -> Result<Recorder> {
    let mut wire = Wire::connect(address).await?;
    let mut latencies = Quantiles::recorder();
    let start = Instant::now();
    while start.elapsed() < duration {
        let begun = Instant::now();
        wire.ask(&request).await?;
        latencies.record(begun.elapsed());
    }
    Ok(latencies)
}

/// Fills the first account's repository until its export has so many bytes.
pub fn fill(subject: &Subject, bytes: usize) -> Result<()> {
    /// What a record adds to an export at the most.
    const RECORD_BYTES_MAX: usize = 400;
    let account = &subject.accounts[0];
    loop {
        let missing = bytes.saturating_sub(once(subject)?.1);
        if missing == 0 {
            return Ok(());
        }
        for _ in 0..missing.div_ceil(BATCH * RECORD_BYTES_MAX) {
            post(subject.address, "com.atproto.repo.applyWrites", Some(account), &batch(account))?;
        }
    }
}

/// What exporting took.
pub struct Exported {
    /// Bytes of the archive.
    pub bytes: usize,
    /// The shortest.
    pub fastest: Duration,
    /// The longest.
    pub slowest: Duration,
}

/// Exports the first account's repository five times.
pub fn export(subject: &Subject) -> Result<Exported> {
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(once(subject)?);
    }
    let times = || all.iter().map(|(took, _)| *took);
    Ok(Exported {
        bytes: all[0].1,
        fastest: times().min().unwrap_or_default(),
        slowest: times().max().unwrap_or_default(),
    })
}

fn once(subject: &Subject) -> Result<(Duration, usize)> {
    let path = format!("/xrpc/com.atproto.sync.getRepo?did={}", subject.accounts[0].did.replace('%', "%25"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut wire = Wire::connect(subject.address).await?;
        let (begun, mut bytes) = (Instant::now(), 0);
        wire.send(&request("GET", &path, "", b"")).await?;
        let head = wire.receive(|piece| bytes += piece.len()).await?;
        ensure!(head.status == 200, "getRepo: {}", head.status);
        Ok((begun.elapsed(), bytes))
    })
}
