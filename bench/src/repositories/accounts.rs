//! Many accounts in a directory: how long a start takes, and what each of them costs in memory.

use super::subject::{Host, free_address};
use crate::calibrate::Calibration;
use crate::cell::Row;
use crate::process::Usage;
use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use highwater_disk::{OsDisk, SystemClock, SystemRandom};
use highwater_host::{Action, NewAccount, Options, RecordWrite, Running, Seams, Status, WriteBatch, mark_restored};
use highwater_pds::AccountId;
use highwater_repo::data::{Map, Value, encode};
use highwater_repo::key::Curve;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Records of a commit, at the most.
const BATCH: usize = 200;

/// Accounts that are written to at once.
const AT_ONCE: usize = 50;

/// Records in the commits of an account whose memory is told: a hundred, of which most come in one commit.
const COMMITS: [usize; 11] = [1, 1, 1, 1, 1, 90, 1, 1, 1, 1, 1];

/// Accounts of which the memory is told, in a measurement.
const MEMORY: [usize; 3] = [100, 1_000, 10_000];

fn is_measurement(duration: Duration) -> bool {
    duration >= Duration::from_secs(1)
}

/// The server of accounts in this process.
struct Inside {
    host: highwater_host::Host,
    running: Running,
}

impl Inside {
    fn open(directory: &Path, zone: &str) -> Result<Self> {
        let seams = Seams {
            disk: Arc::new(OsDisk::new()),
            clock: Arc::new(SystemClock::new()),
            random: Box::new(SystemRandom),
            sealer: None,
        };
        let (host, worker, _) = highwater_host::Host::open(Options::new(directory, zone), seams)?;
        Ok(Self { host, running: worker.spawn()? })
    }

    fn stop(self) -> Result<()> {
        self.running.stop().map_err(anyhow::Error::msg)
    }

    fn accounts(&self, count: usize) -> Result<Vec<AccountId>> {
        let new = || NewAccount { handle: None, password_hash: None, curve: Curve::K256, activate: true };
        let pending: Vec<_> = (0..count).map(|_| self.host.create_account(new())).collect();
        pending.into_iter().map(|pending| Ok(pending.wait()?)).collect()
    }

    /// Writes commits of so many records to every account: those of some accounts at once, from two threads.
    fn write(&self, accounts: &[AccountId], commits: &[usize]) -> Result<()> {
        let each = |accounts: &[AccountId]| -> Result<()> {
            for (accounts, records) in accounts.chunks(AT_ONCE).flat_map(|some| commits.iter().map(move |n| (some, *n)))
            {
                let batch = || WriteBatch { writes: (0..records).map(create).collect(), swap_commit: None };
                let pending: Vec<_> = accounts.iter().map(|account| self.host.write(*account, batch())).collect();
                pending.into_iter().try_for_each(|pending| pending.wait().map(drop))?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let (one, other) = accounts.split_at(accounts.len() / 2);
            let one = scope.spawn(move || each(one));
            each(other)?;
            one.join().ok().context("a writer panicked")?
        })
    }
}

fn create(number: usize) -> RecordWrite {
    RecordWrite {
        action: Action::Create,
        collection: "com.example.bench".into(),
        rkey: None,
        record: Some(record(number)),
        swap_record: None,
    }
}

/// A record of about 200 bytes, as a short post has.
fn record(number: usize) -> Bytes {
    let mut map = Map::new();
    map.insert("$type", Value::Text("com.example.bench".into()));
    map.insert("createdAt", Value::Text("2026-01-31T12:00:00.000Z".into()));
    map.insert("text", Value::Text(format!("{number} {}", "word ".repeat(24))));
    encode(&Value::Map(map)).into()
}

/// A thousand accounts with a million records: from the process's start until it answers.
pub fn start(directory: &Path, _: &Calibration, duration: Duration) -> Result<Vec<Row>> {
    let (accounts, commits) = if is_measurement(duration) { (1_000, 5) } else { (20, 1) };
    let address = free_address()?;
    let inside = Inside::open(&directory.join("server/pds"), &format!("localhost:{}", address.port()))?;
    let begun = Instant::now();
    let made = inside.accounts(accounts)?;
    inside.write(&made, &vec![BATCH; commits])?;
    let built = begun.elapsed();
    inside.stop()?;
    let begun = Instant::now();
    let host = Host::start_at(directory, address)?;
    let took = begun.elapsed().as_secs_f64();
    let open = host.accounts()?;
    ensure!(open == accounts, "{open} of {accounts} accounts are served");
    let row = Row::at_most("process start to the first answer", took, 3.0, "≤ 3 s");
    let records = accounts * commits * BATCH;
    Ok(vec![
        Row::figure("accounts", accounts as f64, ""),
        Row::figure("records", records as f64, ""),
        Row::figure("written in this process before", records as f64 / built.as_secs_f64(), "/s"),
        Row { unit: "s", ..row },
        Row::figure("memory after it", host.usage()?.memory_bytes as f64 / 1e6, "MB"),
    ])
}

/// A thousand accounts of ten records: a start with the marker of a restore beside one without it.
pub fn restore(directory: &Path, _: &Calibration, duration: Duration) -> Result<Vec<Row>> {
    let accounts = if is_measurement(duration) { 1_000 } else { 20 };
    let address = free_address()?;
    let pds = directory.join("server/pds");
    let inside = Inside::open(&pds, &format!("localhost:{}", address.port()))?;
    let made = inside.accounts(accounts)?;
    inside.write(&made, &[10])?;
    inside.stop()?;
    let start = || -> Result<f64> {
        let begun = Instant::now();
        let host = Host::start_at(directory, address)?;
        let took = begun.elapsed().as_secs_f64();
        let open = host.accounts()?;
        ensure!(open == accounts, "{open} of {accounts} accounts are served");
        Ok(took)
    };
    // The first start brings the program and the directory into memory; all end by a kill.
    start()?;
    let without = start()?;
    mark_restored(&OsDisk::new(), &pds, 1, (None, None))?;
    let with = start()?;
    ensure!(!pds.join("pds.restored").exists(), "the restore was not done");
    let row = Row::at_most("start with the marker beyond one without", with - without, 1.0, "≤ 1 s");
    Ok(vec![
        Row::figure("accounts", accounts as f64, ""),
        Row { unit: "s", ..row },
        Row::figure("start with the marker", with, "s"),
    ])
}

/// What accounts cost that are written to: each in a process of its own.
pub fn memory(directory: &Path, _: &Calibration, duration: Duration) -> Result<Vec<Row>> {
    let counts = if is_measurement(duration) { &MEMORY[..] } else { &[20][..] };
    let mut rows = Vec::new();
    for count in counts {
        let folder = directory.join(count.to_string());
        let child = Command::new(std::env::current_exe()?)
            .args(["accounts-child".as_ref(), folder.as_os_str(), count.to_string().as_ref()])
            .stderr(Stdio::inherit())
            .output()?;
        ensure!(child.status.success(), "the process with {count} accounts failed");
        let costs: Costs = serde_json::from_slice(&child.stdout)?;
        let bound = Row::at_most(format!("{count} accounts, under load, each"), costs.loaded / 1e3, 100.0, "≤ 100 kB");
        rows.push(Row { unit: "kB", ..bound });
        rows.push(Row::figure(format!("{count} accounts, a moment later, each"), costs.rested / 1e3, "kB"));
        rows.push(Row::figure(
            format!("{count} accounts, trees and places of blocks, each"),
            costs.counted / 1e3,
            "kB",
        ));
    }
    Ok(rows)
}

/// Bytes of memory for each account.
#[derive(Serialize, Deserialize)]
struct Costs {
    loaded: f64,
    rested: f64,
    /// As the server tells its operator.
    counted: f64,
}

/// Writes to many accounts, and prints what they cost this process; the cell runs it as a process of its own.
pub fn child(directory: &Path, count: usize) -> Result<()> {
    let inside = Inside::open(directory, "pds.example")?;
    // Frames in memory, the log's buffers and the threads are there whoever writes.
    let other = inside.accounts(AT_ONCE)?;
    inside.write(&other, &[1; 85])?;
    inside.write(&other, &COMMITS)?;
    let memory = || Ok::<_, anyhow::Error>(Usage::of(std::process::id())?.memory_bytes as f64);
    let before = memory()?;
    let accounts = inside.accounts(count)?;
    inside.write(&accounts, &COMMITS)?;
    let loaded = memory()?;
    std::thread::sleep(Duration::from_secs(3));
    let Status { memory_bytes, .. } = inside.host.status();
    let each = |bytes: f64| bytes / count as f64;
    let costs =
        Costs { loaded: each(loaded - before), rested: each(memory()? - before), counted: each(memory_bytes as f64) };
    println!("{}", serde_json::to_string(&costs)?);
    inside.stop()
}
