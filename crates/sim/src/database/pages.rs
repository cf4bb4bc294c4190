//! Synthetic transactions: random pages, without SQLite.

use super::model::{Image, Page};
use highwater_base::Random;
use highwater_base::random::SplitMix;
use std::sync::Arc;

/// Bytes of page 1 that stay as the bind made them: SQLite's header.
const HEADER_BYTES: usize = 100;

/// What a transaction changes.
#[derive(Debug)]
pub struct Transaction {
    /// The pages written, ascending.
    pub pages: Vec<u32>,
    /// The database afterwards.
    pub after: Image,
}

/// A random transaction on a database: usually a few pages, sometimes many; it may grow or shrink.
///
/// `pages_max` bounds the database.
pub fn transaction(before: &Image, page_size: u32, pages_max: u32, random: &mut SplitMix) -> Transaction {
    let pages_before = before.len() as u32;
    let pages_after = match random.below(10) {
        0..=4 => pages_before + random.below(4) as u32,
        5 => pages_before + random.below(u64::from(pages_max)) as u32,
        6 => pages_before.saturating_sub(random.below(u64::from(pages_before)) as u32),
        _ => pages_before,
    };
    let pages_after = pages_after.clamp(1, pages_max);
    let touched = match random.below(8) {
        0 => pages_after,
        _ => 1 + random.below(6) as u32,
    };
    let mut pages: Vec<u32> = (0..touched).map(|_| 1 + random.below(u64::from(pages_after)) as u32).collect();
    // A page that a growth brings in is usually written; one that is not reads as zeros.
    let gap = random.below(8) == 0;
    pages.extend((pages_before + 1..=pages_after).filter(|_| !gap));
    pages.sort_unstable();
    pages.dedup();
    let mut after = before.as_ref().clone();
    let blank: Page = vec![0; page_size as usize].into();
    after.resize(pages_after as usize, blank);
    for number in &pages {
        let index = *number as usize - 1;
        let old = if *number == 1 { before.first() } else { None };
        after[index] = page(old, page_size, random);
    }
    Transaction { pages, after: Arc::new(after) }
}

/// A page's bytes: noise, or mostly one byte so that it compresses; page 1 keeps its header.
fn page(old: Option<&Page>, page_size: u32, random: &mut SplitMix) -> Page {
    let mut bytes = vec![random.next_u64() as u8; page_size as usize];
    let noise = if random.below(3) == 0 { bytes.len() } else { 16 };
    let length = bytes.len();
    for word in bytes[length - noise..].chunks_mut(8) {
        word.copy_from_slice(&random.next_u64().to_le_bytes()[..word.len()]);
    }
    if let Some(old) = old {
        bytes[..HEADER_BYTES].copy_from_slice(&old[..HEADER_BYTES]);
    }
    bytes.into()
}
