//! The machine's clocks and entropy, for production.

use crate::traits::{Disk, OpenMode};
use highwater_base::{Clock, Millis, Random};
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Where the kernel says which boot of the machine this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The running system's boot id, drawn by the kernel at each boot: as long as it stays, the machine did not go down.
/// `None` where there is none.
#[must_use]
pub fn boot_id(disk: &dyn Disk) -> Option<[u8; 16]> {
    let file = disk.open(Path::new(BOOT_ID), OpenMode::Read).ok()?;
    let mut text = [0; 64];
    let length = file.read_at(&mut text, 0).ok()?;
    parse_boot_id(std::str::from_utf8(&text[..length]).ok()?)
}

/// The same as text, in hexadecimal digits; empty where there is none.
#[must_use]
pub fn boot_id_text(disk: &dyn Disk) -> String {
    boot_id(disk).map_or(String::new(), |id| id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The kernel's spelling: 32 hexadecimal digits with hyphens among them.
fn parse_boot_id(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim().chars().filter(|digit| *digit != '-').collect();
    let whole = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    whole.then(|| u128::from_str_radix(&digits, 16).ok()).flatten().map(u128::to_be_bytes)
}

/// The operating system's clocks.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Clocks whose monotonic time begins now.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn monotonic(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The operating system's entropy.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    /// # Panics
    /// If the kernel has no entropy to give, which it has from early boot on; going on with numbers that can be
    /// guessed would let two histories of a stream share a token.
    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        assert_eq!(filled, Ok(bytes.len()), "the kernel gives entropy");
        u64::from_le_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_is_read_as_the_kernel_spells_it_and_nothing_else_is() {
        let id = parse_boot_id("00112233-4455-6677-8899-aabbccddeeff\n").expect("a boot id");
        assert_eq!((id[0], id[1], id[15]), (0, 0x11, 0xff));
        for other in ["", "0011", "00112233-4455-6677-8899-aabbccddeefg", "+0112233-4455-6677-8899-aabbccddeeff"] {
            assert_eq!(parse_boot_id(other), None, "{other}");
        }
        assert_eq!(boot_id(&crate::SimDisk::new(0)), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_keeps_its_boot_id() {
        let disk = crate::OsDisk::new();
        assert!(boot_id(&disk).is_some() && boot_id(&disk) == boot_id(&disk));
        assert_eq!(boot_id_text(&disk).len(), 32);
    }
}
