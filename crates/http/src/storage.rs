//! The metrics of what lies on disk, by group, and of the search for damage.

use crate::metrics::{header_lines, line};
use highwater_node::{Status, StorageBytes};

/// A group's number of bytes.
type Bytes = fn(&StorageBytes) -> u64;

const BY_GROUP: [(&str, &str, &str, Bytes); 6] = [
    ("highwater_store_file_bytes", "gauge", "Bytes of the group's data files.", |bytes| bytes.files),
    ("highwater_store_live_bytes", "gauge", "Bytes of streams in them.", |bytes| bytes.live),
    ("highwater_store_dead_bytes", "gauge", "Bytes in them that nothing needs any more.", |bytes| bytes.dead),
    ("highwater_store_index_bytes", "gauge", "Bytes of the group's index.", |bytes| bytes.index),
    ("highwater_store_log_bytes", "gauge", "Bytes in the log that the group's next checkpoint frees.", |b| b.log),
    ("highwater_compacted_bytes", "counter", "Bytes copied out of mostly dead files.", |bytes| bytes.compacted),
];

/// Appends the lines of all of them.
pub(crate) fn render(status: &Status, out: &mut String) {
    for (name, kind, help, of) in BY_GROUP {
        header_lines(out, name, kind, help);
        let suffix = if kind == "counter" { "_total" } else { "" };
        for group in &status.groups {
            line(out, &format!("{name}{suffix}{{group=\"{}\"}} {}", group.id, of(&group.storage)));
        }
    }
    if let Some(free) = status.disk_free_bytes {
        header_lines(out, "highwater_disk_free_bytes", "gauge", "Bytes that may still be written on the data's disk.");
        line(out, &format!("highwater_disk_free_bytes {free}"));
    }
    let scrub = &status.scrub;
    header_lines(out, "highwater_scrub_bytes", "counter", "Bytes that the scrub has read.");
    line(out, &format!("highwater_scrub_bytes_total {}", scrub.bytes));
    if let Some(ended_ms) = scrub.last.and_then(|pass| pass.ended_ms) {
        header_lines(out, "highwater_scrub_ended_seconds", "gauge", "When the last scrub ended, since the Unix epoch.");
        line(out, &format!("highwater_scrub_ended_seconds {}", ended_ms / 1_000));
    }
    let faults = scrub.faults.len() as u64 + scrub.faults_unlisted;
    header_lines(out, "highwater_storage_faults", "gauge", "Places on disk that are known to be damaged.");
    line(out, &format!("highwater_storage_faults {faults}"));
}
