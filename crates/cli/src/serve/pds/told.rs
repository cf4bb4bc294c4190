//! What the status page and the metrics tell of the accounts.

use super::relays::Relays;
use highwater_host::Host;
use highwater_http::mount::{Mounted, Number, Told};
use highwater_xrpc::{Context, operator};
use serde_json::{Value, json};
use std::sync::Arc;

/// Accounts that serve.
pub struct Page(pub Host, pub Arc<Context>, pub Arc<Relays>);

impl Told for Page {
    fn status(&self) -> Value {
        operator::status(&self.1, &*self.2)
    }

    fn numbers(&self) -> Vec<Number> {
        numbers(&self.0.status(), self.1.subscribers() as u64, self.2.failing())
    }
}

/// Accounts that do not serve.
struct Refused(String);

impl Told for Refused {
    fn status(&self) -> Value {
        json!({ "serving": false, "reason": self.0 })
    }

    fn numbers(&self) -> Vec<Number> {
        vec![serving(0)]
    }
}

/// What is mounted in the place of accounts that do not serve.
pub fn refused(why: String) -> Mounted {
    Mounted { told: Arc::new(Refused(why.clone())), routers: Err(why) }
}

fn serving(value: u64) -> Number {
    Number {
        name: "highwater_pds_serving",
        kind: "gauge",
        help: "1 while accounts of the AT Protocol are served and written, else 0.",
        value,
    }
}

fn numbers(status: &highwater_host::Status, subscribers: u64, relays_failing: u64) -> Vec<Number> {
    let number = |name, kind, help, value| Number { name, kind, help, value };
    let accounts = |word| status.accounts.get(word).copied().unwrap_or(0);
    let all: u64 = status.accounts.values().sum();
    let lag = status.subscribers.iter().map(|one| one.behind).max().unwrap_or(0);
    vec![
        serving(u64::from(status.ended.is_none())),
        number("highwater_pds_accounts", "gauge", "Accounts, erased ones included.", all),
        number("highwater_pds_accounts_active", "gauge", "Accounts that are active.", accounts("active")),
        number(
            "highwater_pds_accounts_unannounced",
            "gauge",
            "Accounts of which relays have yet to hear something.",
            status.unannounced,
        ),
        number("highwater_pds_event_newest", "gauge", "The number of the newest event.", status.seq),
        number(
            "highwater_pds_event_ceiling",
            "gauge",
            "The highest number that may have been given out.",
            status.ceiling,
        ),
        number(
            "highwater_pds_event_oldest",
            "gauge",
            "The number of the oldest event that is kept.",
            status.oldest.map_or(0, |oldest| oldest.seq),
        ),
        number("highwater_pds_event_bytes", "gauge", "Bytes of the events that are kept.", status.events_bytes),
        number(
            "highwater_pds_events_sent",
            "counter",
            "Events that were made durable and shown to subscribers.",
            status.frames_sent,
        ),
        number("highwater_pds_subscribers", "gauge", "Subscribers of the stream.", subscribers),
        number(
            "highwater_pds_subscriber_lag",
            "gauge",
            "Events that the subscriber furthest behind has yet to take.",
            lag,
        ),
        number(
            "highwater_pds_turns_refused",
            "counter",
            "Writes and changes that were refused, most for want of space.",
            status.turns_refused,
        ),
        number("highwater_pds_log_bytes", "gauge", "Bytes of the log's segments.", status.log.log_bytes),
        number("highwater_pds_log_syncs", "counter", "Syncs of the log.", status.log.syncs),
        number("highwater_pds_store_bytes", "gauge", "Bytes of data files.", status.store.file_bytes),
        number(
            "highwater_pds_store_dead_bytes",
            "gauge",
            "Bytes in the data files that nothing needs any more.",
            status.store.dead_bytes,
        ),
        number("highwater_pds_store_index_bytes", "gauge", "Bytes of the index.", status.store.index_bytes),
        number(
            "highwater_pds_compactions",
            "counter",
            "Repositories whose blocks were written together, so that old ones can go.",
            status.compactions,
        ),
        number(
            "highwater_pds_blobs_expired",
            "counter",
            "Uploads that were removed because no record referred to them in time.",
            status.blobs_expired,
        ),
        number(
            "highwater_pds_memory_bytes",
            "gauge",
            "Bytes of memory that trees and places of blocks take, about.",
            status.memory_bytes,
        ),
        number("highwater_pds_memory_event_bytes", "gauge", "Bytes of the newest events in memory.", status.ring.bytes),
        number("highwater_pds_checkpoints", "counter", "Checkpoints.", status.checkpoints),
        number(
            "highwater_pds_checkpoint_failing",
            "gauge",
            "1 while checkpoints fail, else 0.",
            u64::from(status.checkpoint_error.is_some()),
        ),
        number(
            "highwater_pds_restoring",
            "gauge",
            "1 while a restore is under way, else 0.",
            u64::from(status.restore.is_some_and(|restore| !restore.done)),
        ),
        number(
            "highwater_pds_witness_failing",
            "gauge",
            "1 while a file that tells a restore what was given out could not be written, else 0.",
            u64::from(status.witness_error.is_some()),
        ),
        number(
            "highwater_pds_relay_poke_pending",
            "gauge",
            "1 while relays have yet to be asked to read this server, else 0.",
            u64::from(status.relay_poke_pending),
        ),
        number(
            "highwater_pds_relays_failing",
            "gauge",
            "Relays that did not answer, or refused, when they were last asked.",
            relays_failing,
        ),
    ]
}
