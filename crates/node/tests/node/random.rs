//! Random writes under random trouble against a model of three lines: what a stream holds.
//!
//! A write without an answer is repeated under its key until it has one, as a client would; a repeat that applied a
//! second time, or one that never applied, shows in the bytes.

use crate::harness::{Host, config, config_cold, create, delete, keyed};
use highwater_base::Random;
use highwater_base::random::SplitMix;
use highwater_node::{GroupState, Unavailable};
use highwater_stream::{Operation, Outcome, Refusal};
use std::collections::BTreeMap;

const PATHS: [&str; 4] = ["a", "b/c", "d", "e/f/g"];

/// A stream: its bytes and the next sequence number of its one writer.
#[derive(Debug, Default, Clone)]
struct Stream {
    bytes: Vec<u8>,
    seq: u64,
}

struct World {
    host: Host,
    random: SplitMix,
    streams: BTreeMap<&'static str, Stream>,
    what: String,
}

impl World {
    fn new(seed: u64) -> Self {
        let what = format!("seed {seed}");
        // Every other world keeps no stream in memory for longer than it must.
        let mut host = Host::with(seed, if seed.is_multiple_of(2) { config_cold() } else { config() });
        host.open().expect("an empty disk is initialised");
        Self { host, random: SplitMix::new(!seed), streams: BTreeMap::new(), what }
    }

    fn step(&mut self) {
        let path = PATHS[self.random.below(PATHS.len() as u64) as usize];
        match (self.random.below(20), self.streams.contains_key(path)) {
            (0..=11, true) => self.append(path),
            (0..=11, false) => {
                self.until_answered(path, |host| {
                    let token = host.issue();
                    create(token, b"")
                });
                self.streams.insert(path, Stream::default());
            }
            (12, true) => {
                self.until_answered(path, |_| delete());
                self.streams.remove(path);
            }
            (12 | 13, _) => self.read(path),
            (14 | 15, _) => {
                self.host.node().checkpoint();
            }
            (16, _) => {
                self.host.node().pass(300);
                self.host.node().sync();
            }
            (17, _) => self.crash_soon(),
            (18, _) => self.restart(self.random.clone().below(2) == 0),
            _ => self.fill_for_a_while(),
        }
    }

    fn append(&mut self, path: &'static str) {
        let length = match self.random.below(4) {
            0 => self.random.below(40_000),
            _ => 1 + self.random.below(600),
        };
        let fill = self.random.next_u64() as u8;
        let body: Vec<u8> = (0..length.max(1)).map(|i| fill ^ (i as u8)).collect();
        let seq = self.streams[path].seq;
        self.until_answered(path, |_| keyed(Some(("p", 1, seq)), &body, false));
        let stream = self.streams.get_mut(path).expect("it is there");
        stream.bytes.extend(body);
        stream.seq += 1;
    }

    /// Repeats a write until it is answered for good, through crashes and full disks.
    fn until_answered(&mut self, path: &str, operation: impl Fn(&mut Host) -> Operation) {
        for attempt in 0..20 {
            let operation = operation(&mut self.host);
            let deletes = matches!(operation, Operation::Delete { .. });
            match self.host.try_write(path, operation) {
                Some(Ok(answer)) => match answer.result {
                    Ok(Outcome::Evicted { .. }) | Err(_) if !(deletes && attempt > 0) => {
                        panic!("{}: {path}: {answer:?}", self.what)
                    }
                    Ok(_) | Err(Refusal::StreamNotFound) => return,
                    Err(other) => panic!("{}: {path}: {other:?}", self.what),
                },
                Some(Err(Unavailable::WalDiskPressure)) | None if !self.host.disk.stopped() => self.make_room(),
                Some(Err(_)) | None => self.restart(true),
            }
        }
        panic!("{}: {path}: a write was never answered", self.what);
    }

    fn make_room(&mut self) {
        self.host.disk.set_capacity(None);
        for _ in 0..15 {
            self.host.node().pass(100);
            self.host.node().sync();
            self.host.node().checkpoint();
        }
    }

    fn crash_soon(&mut self) {
        let at = self.host.disk.operations() + 1 + self.random.below(12);
        self.host.disk.stop_at(at);
    }

    fn fill_for_a_while(&mut self) {
        let room = self.random.below(200 << 10);
        let used = self.host.disk.used_bytes();
        self.host.disk.set_capacity(Some(used + room));
    }

    fn restart(&mut self, power: bool) {
        if power {
            self.host.power_off()
        } else {
            self.host.kill()
        }
        self.host.disk.set_capacity(None);
        self.host.open().unwrap_or_else(|error| panic!("{}: {error}", self.what));
        for group in self.host.node().core().status() {
            assert_eq!(group.state, GroupState::Serving, "{}: {group:?}", self.what);
        }
        self.check();
    }

    fn read(&mut self, path: &str) {
        if self.host.disk.stopped() {
            return self.restart(true);
        }
        assert_eq!(self.host.node().failed(), None, "{}", self.what);
        let expected = self.streams.get(path).map(|s| s.bytes.clone());
        assert_eq!(self.host.content(path), expected, "{}: {path}", self.what);
    }

    /// Acknowledged bytes are there, and behind them at most one write that was never answered. Called where such a
    /// write may be on its way, which is repeated afterwards.
    fn check(&mut self) {
        for path in PATHS {
            let Some(found) = self.host.content(path) else { continue };
            let expected = self.streams.get(path).map_or(&[][..], |s| &s.bytes);
            assert!(found.starts_with(expected), "{}: {path} lost bytes", self.what);
        }
    }
}

fn run(seed: u64, steps: u32) -> u64 {
    let mut world = World::new(seed);
    for _ in 0..steps {
        world.step();
    }
    world.restart(true);
    for path in PATHS {
        world.read(path);
    }
    world.host.disk.trace_hash()
}

#[test]
fn random_trouble_loses_nothing_and_applies_nothing_twice() {
    for seed in 0..40 {
        run(seed, 120);
    }
}

#[test]
fn random_trouble_is_the_same_trouble_for_the_same_seed() {
    assert_eq!(run(77, 120), run(77, 120));
}
