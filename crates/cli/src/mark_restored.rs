//! `highwater mark-restored`: the operator's word that a data directory is an older copy.

use crate::arguments::MarkRestoredArguments;
use crate::exit::{self, Status};
use crate::output;
use crate::pds;
use crate::serve;
use anyhow::Result;
use highwater_disk::{OsDisk, SystemRandom};
use highwater_host::layout::Paths;
use highwater_node::restored::{self, Marked, RestoredError};
use serde::Serialize;

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    data: String,
    cluster_id: String,
    groups: u32,
    history_pending: bool,
    replaced: bool,
    /// The number of the accounts' restore, if the directory has accounts.
    pds: Option<String>,
}

/// Marks the directory, or notes that it was moved.
pub fn run(arguments: &MarkRestoredArguments) -> Result<()> {
    let data = arguments.data.as_path();
    let disk = OsDisk::private_in(data);
    let report = |cluster_id, groups, history_pending, replaced| Report {
        data: data.display().to_string(),
        cluster_id,
        groups,
        history_pending,
        replaced,
        pds: None,
    };
    let mut report = if arguments.moved {
        let cluster = restored::moved(&disk, data).map_err(of)?;
        report(cluster.cluster_id, cluster.groups, false, false)
    } else {
        let Marked { cluster_id, groups, again } = restored::mark(&disk, data, &mut SystemRandom).map_err(of)?;
        report(cluster_id, groups, true, again)
    };
    let accounts = data.join(serve::pds::DIRECTORY);
    if !arguments.moved && Paths::new(&accounts).layout().is_file() {
        // Accounts have a directory and a mark of their own, and one word of the operator's is for both.
        let (id, _) = pds::mark_restored(&accounts, &pds::Lost::default())?;
        report.pds = Some(format!("{id:016x}"));
    }
    if arguments.json {
        return output::json(&report);
    }
    if arguments.moved {
        println!("{}: noted where it is now; nothing else changes", report.data);
        return Ok(());
    }
    let earlier = if report.replaced { " (in place of a mark that had not been acted on)" } else { "" };
    println!(
        "{}: marked as restored{earlier}. At the next start each of its {} groups begins a new history before it serves:\n\
         every stream gets another token, and every owner of a database stops with `history`, one that lost nothing, too.",
        report.data, report.groups
    );
    if report.pds.is_some() {
        println!(
            "The accounts of the AT Protocol are marked too: relays are told of every account anew. Then: highwater pds announce"
        );
    }
    Ok(())
}

fn of(error: RestoredError) -> anyhow::Error {
    let status = match &error {
        RestoredError::NoDataDirectory(_) => Status::NotFound,
        RestoredError::InUse(_) => Status::Later,
        RestoredError::ClusterFile(_) | RestoredError::Mark { .. } | RestoredError::Io { .. } => Status::Failed,
    };
    exit::with(status, error.to_string())
}
