//! What the server of accounts takes on this machine, beside what its disk takes for one sync.
//!
//! `cargo run -p highwater-host --example measure [directory]`

use bytes::Bytes;
use highwater_disk::{Disk, OpenMode, OsDisk, SystemClock, SystemRandom};
use highwater_host::{
    Action, Delivery, Host, NewAccount, Options, RecordWrite, Running, Seams, WriteBatch, mark_restored,
};
use highwater_pds::AccountId;
use highwater_repo::data::{Map, Value, encode};
use highwater_repo::key::Curve;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn open(directory: &Path) -> (Host, Running, Duration) {
    let begun = Instant::now();
    let seams = Seams {
        disk: Arc::new(OsDisk::new()),
        clock: Arc::new(SystemClock::new()),
        random: Box::new(SystemRandom),
        sealer: None,
    };
    let (host, worker, boot) = Host::open(Options::new(directory, "pds.example"), seams).expect("it opens");
    let took = begun.elapsed();
    if let Some(restored) = boot.restored {
        println!("  restore of {} accounts, {} frames", restored.accounts, boot.frames);
    }
    (host, worker.spawn().expect("threads"), took)
}

fn record(n: u64) -> Bytes {
    let mut map = Map::new();
    map.insert("$type", Value::Text("app.bsky.feed.post".into()));
    map.insert("text", Value::Text(format!("post number {n}, {}", "and so on ".repeat(20))));
    map.insert("createdAt", Value::Text("2026-11-30T12:00:00.000Z".into()));
    encode(&Value::Map(map)).into()
}

fn create(n: u64) -> RecordWrite {
    RecordWrite {
        action: Action::Create,
        collection: "app.bsky.feed.post".into(),
        rkey: None,
        record: Some(record(n)),
        swap_record: None,
    }
}

fn accounts(host: &Host, count: usize) -> Vec<AccountId> {
    let new = || NewAccount { handle: None, password_hash: None, curve: Curve::K256, activate: true };
    let pending: Vec<_> = (0..count).map(|_| host.create_account(new())).collect();
    pending.into_iter().map(|pending| pending.wait().expect("an account")).collect()
}

fn write(host: &Host, account: AccountId, writes: Vec<RecordWrite>) {
    host.write(account, WriteBatch { writes, swap_commit: None }).wait().expect("written");
}

fn percentile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    times[(times.len() - 1) * percent / 100].as_secs_f64() * 1_000.0
}

fn sync_ms(directory: &Path) -> f64 {
    let disk = OsDisk::new();
    let file = disk.open(&directory.join("probe"), OpenMode::Create).expect("opened");
    let mut times: Vec<_> = (0..200)
        .map(|n| {
            file.write_at(&[7; 4096], n * 4096).expect("written");
            let begun = Instant::now();
            file.sync_data().expect("synced");
            begun.elapsed()
        })
        .collect();
    percentile(&mut times, 50)
}

fn in_flight(host: &Host, all: &[AccountId], threads: usize, each: u64) {
    let begun = Instant::now();
    let run = |thread: usize| {
        let (host, account) = (host.clone(), all[thread % all.len()]);
        std::thread::spawn(move || {
            let one = |n| {
                let begun = Instant::now();
                write(&host, account, vec![create(n)]);
                begun.elapsed()
            };
            (0..each).map(one).collect::<Vec<_>>()
        })
    };
    let threads_running: Vec<_> = (0..threads).map(run).collect();
    let mut times: Vec<_> = threads_running.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
    let rate = times.len() as f64 / begun.elapsed().as_secs_f64();
    println!(
        "createRecord, {threads} in flight: {rate:.0}/s, p50 {:.2} ms, p95 {:.2} ms, p99 {:.2} ms",
        percentile(&mut times, 50),
        percentile(&mut times, 95),
        percentile(&mut times, 99)
    );
}

fn export(host: &Host, account: AccountId) {
    let begun = Instant::now();
    let mut export = host.export(account).expect("begun");
    let mut bytes = 0;
    while let Some(chunk) = export.chunk().expect("a chunk") {
        bytes += chunk.len();
    }
    println!("export of {:.1} MB: {:.1} ms", bytes as f64 / 1e6, begun.elapsed().as_secs_f64() * 1_000.0);
}

fn main() {
    let base = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(base).expect("a folder");
    let data = folder.path().join("pds");
    println!("one sync of 4 KiB: {:.2} ms", sync_ms(folder.path()));
    let (host, running, _) = open(&data);
    let all = accounts(&host, 64);
    in_flight(&host, &all, 1, 300);
    in_flight(&host, &all, 16, 200);
    in_flight(&host, &all, 64, 200);
    let begun = Instant::now();
    (0..100).for_each(|round| write(&host, all[0], (0..200).map(|n| create(round * 200 + n)).collect()));
    println!("applyWrites of 200, one in flight: {:.0} records/s", 20_000.0 / begun.elapsed().as_secs_f64());
    for _ in 0..3 {
        export(&host, all[0]);
    }
    let begun = Instant::now();
    let mut subscription = host.subscribe(Some(0)).expect("subscribed");
    let (mut frames, mut bytes) = (0, 0);
    while let Some(Delivery::Frames(got)) = subscription.take() {
        frames += got.len();
        bytes += got.iter().map(Bytes::len).sum::<usize>();
    }
    let took = begun.elapsed().as_secs_f64();
    println!("replay: {:.0} events/s, {:.0} MB/s", frames as f64 / took, bytes as f64 / took / 1e6);
    let begun = Instant::now();
    let more = accounts(&host, 1_000 - all.len());
    println!("createAccount, all at once: {:.0}/s", more.len() as f64 / begun.elapsed().as_secs_f64());
    more.iter().for_each(|account| {
        drop(host.write(*account, WriteBatch { writes: (0..10).map(create).collect(), swap_commit: None }))
    });
    write(&host, all[1], vec![create(0)]);
    drop(subscription);
    running.stop().expect("stopped");
    drop(host);
    let (host, running, took) = open(&data);
    println!("boot of 1,000 accounts: {:.1} ms", took.as_secs_f64() * 1_000.0);
    running.stop().expect("stopped");
    drop(host);
    mark_restored(&OsDisk::new(), &data, 1, (None, None)).expect("marked");
    let (host, running, took) = open(&data);
    println!("restore of 1,000 accounts: {:.1} ms", took.as_secs_f64() * 1_000.0);
    export(&host, all[0]);
    let status = host.status();
    println!(
        "store {} MB, checkpoints {}, refused {}",
        status.store.file_bytes >> 20,
        status.checkpoints,
        status.turns_refused
    );
    running.stop().expect("stopped");
}
