//! What a process has used, as the kernel tells it.

use anyhow::{Context as _, Result};

/// Microseconds of a clock tick in `/proc/*/stat`; Linux has 100 a second on every platform of today.
const TICK_US: u64 = 10_000;

/// What a process has used so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Time on processors, in the program and in the kernel for it, microseconds.
    pub cpu_us: u64,
    /// Memory now, bytes: what is its own, without the files that it maps.
    pub memory_bytes: u64,
    /// Times that a thread of it went to sleep.
    pub switches: u64,
}

impl Usage {
    /// That of a process.
    pub fn of(pid: u32) -> Result<Self> {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
        let stat = read("stat")?;
        // Behind the name, which may hold anything, fields are separated by spaces: user and system time are 12 and 13.
        let fields: Vec<&str> = stat.rsplit_once(')').context("a stat line")?.1.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        let cpu_us = (ticks(11) + ticks(12)) * TICK_US;
        let memory_bytes = number(&read("status")?, "RssAnon:") * 1024;
        let mut switches = 0;
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            // A thread may have ended since.
            let status = std::fs::read_to_string(task?.path().join("status")).unwrap_or_default();
            switches += number(&status, "voluntary_ctxt_switches:");
        }
        Ok(Self { cpu_us, memory_bytes, switches })
    }
}

fn number(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}
