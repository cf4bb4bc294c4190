//! The object store of a node: whose it is, what of the data directory may go there, and how it does.
//!
//! The stores know how a file moves (`highwater_store::cold`); here is what belongs to the directory as a whole: the life
//! under whose name it writes, the object that says whose the place is, and what the status tells.

mod claim;
mod life;
mod standing;

pub(crate) use claim::Claimed;
pub(crate) use life::LifeFile;
pub use standing::ColdStatus;
pub(crate) use standing::Standing;

use crate::cluster_file::ClusterFile;
use crate::config::Config;
use crate::open::OpenError;
use crate::restored::Mark;
use highwater_base::Random;
use highwater_disk::Disk;
use highwater_store::{ColdStore, ColdTier, Life, moved_files};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How long a start waits to hear whose the object store is. One that does not say so keeps no server from starting.
const CLAIM_PATIENCE: Duration = Duration::from_secs(5);

/// Milliseconds between two looks at what should move.
///
/// A disk that takes 500 MB/s is 2.5 GB over its bound by then.
pub const INTERVAL_MS: u64 = 5_000;

/// The object store of a node.
#[derive(Debug, Clone)]
pub struct ColdOptions {
    /// Where it is.
    pub store: ColdStore,
    /// Bytes of data files that stay on the disk. Of what is beyond them the oldest files move, as far as they are full.
    pub local_bytes_max: u64,
    /// Bytes a second that move there, are read back to be verified, and come back.
    ///
    /// A link of a gigabit, half used.
    pub bytes_per_second: u64,
    /// Milliseconds between two looks at what should move.
    pub interval_ms: u64,
}

impl ColdOptions {
    /// The defaults, with this object store.
    #[must_use]
    pub fn new(tier: Arc<dyn ColdTier>) -> Self {
        Self { store: ColdStore(tier), local_bytes_max: 16 << 30, bytes_per_second: 64 << 20, interval_ms: INTERVAL_MS }
    }
}

/// The object store of an open directory.
#[derive(Clone)]
pub(crate) struct Cold {
    /// Asks the object store, and knows whether it is the one that it was.
    pub tier: Arc<Claimed>,
    /// Under which this directory writes now.
    pub life: Life,
}

/// Whose an object store is, found without opening a data directory; for `check-config`.
/// # Errors
/// That of another cluster, or that it does not answer.
pub fn probe(options: &ColdOptions, disk: &dyn Disk, data: &Path) -> Result<Option<String>, String> {
    let found = claim::owner(&*options.store.0).map_err(|error| error.to_string())?;
    let cluster = ClusterFile::read(disk, data).ok().flatten();
    match (found, cluster) {
        (Some(found), Some(cluster)) if found != cluster.cluster_id => {
            let place = options.store.0.place();
            Err(claim::Foreign { place, found, ours: cluster.cluster_id }.to_string())
        }
        (found, _) => Ok(found),
    }
}

/// Finds whose the object store is, and under which life the directory writes. The caller holds the directory's lock.
/// # Errors
/// `ObjectStore` if it is another cluster's, or if none is set and files are there; the life file's, or the system's.
pub(crate) fn open(
    config: &Config,
    disk: &Arc<dyn Disk>,
    cluster: &ClusterFile,
    mark: Option<Mark>,
    random: &mut dyn Random,
) -> Result<Option<Cold>, OpenError> {
    let data = &config.data;
    let failed = |error| OpenError::Io { path: data.join(life::NAME), error };
    let Some(options) = &config.cold else {
        return check_none_away(&**disk, data, cluster).map(|()| None);
    };
    let known = LifeFile::read(&**disk, data)?;
    let mark = mark.map_or(0, |mark| mark.nonce);
    let mut file = known.clone().unwrap_or_else(|| LifeFile::draw(mark, false, random));
    if mark != 0 && file.mark != mark {
        // The newer life may have written there since: from here on the two have nothing in common.
        file = LifeFile::draw(mark, file.established, random);
    }
    let tier = Arc::new(Claimed::new(Arc::clone(&options.store.0), cluster.cluster_id.clone(), file.established));
    if known.as_ref() != Some(&file) {
        file.write(&**disk, data).map_err(failed)?;
    }
    if claim_patiently(&tier)? && !file.established {
        LifeFile { established: true, ..file.clone() }.write(&**disk, data).map_err(failed)?;
    }
    Ok(Some(Cold { tier, life: file.life }))
}

/// Claims the object store, without waiting for long; whether it answered.
fn claim_patiently(tier: &Arc<Claimed>) -> Result<bool, OpenError> {
    let (sender, receiver) = mpsc::channel();
    let asked = Arc::clone(tier);
    let ask = move || {
        // Whoever asked may have gone on.
        drop(sender.send(asked.claim()));
    };
    let spawned = std::thread::Builder::new().name("object-store".to_owned()).spawn(ask);
    spawned.map_err(|error| OpenError::LogFailed(format!("a thread could not be started: {error}")))?;
    match receiver.recv_timeout(CLAIM_PATIENCE) {
        Ok(Ok(())) => Ok(true),
        Ok(Err(claim::ClaimError::Foreign(foreign))) => Err(OpenError::ObjectStore(foreign.to_string())),
        Ok(Err(error)) => {
            tracing::warn!(event = "object_store_unreachable", place = tier.place(), %error, "the object store is not used until it answers; what lies there cannot be read until then");
            Ok(false)
        }
        Err(_) => {
            tracing::warn!(
                event = "object_store_unreachable",
                place = tier.place(),
                "the object store does not answer in time"
            );
            Ok(false)
        }
    }
}

/// Without an object store, no file may be in one.
fn check_none_away(disk: &dyn Disk, data: &Path, cluster: &ClusterFile) -> Result<(), OpenError> {
    for number in 0..=cluster.groups {
        let folder = data.join("store").join(crate::shard::owner(number, cluster.groups).to_string());
        let files = moved_files(disk, &folder).map_err(|error| OpenError::Io { path: folder.clone(), error })?;
        if files > 0 {
            return Err(OpenError::ObjectStore(format!(
                "{} has {files} data files in an object store, and none is set: name it with `object_store`, as it was \
                 when they moved there",
                folder.display()
            )));
        }
    }
    Ok(())
}
