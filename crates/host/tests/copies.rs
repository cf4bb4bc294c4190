//! What a copy is worth: it is checked without being changed, its secrets are opened, and it holds no more than it says.

mod support;

use bytes::Bytes;
use highwater_base::Random as _;
use highwater_base::random::SplitMix;
use highwater_disk::sim::Operation;
use highwater_disk::watched::{Call, WatchedDisk, Watcher};
use highwater_disk::{Disk, OpenMode, SimDisk};
use highwater_host::layout::{Paths, encode_layout};
use highwater_host::seal::KeyFile;
use highwater_host::{Host, OpenError, Options, Running, Sealer, Seams, Secrets, files, mark_restored, verify};
use highwater_pds::Fact;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use support::{DATA, Server, SetClock, batch, options, put, seqs, try_open};

fn seams(disk: &SimDisk, sealer: Option<Arc<dyn Sealer>>) -> Seams {
    Seams { disk: Arc::new(disk.clone()), clock: SetClock::new(), random: Box::new(SplitMix::new(9)), sealer }
}

fn key(seed: u64) -> Arc<dyn Sealer> {
    let disk = SimDisk::new(seed);
    highwater_disk::create_directory_durably(&disk, Path::new("/keys")).expect("made");
    Arc::new(KeyFile::create(&disk, Path::new("/keys/pds.key"), &mut SplitMix::new(seed)).expect("made"))
}

/// A stopped server with records in its store and in its log, and a secret of sessions.
fn stopped(seed: u64, sealer: Option<Arc<dyn Sealer>>) -> SimDisk {
    let (disk, clock) = (SimDisk::new(seed), SetClock::new());
    let seams = Seams { clock: clock.clone(), ..seams(&disk, sealer) };
    let (host, worker, boot) = Host::open(options(), seams).expect("it opens");
    let mut server = Server { disk: disk.clone(), clock, host, worker, boot };
    for _ in 0..2 {
        let account = server.account();
        server.put(account, "a", "text");
    }
    let (sealed, secret) = server.host.seal(&[0xa7; 32]);
    let noted = server.host.note(Fact::SessionSecret { sealed, secret });
    server.settle(noted).expect("noted");
    // It died, so that there is something to tidy up.
    drop((server.worker, server.host));
    disk.power_loss();
    disk
}

/// A backup on a disk that is mounted for reading, or a volume that nobody may touch: it was opened as a server opens it, with a new state of the
/// log, and failed there.
#[test]
fn a_directory_on_a_disk_that_takes_no_writes_is_verified_and_stays_as_it_was() {
    const READ_ONLY: i32 = 30;
    let disk = stopped(1, None);
    let before = disk.files();
    for operation in [
        Operation::Write,
        Operation::Sync,
        Operation::SetLength,
        Operation::Reserve,
        Operation::CreateDirectory,
        Operation::SyncDirectory,
        Operation::Rename,
        Operation::Remove,
    ] {
        disk.fail(operation, "", 0, u64::MAX, READ_ONLY);
    }
    for _ in 0..2 {
        let verified = verify(options(), seams(&disk, None)).expect("it opens");
        assert_eq!((verified.faults, verified.records, verified.accounts), (Vec::new(), 2, 2));
        assert_eq!(verified.secrets, Secrets::Opened(3));
        assert_eq!(verified.ceiling, 8);
    }
    assert!(disk.files() == before, "no byte of it changed");
}

/// `verify` said \"faults 0\" of a backup whose keys nobody could use: with the wrong key file, with none, and with a key that was not the account's.
#[test]
fn a_directory_whose_secrets_do_not_open_is_not_called_whole() {
    let right = key(1);
    let disk = stopped(2, Some(right.clone()));
    let whole = verify(options(), seams(&disk, Some(right.clone()))).expect("it opens");
    assert_eq!((whole.faults, whole.secrets), (Vec::new(), Secrets::Opened(3)));
    let unknown = verify(options(), seams(&disk, None)).expect("it opens");
    assert_eq!((unknown.faults, unknown.secrets), (Vec::new(), Secrets::Unchecked), "and says so");
    let wrong = verify(options(), seams(&disk, Some(key(2)))).expect_err("another key").to_string();
    assert!(wrong.contains("encrypted under key"), "{wrong}");
    // The key's number is right, and what it should open is not.
    let liar = Liar(right);
    let found = verify(options(), seams(&disk, Some(Arc::new(liar)))).expect("it opens");
    assert_eq!(found.secrets, Secrets::Opened(0));
    assert_eq!(found.faults.len(), 3, "{:?}", found.faults);
    let plain = stopped(3, None);
    let needless = verify(options(), seams(&plain, Some(key(1)))).expect_err("it has no key").to_string();
    assert!(needless.contains("not encrypted"), "{needless}");
}

/// A key that opens nothing.
struct Liar(Arc<dyn Sealer>);

impl Sealer for Liar {
    fn id(&self) -> u64 {
        self.0.id()
    }

    fn seal(&self, secret: &[u8], nonce: [u8; 24]) -> Bytes {
        self.0.seal(secret, nonce)
    }

    fn open(&self, _sealed: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// A later program made it: that is no damage, and nobody should restore an older copy over it.
#[test]
fn a_directory_of_a_later_version_is_not_called_damaged() {
    let later = |bytes: Vec<u8>| {
        let (mut bytes, end) = (bytes.clone(), bytes.len() - 4);
        bytes[8] = 9;
        let checksum = crc32c::crc32c(&bytes[..end]).to_le_bytes();
        bytes[end..].copy_from_slice(&checksum);
        bytes
    };
    let disk = stopped(4, None);
    let paths = Paths::new(Path::new(DATA));
    let note = highwater_host::backup::encode_note(&highwater_host::backup::Note { applied: 1, at: 1 });
    let layout = encode_layout(None);
    let kept = [(paths.note(), note), (paths.layout(), layout)];
    for (path, bytes) in &kept {
        let disk = disk.fork(1);
        files::replace(&disk, path, &later(bytes.clone())).expect("written");
        let verified = verify(options(), seams(&disk, None)).expect_err("it is later");
        let mut refused = vec![verified, try_open(&disk, &SetClock::new(), options(), 1).err().expect("it is later")];
        if *path == paths.layout() {
            match mark_restored(&disk, Path::new(DATA), 1, (None, None)) {
                Err(highwater_host::MarkError::Open(error)) => refused.push(error),
                other => panic!("{other:?}"),
            }
        }
        for error in refused {
            assert!(matches!(error, OpenError::Layout { layout: 9, .. }) && error.is_later_version(), "{error}");
            let words = error.to_string();
            assert!(words.contains("a later program made it") && words.contains("not damaged"), "{words}");
        }
    }
}

/// The same server once more, on threads of its own, whose disk is watched.
fn watched(server: Server, watcher: Arc<dyn Watcher>) -> (Host, Running) {
    let Server { disk, clock, worker, host, .. } = server;
    worker.stop().expect("stopped");
    drop(host);
    let disk = Arc::new(WatchedDisk::new(disk, watcher));
    let seams = Seams { disk, clock, random: Box::new(SplitMix::new(1)), sealer: None };
    let (host, worker, _) = Host::open(options(), seams).expect("it opens");
    (host, worker.spawn().expect("threads"))
}

/// Hands over writes while a copy is made, each time a file of it is begun.
struct Writes {
    host: Mutex<Option<Host>>,
    account: highwater_pds::AccountId,
    to: PathBuf,
}

impl Watcher for Writes {
    fn before(&self, call: Call, path: &Path, _bytes: u64) {
        if call != Call::Open || !path.starts_with(&self.to) {
            return;
        }
        if let Some(host) = self.host.lock().expect("whole").clone() {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
            host.write(self.account, batch(vec![put(&name, "while it was copied")])).wait().expect("written");
        }
    }
}

/// The floor of a copy was read when everything else of it had been copied: above every number in it if writes went on meanwhile, which looks like a log
/// that lost its end.
#[test]
fn a_copy_of_a_server_that_goes_on_writing_is_whole_and_ends_before_what_came_later() {
    let mut server = Server::new(5);
    let account = server.account();
    server.put(account, "a", "before");
    let to = PathBuf::from("/copy/pds");
    let writes = Arc::new(Writes { host: Mutex::new(None), account, to: to.clone() });
    let (disk, clock) = (server.disk.clone(), Arc::clone(&server.clock));
    let (host, running) = watched(server, writes.clone());
    *writes.host.lock().expect("whole") = Some(host.clone());
    let copied = host.backup(&to);
    let host = writes.host.lock().expect("whole").take().expect("it runs");
    copied.expect("copied");
    let newest = host.state(|state| state.sequence.ceiling());
    running.stop().expect("stopped");
    let kept = Options { directory: to, ..options() };
    let verified = verify(kept.clone(), self::seams(&disk, None)).expect("it opens");
    assert_eq!(verified.faults, Vec::<String>::new());
    assert!(verified.ceiling < newest, "{} {newest}", verified.ceiling);
    let copy = try_open(&disk, &clock, kept, 1).expect("it opens");
    assert_eq!(seqs(&copy.frames()).last().copied(), Some(verified.ceiling));
    assert!(copy.text(account, "a").is_some());
}

/// While a checkpoint runs, has a write acknowledged and asks for a copy.
struct Asks {
    host: Mutex<Option<Host>>,
    account: highwater_pds::AccountId,
    to: PathBuf,
    copied: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Watcher for Asks {
    fn before(&self, call: Call, path: &Path, _bytes: u64) {
        if call != Call::Sync || !path.starts_with(Path::new(DATA).join("store")) {
            return;
        }
        let Some(host) = self.host.lock().expect("whole").take() else { return };
        host.write(self.account, batch(vec![put("acknowledged", "before it")])).wait().expect("written");
        let to = self.to.clone();
        let copies = std::thread::spawn(move || {
            host.backup(&to).expect("copied");
        });
        *self.copied.lock().expect("whole") = Some(copies);
        // Its question should arrive before the checkpoint ends.
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// The copy was told that its checkpoint was made when the one ended that had begun before it asked: without what was acknowledged
/// meanwhile, and with a floor above that, which no restore took.
#[test]
fn a_copy_that_is_asked_for_while_a_checkpoint_runs_holds_what_was_acknowledged_before() {
    let mut server = Server::new(17);
    let account = server.account();
    server.put(account, "a", "before");
    let to = PathBuf::from("/copy/pds");
    let asks = Arc::new(Asks { host: Mutex::new(None), account, to: to.clone(), copied: Mutex::new(None) });
    let disk = server.disk.clone();
    let (host, running) = watched(server, asks.clone());
    *asks.host.lock().expect("whole") = Some(host.clone());
    host.write(account, batch(vec![put("b", "before")])).wait().expect("written");
    host.checkpoint().expect("made");
    let copied = asks.copied.lock().expect("whole").take().expect("a checkpoint ran");
    copied.join().expect("copied");
    running.stop().expect("stopped");
    let verified = verify(Options { directory: to, ..options() }, self::seams(&disk, None)).expect("it opens");
    assert_eq!((verified.faults, verified.records), (Vec::new(), 3));
}

/// Bits of a copy flip: whatever is read is checked.
#[test]
fn no_flipped_bit_of_a_copy_that_matters_goes_unseen() {
    let disk = stopped(6, None);
    let to = Path::new("/copy/pds");
    let clock = SetClock::new();
    let Server { worker, host, .. } = try_open(&disk, &clock, options(), 1).expect("it opens");
    let running = worker.spawn().expect("threads");
    host.backup(to).expect("copied");
    running.stop().expect("stopped");
    let kept = Options { directory: to.into(), ..options() };
    let mut random = SplitMix::new(7);
    let (mut seen, mut flips) = (0, 0);
    for (path, bytes) in disk.files().into_iter().filter(|(path, _)| path.starts_with(to)) {
        for _ in 0..20 {
            let offset = random.below(bytes.len() as u64);
            let disk = disk.fork(flips);
            disk.flip_bit(&path, offset).expect("flipped");
            let found = verify(kept.clone(), seams(&disk, None));
            let fault = found.as_ref().map_or(true, |found| !found.faults.is_empty());
            if !fault {
                // What is not seen is not read: the copy is what it was.
                let found = found.expect("it opens");
                assert_eq!(
                    (found.records, found.accounts, found.secrets),
                    (2, 2, Secrets::Opened(3)),
                    "{path:?} {offset}"
                );
            }
            flips += 1;
            seen += u64::from(fault);
        }
    }
    assert!(seen * 2 > flips, "{seen} of {flips}");
    let file = disk.open(&Paths::new(to).layout(), OpenMode::Write).expect("there");
    file.set_length(3).expect("cut");
    assert!(verify(kept, seams(&disk, None)).is_err());
}
