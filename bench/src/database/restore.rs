//! How fast a database comes back, and in how much memory.

use super::host::{Database, Synchronous};
use crate::calibrate::Calibration;
use crate::cell::Row;
use crate::server::Highwater;
use anyhow::{Context as _, Result};
use highwater_client::Options;
use highwater_disk::{Disk, OsDisk};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rows of about one page each: 20,000 for a second of measuring, 64 MiB and more for the usual five.
fn rows(duration: Duration) -> u64 {
    (duration.as_millis() as u64 * 20).clamp(2_000, 200_000)
}

/// Restores in a process of its own, whose memory is its own.
pub fn measure(directory: &Path, _: &Calibration, duration: Duration) -> Result<Vec<Row>> {
    let server = Highwater::start(directory)?;
    let url = server.url("bench/restore");
    let source = directory.join("source.db");
    let mut database = Database::replicated(&source, &url, Synchronous::Normal)?;
    database.grow(rows(duration))?;
    database.synced()?;
    drop(database);

    let target = directory.join("restored.db");
    let begun = Instant::now();
    let output = Command::new(std::env::current_exe()?)
        .args(["restore-child", &url])
        .arg(&target)
        .output()
        .context("the restoring process does not start")?;
    let seconds = begun.elapsed().as_secs_f64();
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let peak_mib: f64 = String::from_utf8(output.stdout)?.trim().parse::<f64>()? / 1024.0;

    let mib = std::fs::metadata(&target)?.len() as f64 / f64::from(1 << 20);
    let copied = buffered_write_mib_per_second(directory, mib)?;
    Ok(vec![
        Row::figure("database", mib, "MiB"),
        Row::figure("restored", mib / seconds, "MiB/s"),
        Row::at_least("rate / buffered write and sync", mib / seconds / copied, 0.5, "≥ 0.5"),
        Row::at_most("peak memory / 256 MiB", peak_mib / 256.0, 1.0, "≤ 1"),
    ])
}

/// Writes as many bytes through the page cache, and syncs them.
fn buffered_write_mib_per_second(directory: &Path, mib: f64) -> Result<f64> {
    use std::io::Write as _;
    let path = directory.join("yardstick");
    let begun = Instant::now();
    let mut file = std::fs::File::create(&path)?;
    let block = vec![0x5a; 1 << 20];
    for _ in 0..mib.ceil() as u64 {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    let rate = mib.ceil() / begun.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(rate)
}

/// The restoring process: prints its peak memory in KiB.
pub fn child(url: &str, target: &Path) -> Result<()> {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new());
    highwater_sqlite::restore::restore(&disk, url, target, Options::default(), &mut |_| {})?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("the kernel tells the peak")?;
    println!("{}", line.trim().trim_end_matches(" kB"));
    Ok(())
}
