//! Copies that are put back in any order, and numbers that nobody is given twice.

mod support;

use highwater_disk::{Disk as _, SimDisk};
use highwater_host::layout::Paths;
use highwater_host::{OpenError, Options, files, forget, mark_restored};
use highwater_pds::AccountId;
use std::path::Path;
use std::sync::Arc;
use support::{DATA, Server, SetClock, exists, options, seqs, try_open};

const WITNESS: &str = "/outside/witness";

fn witnessed() -> Options {
    Options { witness_path: Some(WITNESS.into()), ..options() }
}

/// A disk on which one copy after the other is put back, and what lies outside it.
struct Machine {
    clock: Arc<SetClock>,
    server: Option<Server>,
    options: Options,
    /// The highest number that anybody was ever given.
    newest: u64,
    restores: u64,
    /// What the operator names at the next restore.
    seq_min: Option<u64>,
}

impl Machine {
    fn new(seed: u64, options: Options) -> Self {
        let disk = SimDisk::new(seed);
        highwater_disk::create_directory_durably(&disk, Path::new("/outside")).expect("made");
        let clock = SetClock::new();
        let server = Server::with(&disk, &clock, options.clone());
        Self { clock, server: Some(server), options, newest: 0, restores: 0, seq_min: None }
    }

    fn server(&mut self) -> &mut Server {
        self.server.as_mut().expect("it runs")
    }

    fn account(&mut self) -> AccountId {
        self.server().account()
    }

    /// Writes, and looks at what everybody is given: every number is above all that were ever given.
    fn write(&mut self, account: AccountId, count: usize) {
        for number in 0..count {
            self.clock.advance(1);
            let text = format!("{number} of {}", self.restores);
            self.server().put(account, "note", &text);
        }
        self.look();
    }

    fn look(&mut self) {
        let (host, floor) = (self.server().host.clone(), self.newest);
        let begun = host.state(|state| state.sequence.floor);
        let frames = self.server().frames();
        let newest = seqs(&frames).last().copied().unwrap_or(0);
        assert!(begun <= newest, "a restore sends something");
        self.newest = floor.max(newest);
    }

    /// The copy that a stopped server's disk is; the server goes on.
    fn copy(&mut self) -> SimDisk {
        let server = self.server.take().expect("it runs");
        let (disk, clock) = (server.disk.clone(), Arc::clone(&server.clock));
        server.worker.stop().expect("stopped");
        self.restores += 1;
        let copy = disk.fork(self.restores);
        self.server = Some(Server::with(&disk, &clock, self.options.clone()));
        copy
    }

    /// Puts a copy back after the power was lost, marked; what lies outside the volume stays as it is.
    fn put_back(&mut self, copy: &SimDisk) {
        let Server { disk, .. } = self.server.take().expect("it runs");
        disk.power_loss();
        self.restores += 1;
        let next = copy.fork(100 + self.restores);
        for path in [&self.options.witness_path, &self.options.witness_beside_path].into_iter().flatten() {
            if let Some(witness) = files::read(&disk, path).expect("read") {
                files::replace(&next, path, &witness).expect("written");
            }
        }
        mark_restored(&next, Path::new(DATA), self.restores, (None, self.seq_min)).expect("marked");
        self.clock.advance(60_000);
        self.start(&next);
    }

    fn start(&mut self, disk: &SimDisk) {
        let (clock, options) = (Arc::clone(&self.clock), self.options.clone());
        self.server = Some(Server::with(disk, &clock, options));
        let (newest, floor) = (self.newest, self.server().host.state(|state| state.sequence.floor));
        assert!(floor >= newest, "the floor is {floor}, and numbers up to {newest} were given out");
        self.look();
    }
}

/// Copy A was put back, a copy B of that run later, and then A once more. A tells of nothing that came after it: its floor used to rise
/// by the same step as the first time, below the numbers of what began with B, and consumers passed over all of it.
#[test]
fn an_older_copy_than_the_last_one_put_back_gives_no_number_twice() {
    let mut machine = Machine::new(1, witnessed());
    let account = machine.account();
    machine.write(account, 3);
    let older = machine.copy();
    machine.write(account, 5);
    machine.put_back(&older);
    machine.write(account, 5);
    let newer = machine.copy();
    machine.write(account, 5);
    machine.put_back(&newer);
    machine.write(account, 5);
    machine.put_back(&older);
    machine.write(account, 5);
}

/// The machine on which copies are put back has a clock that is minutes behind the newest record: the time since the copy was made is
/// nothing then, each time.
#[test]
fn a_copy_put_back_twice_by_a_clock_that_is_behind_gives_no_number_twice() {
    let mut machine = Machine::new(2, witnessed());
    let account = machine.account();
    machine.clock.advance(200_000);
    machine.write(account, 3);
    let copy = machine.copy();
    machine.write(account, 5);
    for _ in 0..2 {
        machine.clock.0.fetch_sub(200_000, std::sync::atomic::Ordering::Relaxed);
        machine.put_back(&copy);
        machine.write(account, 5);
    }
}

const BESIDE: &str = "/data/pds.known";

fn beside() -> Options {
    Options { witness_beside_path: Some(BESIDE.into()), ..options() }
}

/// Removes everything in the directory of accounts, as a volume that is not mounted does.
fn empty(disk: &SimDisk) {
    fn clear(disk: &SimDisk, directory: &Path) {
        for name in disk.list(directory).expect("listed") {
            let path = directory.join(name);
            if disk.list(&path).is_ok() {
                clear(disk, &path);
                disk.remove_directory(&path).expect("removed");
            } else {
                disk.remove(&path).expect("removed");
            }
        }
    }
    clear(disk, Path::new(DATA));
}

/// The accounts' volume was not mounted, or somebody removed `pds`: the server made an empty one without a word, whose first numbers every
/// relay refuses as ones of the future, and whose names could be those of the lost accounts.
#[test]
fn a_directory_of_accounts_that_is_gone_is_not_made_anew_without_a_word() {
    for options in [beside(), witnessed()] {
        let mut machine = Machine::new(3, options.clone());
        let account = machine.account();
        machine.server().worker.run_once();
        machine.write(account, 20);
        let Server { disk, clock, worker, .. } = machine.server.take().expect("it runs");
        worker.stop().expect("stopped");
        empty(&disk);
        let operations = disk.operations();
        let refused = try_open(&disk, &clock, options.clone(), 1).err().expect("it does not open");
        assert!(matches!(refused, OpenError::AccountsGone { .. }), "{refused}");
        let words = refused.to_string();
        for word in ["remembers 1 accounts", "nothing was made", "pds restore", "pds forget", "mount"] {
            assert!(words.contains(word), "{word}: {words}");
        }
        assert!(disk.list(Path::new(DATA)).expect("listed").is_empty(), "nothing was made in {operations} operations");
        // Its log and store are gone, and the file that says what it is stayed.
        disk.create_directory(Path::new("/aside")).expect("made");
        files::replace(&disk, &Paths::new(Path::new(DATA)).layout(), &highwater_host::layout::encode_layout(None))
            .expect("written");
        let refused = try_open(&disk, &clock, options.clone(), 2).err().expect("it does not open");
        assert!(matches!(refused, OpenError::AccountsGone { .. }), "{refused}");
        // The operator gives them up: the numbers go on above theirs.
        let held = forget(&disk, Path::new(DATA), 9, None).expect_err("there is something").to_string();
        assert!(held.contains("move the directory away"), "{held}");
        empty(&disk);
        forget(&disk, Path::new(DATA), 9, None).expect("given up");
        let mut server = Server::with(&disk, &clock, options);
        assert!(server.boot.restored.is_some(), "{:?}", server.boot);
        // It is an empty server now, which may start as often as it likes.
        server = server.restart();
        assert_eq!((server.boot.warnings.clone(), &server.boot.restored), (Vec::new(), &None));
        let next = server.account();
        let first = seqs(&server.frames())[0];
        assert!(first > machine.newest && next == account, "{first} {next:?}");
        let server = server.restart();
        assert_eq!(server.boot.warnings, Vec::<String>::new());
    }
}

/// A backup gets a log when it is opened, and its first record was of that moment: the copy counted as new, and one that was put back twice began at
/// the same number twice. Nor was a server on an old backup without the mark warned.
#[test]
fn a_backup_put_back_twice_gives_no_number_twice_and_is_known_to_be_old() {
    let mut machine = Machine::new(8, options());
    let account = machine.account();
    machine.write(account, 3);
    let Server { disk, clock, worker, host, .. } = machine.server.take().expect("it runs");
    let running = worker.spawn().expect("threads");
    let copy = Path::new("/copy/pds");
    host.backup(copy).expect("copied");
    running.stop().expect("stopped");
    let kept = Options { directory: copy.into(), ..options() };
    let mut newest = 0;
    for restore in 1..4 {
        clock.advance(600_000);
        let disk = disk.fork(restore);
        mark_restored(&disk, copy, restore, (None, None)).expect("marked");
        // It dies when the log has begun, and is started again.
        disk.stop_at(disk.operations() + 30 * restore);
        drop(try_open(&disk, &clock, kept.clone(), restore));
        disk.power_loss();
        let mut server = Server::with(&disk, &clock, kept.clone());
        for _ in 0..20 {
            server.put(account, "note", &format!("of restore {restore}"));
        }
        let seqs = seqs(&server.frames());
        let first = seqs.iter().find(|seq| **seq > 1_000_000).expect("it tells of the account");
        assert!(*first > newest, "restore {restore} begins with {first}, and {newest} was given out");
        newest = *seqs.last().expect("frames");
    }
    clock.advance(7 * 3_600_000);
    let unmarked = try_open(&disk.fork(9), &clock, kept, 9).expect("it opens");
    let warned = unmarked.boot.warnings.iter().any(|warning| warning.contains("nothing was stored"));
    assert!(warned, "{:?}", unmarked.boot);
}

/// The server was killed right after the first account was acknowledged: what remembers it was still being written beside the writer.
#[test]
fn whoever_is_told_of_the_first_account_can_rely_on_its_being_remembered() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let Server { worker, host, .. } = Server::with(&disk, &SetClock::new(), beside());
        let running = worker.spawn().expect("threads");
        host.create_account(support::new_account()).wait().expect("an account");
        assert!(exists(&disk, Path::new(BESIDE)));
        running.stop().expect("stopped");
    }
}

/// The first account is written down at once, not with the first checkpoint five minutes later.
#[test]
fn a_server_that_dies_right_after_its_first_account_is_known_to_have_had_one() {
    let mut machine = Machine::new(4, beside());
    assert!(!exists(&machine.server().disk, Path::new(BESIDE)), "a server without accounts leaves no trace");
    machine.account();
    machine.server().worker.run_once();
    let Server { disk, clock, .. } = machine.server.take().expect("it runs");
    disk.power_loss();
    empty(&disk);
    assert!(matches!(try_open(&disk, &clock, beside(), 1).err(), Some(OpenError::AccountsGone { .. })));
    // A file that nobody can read is no reason to begin anew.
    files::replace(&disk, Path::new(BESIDE), b"rubbish").expect("written");
    let refused = try_open(&disk, &clock, beside(), 2).err().expect("it does not open").to_string();
    assert!(refused.contains("does not read") && refused.contains("nobody knows"), "{refused}");
}

/// The accounts alone are put back: what lies beside them in the data directory remembers, without any setting.
#[test]
fn accounts_put_back_alone_are_noticed_and_give_no_number_twice() {
    let mut machine = Machine::new(5, beside());
    let account = machine.account();
    machine.write(account, 3);
    let older = machine.copy();
    // An account that the older copy does not have: once it is put back, nobody misses it.
    machine.account();
    machine.write(account, 5);
    // Without the mark the start warns; and what it remembers is not forgotten over it.
    let (clock, lost) = (Arc::clone(&machine.clock), machine.copy());
    let unmarked = older.fork(50);
    let known = files::read(&lost, Path::new(BESIDE)).expect("read").expect("it is there");
    files::replace(&unmarked, Path::new(BESIDE), &known).expect("written");
    for _ in 0..2 {
        let server = Server::with(&unmarked, &clock, beside());
        assert!(server.boot.warnings.iter().any(|warning| warning.contains("mark-restored")), "{:?}", server.boot);
        server.worker.stop().expect("stopped");
    }
    assert_eq!(files::read(&unmarked, Path::new(BESIDE)).expect("read"), Some(known));
    machine.put_back(&older);
    assert_eq!(machine.server().boot.warnings, Vec::<String>::new(), "it knows");
    machine.copy();
    assert_eq!(machine.server().boot.warnings, Vec::<String>::new(), "nor does the next start miss anything");
    machine.write(account, 5);
    let newer = machine.copy();
    machine.put_back(&newer);
    machine.write(account, 5);
    machine.put_back(&older);
    machine.write(account, 5);
}

/// The whole volume is put back and nothing outside remembers: the start says so. An operator who names the number that a relay knows is
/// told nothing, and is covered.
#[test]
fn a_restore_that_cannot_know_says_so_and_takes_the_operators_word() {
    let mut machine = Machine::new(6, options());
    let account = machine.account();
    machine.write(account, 3);
    let older = machine.copy();
    machine.put_back(&older);
    let untold = |machine: &mut Machine| {
        machine.server().boot.warnings.iter().filter(|warning| warning.contains("--min-seq")).count()
    };
    assert_eq!(untold(&mut machine), 1);
    machine.write(account, 5);
    let newer = machine.copy();
    machine.put_back(&newer);
    machine.write(account, 5);
    machine.seq_min = Some(machine.newest - 2);
    machine.put_back(&older);
    assert_eq!(untold(&mut machine), 0);
    machine.write(account, 5);
}
