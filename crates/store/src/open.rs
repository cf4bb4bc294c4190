//! Opening a store: the index is read and the folder tidied, the payload is left alone.

use crate::cold::{Cold, marker};
use crate::files::{self, Files};
use crate::index::{self, Name, Opened, ScanError};
use crate::options::Options;
use crate::residence::{Keep, Visited};
use crate::residents::Residents;
use crate::store::Store;
use crate::usage::Laid;
use bytes::Bytes;
use highwater_base::OwnerId;
use highwater_disk::{Disk, OpenMode};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// What a store holds, for the one who applies commands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Loaded {
    /// The position that the last checkpoint covers; the log is replayed from the next one on.
    pub applied: u64,
    /// The caller's bytes of that checkpoint.
    pub meta: Bytes,
    /// Every object's key and state, in order of the keys; the state is empty if the object was never given one.
    pub objects: Vec<(u64, Bytes)>,
}

/// Why a store was not opened. Its files are as they were.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A later program wrote a file.
    #[error("{} has format version {version}, which this program does not know", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u16,
    },
    /// A file is not what it was.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file or folder.
        path: PathBuf,
        /// Where in it, and what is wrong.
        what: String,
    },
    /// The caller does not take an object's state.
    #[error("object {key}: {what}")]
    Refused {
        /// The object's key.
        key: u64,
        /// What the caller says.
        what: String,
    },
    /// Data files were moved to an object store, and none is given.
    #[error("{}: {files} data files are in an object store, and none is set", path.display())]
    NoObjectStore {
        /// The folder.
        path: PathBuf,
        /// How many.
        files: usize,
    },
    /// The disk's error.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

pub(crate) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> OpenError + use<> {
    let path = path.to_path_buf();
    |source| OpenError::Io { path, source }
}

pub(crate) fn scan_error(path: PathBuf, error: ScanError) -> OpenError {
    match error {
        ScanError::Io(source) => OpenError::Io { path, source },
        ScanError::Version(version) => OpenError::Version { path, version },
        ScanError::Refused { key, what } => OpenError::Refused { key, what },
        other => OpenError::Damaged { path, what: other.to_string() },
    }
}

/// The folder's files, by what they are.
#[derive(Default)]
pub(crate) struct Listing {
    pub generations: BTreeSet<u64>,
    temporary: Vec<String>,
    data: BTreeSet<u32>,
    markers: BTreeSet<u32>,
}

impl Listing {
    pub fn of(disk: &dyn Disk, directory: &Path) -> Result<Self, OpenError> {
        let names = match disk.list(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            names => names.map_err(io_error(directory))?,
        };
        let mut listing = Self::default();
        for name in names {
            match (index::name(&name), files::number(&name)) {
                (Name::Generation(generation), _) => drop(listing.generations.insert(generation)),
                (Name::Temporary, _) => listing.temporary.push(name),
                (Name::Other, Some(number)) => drop(listing.data.insert(number)),
                (Name::Other, None) if marker::is_temporary(&name) => listing.temporary.push(name),
                (Name::Other, None) => listing.markers.extend(marker::number(&name)),
            }
        }
        Ok(listing)
    }
}

/// Makes the folder and an empty index in it, durably.
///
/// The names above come first, so that an index that can be seen has durable names above it.
fn create(disk: &dyn Disk, directory: &Path, owner: OwnerId, options: &Options) -> Result<(), OpenError> {
    disk.create_directory(directory).map_err(io_error(directory))?;
    for above in directory.ancestors().skip(1).take(2).filter(|above| !above.as_os_str().is_empty()) {
        disk.sync_directory(above).map_err(io_error(above))?;
    }
    let path = index::path(directory, 1);
    let head = index::Head { file_next: 1, ..Default::default() };
    index::write_base(disk, directory, owner, (1, 0), options.index_block_bytes as usize, |_| Ok(head))
        .map_err(|error| scan_error(path.clone(), error))?;
    disk.rename(&index::temporary_path(directory, 1), &path).map_err(io_error(&path))
}

/// A store whose index was looked at and not loaded yet.
pub struct Opening {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    owner: OwnerId,
    options: Options,
    listing: Listing,
    index: PathBuf,
    opened: Opened,
}

impl Opening {
    /// The position that the last checkpoint covers; the log is replayed from the next one on.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.opened.head.applied
    }

    /// The caller's bytes of that checkpoint.
    #[must_use]
    pub fn meta(&self) -> &Bytes {
        &self.opened.head.meta
    }

    /// Goes through all objects, in order of their keys, and asks of each whether it is to be resident. Removes what a crash
    /// left behind.
    /// # Errors
    /// A damaged index, a missing data file, the disk's error, or `Refused` with what `visit` said. No file was changed then,
    /// unless the disk failed while leftovers were removed.
    pub fn load(self, visit: &mut dyn FnMut(Visited) -> Result<Keep, String>) -> Result<Store, OpenError> {
        let Self { disk, directory, owner, options, listing, index, opened } = self;
        let (head, mut residents, mut laid) = (opened.head.clone(), Residents::default(), Laid::default());
        let loaded = opened.read(&mut |key, image, evictable| {
            image.extents.iter().for_each(|extent| laid.add(extent));
            let visited = Visited { key, state: image.state, evictable };
            let keep = visit(visited).map_err(|what| ScanError::Refused { key, what })?;
            if keep == Keep::Resident || !evictable {
                residents.insert(key, image.extents);
            }
            Ok(())
        });
        let loaded = loaded.map_err(|error| scan_error(index.clone(), error))?;
        let named: BTreeSet<u32> = laid.usage.iter().map(|(file, _)| file).collect();
        let cold = read_markers(&*disk, &directory, owner, &listing, &named)?;
        let here = here(&directory, &listing, &named, &cold, &options)?;
        loaded.settle().map_err(io_error(&index))?;
        tidy(&*disk, &directory, &listing, &here)?;
        let newest = listing.data.last().max(listing.markers.last()).map_or(0, |file| file + 1);
        let next_file = head.file_next.max(newest);
        let files = Files::new(disk, directory, owner, options.handles_max);
        let files = Arc::new(files.with_cold(options.cold.clone(), cold));
        let torn_bytes = loaded.torn_bytes;
        let mut store = Store::new(files, options, loaded, residents, laid, next_file);
        store.measure(&named);
        store.applied = head.applied;
        store.torn_bytes = torn_bytes;
        Ok(store)
    }
}

impl Store {
    /// Begins to open the store in `directory`, or makes an empty one. The caller holds the data directory's lock.
    /// # Errors
    /// A damaged or unknown index, or the disk's error. No file was changed then.
    pub fn opening(
        disk: Arc<dyn Disk>,
        directory: &Path,
        owner: OwnerId,
        options: Options,
    ) -> Result<Opening, OpenError> {
        let mut listing = Listing::of(&*disk, directory)?;
        if listing.generations.is_empty() {
            if !listing.data.is_empty() || !listing.markers.is_empty() {
                let what = "there are data files, but no index".into();
                return Err(OpenError::Damaged { path: directory.into(), what });
            }
            create(&*disk, directory, owner, &options)?;
            listing = Listing::of(&*disk, directory)?;
        }
        let generation = listing.generations.pop_last().expect("there is one, or it was just made");
        let index = index::path(directory, generation);
        let file = disk.open(&index, OpenMode::Write).map_err(io_error(&index))?;
        let opened = index::open(file, index.clone(), owner, generation);
        let opened = opened.map_err(|error| scan_error(index.clone(), error))?;
        Ok(Opening { disk, directory: directory.into(), owner, options, listing, index, opened })
    }

    /// Opens a store with every object resident.
    ///
    /// Reads the index and nothing of the payload, and removes what a crash left behind.
    /// # Errors
    /// As [`Self::opening`] and [`Opening::load`].
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        owner: OwnerId,
        options: Options,
    ) -> Result<(Self, Loaded), OpenError> {
        let opening = Self::opening(disk, directory, owner, options)?;
        let mut loaded = Loaded { applied: opening.applied(), meta: opening.meta().clone(), objects: Vec::new() };
        let store = opening.load(&mut |visited| {
            loaded.objects.push((visited.key, visited.state));
            Ok(Keep::Resident)
        })?;
        Ok((store, loaded))
    }
}

impl Store {
    /// Learns how long the data files are. What the disk refuses to say of one is known from its extents, less exactly.
    fn measure(&mut self, named: &BTreeSet<u32>) {
        for file in named {
            let away = self.files.cold(*file).filter(|cold| cold.moved).map(|cold| cold.bytes);
            let opened = || self.files.disk.open(&self.files.path(*file), OpenMode::Read);
            let bytes = away.map_or_else(|| opened().and_then(|opened| opened.length()), Ok);
            if let Ok(bytes) = bytes {
                self.usage.grown(*file, bytes);
            }
        }
        self.judge_files();
    }
}

/// Where the data files with a marker are. A marker that does not read matters only where the file is not.
fn read_markers(
    disk: &dyn Disk,
    directory: &Path,
    owner: OwnerId,
    listing: &Listing,
    named: &BTreeSet<u32>,
) -> Result<BTreeMap<u32, Cold>, OpenError> {
    let mut cold = BTreeMap::new();
    for file in &listing.markers {
        let path = marker::path(directory, *file);
        let needed = named.contains(file) && !listing.data.contains(file);
        match marker::Marker::read(disk, directory, owner, *file) {
            Ok(marker) => drop(cold.insert(*file, marker.cold)),
            Err(_) if !needed => {}
            Err(marker::MarkerError::Io(source)) => return Err(OpenError::Io { path, source }),
            Err(marker::MarkerError::Version(version)) => return Err(OpenError::Version { path, version }),
            Err(other) => return Err(OpenError::Damaged { path, what: other.to_string() }),
        }
    }
    Ok(cold)
}

/// Those of the named files that count where they are, in the folder. One that moved and is there all the same was about to
/// be removed.
fn here(
    directory: &Path,
    listing: &Listing,
    named: &BTreeSet<u32>,
    cold: &BTreeMap<u32, Cold>,
    options: &Options,
) -> Result<BTreeSet<u32>, OpenError> {
    let (away, here): (BTreeSet<_>, BTreeSet<_>) =
        named.iter().partition(|file| cold.get(file).is_some_and(|cold| cold.moved));
    if let Some(missing) = here.difference(&listing.data).next() {
        let path = files::path(directory, *missing);
        return Err(OpenError::Damaged { path, what: "the file is missing".into() });
    }
    if !away.is_empty() && options.cold.is_none() {
        return Err(OpenError::NoObjectStore { path: directory.into(), files: away.len() });
    }
    Ok(here)
}

/// Removes what a crash left behind.
fn tidy(disk: &dyn Disk, directory: &Path, listing: &Listing, named: &BTreeSet<u32>) -> Result<(), OpenError> {
    // The newest index may have been renamed and its name not be durable yet: it must be before an older one goes.
    disk.sync_directory(directory).map_err(io_error(directory))?;
    let indexes = listing.generations.iter().map(|generation| index::path(directory, *generation));
    let temporary = listing.temporary.iter().map(|name| directory.join(name));
    let orphans = listing.data.difference(named).map(|file| files::path(directory, *file));
    for path in indexes.chain(temporary).chain(orphans) {
        disk.remove(&path).map_err(io_error(&path))?;
    }
    Ok(())
}
