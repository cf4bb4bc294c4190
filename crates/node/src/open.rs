//! A data directory: made once, opened by one server at a time, recovered.

use crate::cluster_file::{self, ClusterFile, ClusterFileError};
use crate::cold::{self, Cold};
use crate::config::Config;
use crate::restored::{self, Mark, Place, RestoredError};
use crate::shard::{self, Recovery, ShardCore, ShardOptions};
use highwater_base::Random;
use highwater_disk::{Disk, File, OpenMode};
use highwater_store::{ColdStore, StoreReader};
use highwater_wal::{AppendError, LastRun, Log, Recovered};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Why a node did not open. What was on disk stays as it was.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has the directory open.
    #[error("{} is in use: another highwater server has it open. Stop that one, or choose another directory", .0.display())]
    InUse(PathBuf),
    /// Data without the file that says whose it is.
    #[error(
        "{} holds data and no file named `cluster`: it was not made by this program, or is an incomplete copy. \
         Restore the file, or choose an empty directory",
        .0.display()
    )]
    NoClusterFile(PathBuf),
    /// A directory of something else.
    #[error("{} is not empty (it holds `{name}`) and is no data directory: choose an empty one", directory.display())]
    NotEmpty {
        /// The directory.
        directory: PathBuf,
        /// A name in it.
        name: String,
    },
    /// A directory whose log is gone.
    #[error(
        "{} has lost its log: what was acknowledged since the last checkpoints is missing. Restore the directory `wal` \
         with the rest of the copy",
        .0.display()
    )]
    LogMissing(PathBuf),
    /// The settings contradict themselves or the directory.
    #[error("{0}")]
    Settings(String),
    /// The cluster file.
    #[error(transparent)]
    ClusterFile(#[from] ClusterFileError),
    /// The log does not open.
    #[error("the log does not open: {0}")]
    Log(#[from] highwater_wal::OpenError),
    /// The log, or a thread that the node cannot do without, failed after it had opened.
    #[error("the node failed: {0}")]
    LogFailed(String),
    /// The first records could not be written.
    #[error("the directory could not be made: {0}")]
    Bootstrap(AppendError),
    /// The mark of a restore does not read.
    #[error(transparent)]
    Restored(#[from] RestoredError),
    /// The object store is another cluster's, or is needed and not set.
    #[error("{0}")]
    ObjectStore(String),
    /// The system failed.
    #[error("{}: {error}", path.display())]
    Io {
        /// What was tried on.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// An opened directory, before anything runs.
pub struct Opened<T> {
    /// Whose it is.
    pub cluster: ClusterFile,
    /// Held while the node runs.
    pub lock: Arc<dyn File>,
    /// The log.
    pub log: Log,
    /// The groups; [`ShardCore::start`] starts them.
    pub core: ShardCore<T>,
    /// A reader of each group's bytes, where it can be believed.
    pub readers: Vec<Option<StoreReader>>,
    /// Whether the directory's files are a copy, and nobody said why.
    pub looks_restored: bool,
    /// Its object store, if it has one.
    pub(crate) cold: Option<Cold>,
}

/// Names that may be in a directory that is to be made one of ours.
const HARMLESS: [&str; 9] = [
    "lock",
    "cluster.tmp",
    "lost+found",
    // What the accounts have, which may be there first: their directory, one that is being put back, and what remembers them.
    "pds",
    "pds.restoring",
    "pds.known",
    "pds.known.new",
    restored::NAME_PLACE,
    restored::NAME_MARK_TEMPORARY,
];

/// Opens a data directory, or makes one of an empty directory.
/// # Errors
/// [`OpenError`].
pub fn open<T: shard::Token>(
    config: &Config,
    disk: &Arc<dyn Disk>,
    random: &mut dyn Random,
) -> Result<Opened<T>, OpenError> {
    check_settings(config)?;
    let data = &config.data;
    let io = |path: &Path| {
        let path = path.to_owned();
        move |error| OpenError::Io { path, error }
    };
    disk.create_directory(data).map_err(io(data))?;
    if let Some(parent) = data.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        disk.sync_directory(parent).map_err(io(parent))?;
    }
    let lock_path = data.join("lock");
    let lock = disk.open(&lock_path, OpenMode::Create).map_err(io(&lock_path))?;
    if !lock.try_lock().map_err(io(&lock_path))? {
        return Err(OpenError::InUse(data.clone()));
    }
    let mut cluster = match ClusterFile::read(disk.as_ref(), data)? {
        Some(cluster) => cluster,
        None => make(config, disk.as_ref(), random)?,
    };
    let (log_path, store_path) = (data.join("wal"), data.join("store"));
    if cluster.bootstrapped && !disk.exists(&log_path).map_err(io(&log_path))? {
        return Err(OpenError::LogMissing(data.clone()));
    }
    disk.create_directory(&log_path).map_err(io(&log_path))?;
    disk.create_directory(&store_path).map_err(io(&store_path))?;
    disk.sync_directory(data).map_err(io(data))?;
    let mark = Mark::read(disk.as_ref(), data)?;
    let looks_restored = Place::check(disk.as_ref(), data).map_err(io(data))? == Place::Other;
    report_restore(data, mark, looks_restored);
    let cold = cold::open(config, disk, &cluster, mark, random)?;
    let (mut log, recovered) = Log::open(Arc::clone(disk), &log_path, log_options(config, random))?;
    let first_start = !cluster.bootstrapped;
    if first_start {
        shard::bootstrap(&mut log, &recovered, cluster.node, cluster.groups).map_err(OpenError::Bootstrap)?;
        cluster.bootstrapped = true;
        cluster.write(disk.as_ref(), data).map_err(io(&data.join(cluster_file::NAME)))?;
    } else if *recovered.last_run() == LastRun::New {
        return Err(OpenError::LogMissing(data.clone()));
    }
    report(&cluster, &recovered);
    let recovery = Recovery {
        disk: Arc::clone(disk),
        directory: &store_path,
        node: cluster.node,
        groups: cluster.groups,
        recovered: &recovered,
        first_start,
        store: highwater_store::Options {
            cold: cold.as_ref().map(|cold| ColdStore(Arc::clone(&cold.tier) as _)),
            ..config.store.clone()
        },
        mark,
        hot_metadata_bytes: config.hot_metadata_bytes,
    };
    let (core, readers) = ShardCore::recover(shard_options(config), &recovery, &log.reader(), random);
    Ok(Opened { cluster, lock, log, core, readers, looks_restored, cold })
}

fn check_settings(config: &Config) -> Result<(), OpenError> {
    let refuse = |why: &str| Err(OpenError::Settings(why.to_owned()));
    if config.groups == 0 || config.groups > cluster_file::GROUPS_MAX {
        return refuse("a cluster has 1 to 4096 groups");
    }
    // Two segments are kept free, one is being written, and one waits for its checkpoint.
    if config.wal_bytes_max < config.wal_segment_bytes.saturating_mul(4) {
        return refuse("the log must have room for four segments at the least");
    }
    Ok(())
}

/// Makes a data directory of an empty one: once, and only because it is empty.
fn make(config: &Config, disk: &dyn Disk, random: &mut dyn Random) -> Result<ClusterFile, OpenError> {
    let data = &config.data;
    let failed = |error| OpenError::Io { path: data.clone(), error };
    let names = disk.list(data).map_err(failed)?;
    if names.iter().any(|name| name == "wal" || name == "store") {
        return Err(OpenError::NoClusterFile(data.clone()));
    }
    if let Some(name) = names.into_iter().find(|name| !HARMLESS.contains(&name.as_str())) {
        return Err(OpenError::NotEmpty { directory: data.clone(), name });
    }
    let cluster = ClusterFile::draw(config.groups, random);
    cluster.write(disk, data).map_err(failed)?;
    tracing::info!(
        event = "directory_made",
        cluster = cluster.cluster_id,
        groups = cluster.groups,
        "a data directory was made"
    );
    Ok(cluster)
}

fn log_options(config: &Config, random: &mut dyn Random) -> highwater_wal::Options {
    highwater_wal::Options {
        segment_bytes: config.wal_segment_bytes,
        log_bytes_max: config.wal_bytes_max,
        boot_id: config.boot_id.clone(),
        identity_new: Some(random.next_u64()),
        ..highwater_wal::Options::default()
    }
}

fn shard_options(config: &Config) -> ShardOptions {
    ShardOptions {
        wal_segment_bytes: config.wal_segment_bytes,
        wal_bytes_max: config.wal_bytes_max,
        checkpoint_bytes: config.checkpoint_bytes,
        uncommitted_bytes_max: config.uncommitted_bytes_effective(),
        live_reads_max: config.live_reads_max,
        compaction_bytes_per_second: config.compaction_bytes_per_second,
    }
}

/// What the directory says about having been restored.
fn report_restore(data: &Path, mark: Option<Mark>, looks_restored: bool) {
    let data = data.display();
    if let Some(Mark { nonce }) = mark {
        tracing::warn!(%data, nonce, "the directory was marked as restored: every stream gets a new history");
    } else if looks_restored {
        tracing::warn!(
            %data,
            "the directory looks like a copy of the one that was last started. If it is older than what this server has \
             acknowledged, stop the server and run `highwater mark-restored`; if it was moved as a whole, \
             `highwater mark-restored --moved`"
        );
    }
}

fn report(cluster: &ClusterFile, recovered: &Recovered) {
    let cut = recovered.cut();
    match recovered.last_run() {
        LastRun::New | LastRun::Clean => {
            tracing::info!(event = "log_recovered", cluster = cluster.cluster_id, "the log was closed cleanly");
        }
        LastRun::Crashed { same_boot } => {
            tracing::info!(
                event = "log_recovered",
                cluster = cluster.cluster_id,
                same_boot,
                ?cut,
                "the log was not closed; it was recovered"
            );
        }
        LastRun::Poisoned(reason) => {
            tracing::warn!(
                event = "log_recovered",
                cluster = cluster.cluster_id,
                reason,
                ?cut,
                "the log had failed; it was recovered"
            );
        }
    }
}
