//! Repositories over HTTP: writes until they are durable and on the stream, replay, export, many followers. The requests are
//! those of any server of the protocol, so that another can be measured beside this one.

mod accounts;
mod followers;
mod subject;
mod writes;

use crate::calibrate::Calibration;
use crate::cell::{Cell, Row};
use crate::process::Usage;
use anyhow::{Context as _, Result};
use clap::Args;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use subject::{Account, Host, Subject};

/// What is promised of every write in these cells.
const SYNCED: &str = "fdatasync before every answer and before every frame";

/// Milliseconds beyond the round trip and the sync that a lone write may take.
const LONE_EXTRA_US: f64 = 400.0;

/// What measures one thing, for so long; the limits are known in a cell of ours.
type Measure = fn(&Subject, Option<&Calibration>, Duration) -> Result<Vec<Row>>;

/// What measures many accounts in a directory of its own.
type Many = fn(&Path, &Calibration, Duration) -> Result<Vec<Row>>;

/// What is measured of any server.
const MEASURES: [(&str, Measure); 7] = [
    ("createRecord, 1 client", lone),
    ("createRecord, 64 clients", crowd),
    ("applyWrites of 200", batches),
    ("request to frame", to_frame),
    ("replay", replay),
    ("export of 5 MB", export),
    ("50 followers beside idle ones", many_followers),
];

/// The cells of this file.
pub fn cells() -> Vec<Cell> {
    let cell = |(name, run): (&str, Measure)| Cell {
        name: format!("repositories, {name}"),
        durability: SYNCED,
        run: Box::new(move |directory: &Path, limits: &Calibration, duration: Duration| {
            let host = Host::start(directory)?;
            run(&host.subject()?, Some(limits), duration)
        }),
    };
    let of_many = |(name, run): (&str, Many)| Cell {
        name: format!("repositories, {name}"),
        durability: SYNCED,
        run: Box::new(run),
    };
    let ours: [(&str, Measure); 1] = [("idle", idle)];
    let many: [(&str, Many); 3] = [
        ("start with a million records", accounts::start),
        ("restore of 1,000 accounts", accounts::restore),
        ("memory of accounts", accounts::memory),
    ];
    ours.into_iter().chain(MEASURES).map(cell).chain(many.into_iter().map(of_many)).collect()
}

pub use accounts::child as accounts_child;

/// What is measured against what.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where the server listens
    #[arg(long)]
    address: SocketAddr,
    /// An account, as `DID,PASSWORD`; once for each that is to write
    #[arg(long = "account", required = true)]
    accounts: Vec<String>,
    /// Its process, for its memory and processor time
    #[arg(long)]
    pid: Option<u32>,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Only cells whose name contains one of these
    #[arg(long)]
    only: Vec<String>,
}

/// Measures a server that somebody else started, and prints one JSON document a line.
pub fn against(arguments: &Arguments) -> Result<()> {
    let accounts = arguments.accounts.iter().map(|account| {
        let (did, password) = account.split_once(',').context("an account is DID,PASSWORD")?;
        Account::log_in(arguments.address, did, password)
    });
    let subject =
        Subject { address: arguments.address, accounts: accounts.collect::<Result<_>>()?, pid: arguments.pid };
    let duration = Duration::from_secs(arguments.seconds);
    for (name, measure) in MEASURES {
        if arguments.only.is_empty() || arguments.only.iter().any(|only| name.contains(only)) {
            eprintln!("{name} …");
            let rows = measure(&subject, None, duration);
            let failed = rows.as_ref().err().map(|error| format!("{error:#}"));
            let rows = rows.unwrap_or_default();
            println!("{}", serde_json::json!({ "name": name, "failed": failed, "rows": rows }));
        }
    }
    Ok(())
}

fn idle(subject: &Subject, _: Option<&Calibration>, duration: Duration) -> Result<Vec<Row>> {
    let before = subject.usage().context("its process")?;
    std::thread::sleep(duration);
    let after = subject.usage().context("its process")?;
    let megabytes = after.memory_bytes as f64 / 1e6;
    let busy = (after.cpu_us - before.cpu_us) as f64 / duration.as_micros() as f64;
    Ok(vec![
        Row { unit: "MB", ..Row::at_most("memory, streams and all", megabytes, 50.0, "≤ 50 MB") },
        Row::figure("processor time", busy * 100.0, "%"),
    ])
}

fn used(before: Option<Usage>, subject: &Subject, count: u64) -> Vec<Row> {
    let Some((before, after)) = before.zip(subject.usage()) else { return Vec::new() };
    let each = (after.cpu_us - before.cpu_us) as f64 / count.max(1) as f64;
    vec![
        Row::figure("server's processor time for each", each, "µs"),
        Row::figure("memory after it", after.memory_bytes as f64 / 1e6, "MB"),
    ]
}

fn lone(subject: &Subject, limits: Option<&Calibration>, duration: Duration) -> Result<Vec<Row>> {
    let before = subject.usage();
    let report = writes::create(subject, 1, duration)?;
    let mut rows = vec![
        Row::figure("records", report.per_second, "/s"),
        Row::figure("p50", report.latency_us.p50, "µs"),
        Row::figure("p99", report.latency_us.p99, "µs"),
    ];
    if let Some(limits) = limits {
        let extra = report.latency_us.p50 - limits.round_trip_us.p50 - limits.sync_us.p50;
        let row = Row::at_most("p50 beyond R1 + F", extra, LONE_EXTRA_US, "≤ 400 µs");
        rows.push(Row { unit: "µs", ..row });
    }
    rows.extend(used(before, subject, report.latency_us.count));
    Ok(rows)
}

fn crowd(subject: &Subject, _: Option<&Calibration>, duration: Duration) -> Result<Vec<Row>> {
    let before = subject.usage();
    let report = writes::create(subject, 64, duration)?;
    let rate = Row::at_least("records", report.per_second, 2_000.0, "≥ 2,000/s");
    let tail = Row::at_most("p99", report.latency_us.p99, 60_000.0, "≤ 60 ms");
    let mut rows =
        vec![Row { unit: "/s", ..rate }, Row::figure("p50", report.latency_us.p50, "µs"), Row { unit: "µs", ..tail }];
    rows.extend(used(before, subject, report.latency_us.count));
    Ok(rows)
}

fn batches(subject: &Subject, _: Option<&Calibration>, duration: Duration) -> Result<Vec<Row>> {
    let before = subject.usage();
    let report = writes::batches(subject, duration)?;
    let records = report.per_second * writes::BATCH as f64;
    let rate = Row::at_least("records", records, 20_000.0, "≥ 20,000/s");
    let mut rows = vec![
        Row { unit: "/s", ..rate },
        Row::figure("p50 of a batch", report.latency_us.p50, "µs"),
        Row::figure("p99 of a batch", report.latency_us.p99, "µs"),
    ];
    rows.extend(used(before, subject, report.latency_us.count * writes::BATCH as u64));
    Ok(rows)
}

fn to_frame(subject: &Subject, _: Option<&Calibration>, duration: Duration) -> Result<Vec<Row>> {
    let latency = followers::to_frame(subject, duration)?;
    let row = Row::at_most("p50", latency.p50, 5_000.0, "≤ 5 ms");
    Ok(vec![Row { unit: "µs", ..row }, Row::figure("p99", latency.p99, "µs")])
}

fn replay(subject: &Subject, _: Option<&Calibration>, duration: Duration) -> Result<Vec<Row>> {
    writes::create(subject, 64, duration)?;
    let replayed = followers::replay(subject)?;
    let rate = replayed.events as f64 / replayed.took.as_secs_f64();
    let row = Row::at_least("events", rate, 50_000.0, "≥ 50,000/s");
    Ok(vec![
        Row { unit: "/s", ..row },
        Row::figure("events replayed", replayed.events as f64, ""),
        Row::figure("bytes", replayed.bytes as f64 / replayed.took.as_secs_f64() / f64::from(1 << 20), "MiB/s"),
    ])
}

fn export(subject: &Subject, _: Option<&Calibration>, _: Duration) -> Result<Vec<Row>> {
    const BYTES: usize = 5 << 20;
    writes::fill(subject, BYTES)?;
    let exported = writes::export(subject)?;
    let row = Row::at_most("the fastest of five", exported.fastest.as_secs_f64() * 1_000.0, 50.0, "≤ 50 ms");
    Ok(vec![
        Row { unit: "ms", ..row },
        Row::figure("the slowest of five", exported.slowest.as_secs_f64() * 1_000.0, "ms"),
        Row::figure("bytes", exported.bytes as f64 / f64::from(1 << 20), "MiB"),
    ])
}

fn many_followers(subject: &Subject, _: Option<&Calibration>, duration: Duration) -> Result<Vec<Row>> {
    let before = subject.usage();
    // An idle follower may leave 4,096 frames.
    let duration = duration.min(Duration::from_secs(4));
    let crowd = followers::crowd(subject, 50, 1_000.0, duration)?;
    let dropped = Row::at_most("followers dropped", crowd.dropped as f64, 0.0, "none");
    let mut rows = vec![
        Row::figure("idle followers", crowd.idle as f64, ""),
        Row::at_most("idle followers dropped", crowd.idle_dropped as f64, 0.0, "none"),
        Row::figure("events written", crowd.written as f64 / duration.as_secs_f64(), "/s"),
        Row::figure("frames received", crowd.received as f64 / duration.as_secs_f64(), "/s"),
        Row { unit: "", ..dropped },
        Row::figure("frames missing at a follower", crowd.missing as f64, ""),
        Row::figure("request to the last follower's frame, p50", crowd.latency_us.p50, "µs"),
        Row::figure("request to the last follower's frame, p99", crowd.latency_us.p99, "µs"),
    ];
    rows.extend(crowd.idle_bytes.map(|bytes| Row::figure("memory for each idle follower", bytes / 1e3, "kB")));
    rows.extend(used(before, subject, crowd.written));
    Ok(rows)
}
