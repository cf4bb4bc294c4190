//! The simulated disk without faults does what the operating system does.

use highwater_disk::{Disk, File, OpenMode, OsDisk, SimDisk};
use proptest::prelude::*;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, Clone)]
enum Step {
    Open(usize, OpenMode),
    Write(usize, u64, Vec<u8>),
    Read(usize, u64, usize),
    SetLength(usize, u64),
    Reserve(usize, u64),
    Close(usize),
    Rename(usize, usize),
    Remove(usize),
    Sync,
}

const NAMES: [&str; 4] = ["a", "b", "sub/a", "sub/c"];

fn step() -> impl Strategy<Value = Step> {
    let mode = prop_oneof![
        Just(OpenMode::Read),
        Just(OpenMode::Write),
        Just(OpenMode::Create),
        Just(OpenMode::Create),
        Just(OpenMode::CreateNew)
    ];
    let length = prop_oneof![Just(0), 1..6000usize];
    let bytes = (any::<u8>(), length).prop_map(|(byte, length)| vec![byte; length]);
    prop_oneof![
        (0..4usize, mode).prop_map(|(name, mode)| Step::Open(name, mode)),
        (0..8usize, 0..20_000u64, bytes).prop_map(|(file, offset, bytes)| Step::Write(file, offset, bytes)),
        (0..8usize, 0..25_000u64, 0..9000usize).prop_map(|(file, offset, length)| Step::Read(file, offset, length)),
        (0..8usize, 0..20_000u64).prop_map(|(file, length)| Step::SetLength(file, length)),
        (0..8usize, 1..20_000u64).prop_map(|(file, length)| Step::Reserve(file, length)),
        (0..8usize).prop_map(Step::Close),
        (0..4usize, 0..4usize).prop_map(|(from, to)| Step::Rename(from, to)),
        (0..4usize).prop_map(Step::Remove),
        Just(Step::Sync),
    ]
}

/// A disk, a directory on it, and the files that are open.
struct World {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    open: Vec<Arc<dyn File>>,
}

impl World {
    fn new(disk: Arc<dyn Disk>, root: &Path) -> Self {
        disk.create_directory(&root.join("sub")).expect("create");
        Self { disk, root: root.to_path_buf(), open: Vec::new() }
    }

    fn path(&self, name: usize) -> PathBuf {
        self.root.join(NAMES[name])
    }

    /// Does a step and says what an observer sees of it.
    fn step(&mut self, step: &Step) -> Result<Vec<u8>, io::ErrorKind> {
        let count = self.open.len().max(1);
        let file = |index: usize| self.open.get(index % count).cloned();
        let result = match step {
            Step::Open(name, mode) => self.disk.open(&self.path(*name), *mode).map(|file| self.open.push(file)),
            // Nothing written to a handle for reading is an error only where there is a call for it.
            Step::Write(index, offset, bytes) if bytes.is_empty() => {
                file(*index).map_or(Ok(()), |file| file.write_at(bytes, *offset).or(Ok(())))
            }
            Step::Write(index, offset, bytes) => file(*index).map_or(Ok(()), |file| file.write_at(bytes, *offset)),
            Step::Read(index, offset, length) => {
                let Some(file) = file(*index) else { return Ok(Vec::new()) };
                let mut buffer = vec![0xee; *length];
                let read = file.read_at(&mut buffer, *offset).map_err(|error| error.kind())?;
                buffer.truncate(read);
                return Ok(buffer);
            }
            Step::SetLength(index, length) => file(*index).map_or(Ok(()), |file| file.set_length(*length)),
            Step::Reserve(index, length) => file(*index).map_or(Ok(()), |file| file.reserve(0, *length)),
            Step::Close(index) => {
                if !self.open.is_empty() {
                    self.open.remove(index % count);
                }
                Ok(())
            }
            Step::Rename(from, to) => self.disk.rename(&self.path(*from), &self.path(*to)),
            Step::Remove(name) => self.disk.remove(&self.path(*name)),
            Step::Sync => self.disk.sync_directory(&self.root),
        };
        result.map(|()| Vec::new()).map_err(|error| match error.raw_os_error() {
            // A handle for reading: EBADF of one call and EINVAL of another tell the same.
            Some(9 | 22) => io::ErrorKind::PermissionDenied,
            _ => error.kind(),
        })
    }

    fn listing(&self) -> (Vec<String>, Vec<String>, Vec<u64>) {
        let list = |path: &Path| self.disk.list(path).expect("list");
        let lengths = self.open.iter().map(|file| file.length().expect("length")).collect();
        (list(&self.root), list(&self.root.join("sub")), lengths)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn the_simulated_disk_without_faults_is_a_disk(steps in prop::collection::vec(step(), 1..60)) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut real = World::new(Arc::new(OsDisk::new()), folder.path());
        let mut simulated = World::new(Arc::new(SimDisk::new(1)), Path::new("/root"));
        for step in &steps {
            prop_assert_eq!(real.step(step), simulated.step(step), "{:?}", step);
            prop_assert_eq!(real.listing(), simulated.listing(), "{:?}", step);
        }
    }
}
