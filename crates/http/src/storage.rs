//! The metrics of what lies on disk, by group, and of the search for damage.

use crate::metrics::{header_lines, line, number};
use highwater_node::{ColdStatus, GroupStatus, Status};

/// A number that each group has.
type Number = fn(&GroupStatus) -> u64;

const BY_GROUP: [(&str, &str, &str, Number); 12] = [
    ("highwater_store_file_bytes", "gauge", "Bytes of the group's data files.", |group| group.storage.files),
    ("highwater_store_cold_bytes", "gauge", "Of these, bytes of files in the object store.", |group| {
        group.storage.cold
    }),
    ("highwater_store_live_bytes", "gauge", "Bytes of streams in the data files.", |group| group.storage.live),
    ("highwater_store_dead_bytes", "gauge", "Bytes in the data files that nothing needs any more.", |group| {
        group.storage.dead
    }),
    ("highwater_store_index_bytes", "gauge", "Bytes of the group's index.", |group| group.storage.index),
    ("highwater_store_log_bytes", "gauge", "Bytes in the log that the group's next checkpoint frees.", |group| {
        group.storage.log
    }),
    ("highwater_compacted_bytes", "counter", "Bytes copied out of mostly dead files.", |group| group.storage.compacted),
    ("highwater_hot_streams", "gauge", "Streams in memory; the others are in the index on disk alone.", |group| {
        group.hot.streams
    }),
    ("highwater_hot_bytes", "gauge", "Bytes of memory that they and the places of their bytes take, about.", |group| {
        group.hot.bytes
    }),
    ("highwater_hot_loads", "counter", "Trips to the index for what was not in memory.", |group| group.hot.loads),
    ("highwater_hot_loads_microseconds", "counter", "Microseconds that they took.", |group| group.hot.loads_us),
    ("highwater_hot_evictions", "counter", "Streams that left memory.", |group| group.hot.evictions),
];

/// Appends the lines of all of them.
pub(crate) fn render(status: &Status, out: &mut String) {
    for (name, kind, help, of) in BY_GROUP {
        header_lines(out, name, kind, help);
        let suffix = if kind == "counter" { "_total" } else { "" };
        for group in &status.groups {
            line(out, &format!("{name}{suffix}{{group=\"{}\"}} {}", group.id, of(group)));
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
    if let Some(cold) = &status.object_store {
        render_cold(cold, out);
    }
}

/// Appends the lines of the object store.
fn render_cold(cold: &ColdStatus, out: &mut String) {
    let families: [(&str, &str, &str, u64); 8] = [
        ("highwater_cold_files", "gauge", "Data files in the object store, as of the last look at them.", cold.files),
        ("highwater_cold_moved_files", "counter", "Data files that moved to the object store.", cold.moved_files),
        ("highwater_cold_moved_bytes", "counter", "Bytes of these.", cold.moved_bytes),
        (
            "highwater_cold_recalled_files",
            "counter",
            "Mostly dead files that came back to be emptied.",
            cold.recalled_files,
        ),
        (
            "highwater_cold_erased_objects",
            "counter",
            "Objects deleted because nothing needs them.",
            cold.erased_objects,
        ),
        ("highwater_cold_reads_failed", "counter", "Reads that the object store did not answer.", cold.reads_failed),
        ("highwater_cold_moves_failed", "counter", "Moves, recalls and deletions that failed.", cold.moves_failed),
        (
            "highwater_cold_failing",
            "gauge",
            "1 while moving to the object store fails, else 0.",
            u64::from(cold.failing_since_ms.is_some()),
        ),
    ];
    for (name, kind, help, value) in families {
        number(out, name, kind, help, value);
    }
}
