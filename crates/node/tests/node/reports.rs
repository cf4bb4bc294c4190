//! Reports about comparable servers, each kept as a test that tells its story, on a simulated disk.

use crate::harness::{Host, append, create, delete};
use highwater_base::Random;
use highwater_base::random::SplitMix;
use highwater_node::shard::Answer;
use highwater_stream::Outcome;
use std::collections::BTreeMap;

/// A life of a node: writes that make a small log roll many times, each acknowledged before the next but for the last
/// ones, which the power takes together with the process.
struct Life<'a> {
    host: &'a mut Host,
    random: &'a mut SplitMix,
    /// What was acknowledged: a stream's bytes.
    streams: &'a mut BTreeMap<String, Vec<u8>>,
}

impl Life<'_> {
    fn step(&mut self, number: u64) {
        let path = format!("s{}", self.random.below(6));
        match (self.random.below(10), self.streams.contains_key(&path)) {
            (_, false) => {
                self.host.create(&path);
                self.streams.insert(path, Vec::new());
            }
            (0, true) => {
                assert_eq!(self.host.done(&path, delete()), Outcome::Deleted);
                self.streams.remove(&path);
            }
            (1, true) => {
                self.host.node().checkpoint();
            }
            (_, true) => {
                let body = self.body(number);
                self.host.append(&path, &body);
                self.streams.get_mut(&path).expect("it is there").extend(body);
            }
        }
    }

    /// Up to a third of a segment.
    fn body(&mut self, number: u64) -> Vec<u8> {
        let length = 1 + self.random.below(40_000);
        (0..length).map(|i| (i as u8) ^ (number as u8)).collect()
    }

    /// Sends an append and takes the power away before it is durable; what it would have left.
    fn last_words(&mut self) -> Option<(String, Vec<u8>)> {
        let path = self.streams.keys().next().cloned()?;
        let body = self.body(255);
        let (token, input) = self.host.proposal(&path, append(&body));
        self.host.node().turn([input]);
        assert!(self.host.answer(token).is_none(), "acknowledged before it was durable");
        Some((path, body))
    }
}

/// electric #4675, three bugs: a recovery over several segments dropped acknowledged records and cut files; an
/// acknowledged DELETE came back after a crash; a torn tail that was never acknowledged was shown.
#[test]
fn many_rolls_of_a_small_log_and_many_power_losses_drop_nothing_and_bring_nothing_back() {
    let mut rolled = 0;
    for seed in 0..12 {
        let (mut host, mut random) = (Host::serving(seed), SplitMix::new(!seed));
        let mut streams = BTreeMap::new();
        for number in 0..5 {
            let mut life = Life { host: &mut host, random: &mut random, streams: &mut streams };
            for step in 0..40 {
                life.step(step);
            }
            let unacknowledged = life.last_words();
            rolled += host.node().log_bytes() / host.config.wal_segment_bytes;
            host.power_off();
            host.open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            check(&mut host, &mut streams, unacknowledged, &format!("seed {seed}, after life {number}"));
        }
    }
    assert!(rolled > 100, "the log rolled only {rolled} times");
}

/// Every stream holds what was acknowledged, and no other stream is there; a last append is there whole or not at all.
fn check(host: &mut Host, streams: &mut BTreeMap<String, Vec<u8>>, last: Option<(String, Vec<u8>)>, what: &str) {
    for path in (0..6).map(|number| format!("s{number}")) {
        let found = host.content(&path);
        let acknowledged = streams.get(&path).cloned();
        if found == acknowledged {
            continue;
        }
        let (last_path, body) = last.as_ref().unwrap_or_else(|| panic!("{what}: {path} is not as acknowledged"));
        let whole = acknowledged.map(|bytes| [bytes.as_slice(), body].concat());
        assert!(*last_path == path && found == whole, "{what}: {path} holds {:?} bytes", found.map(|f| f.len()));
        streams.insert(path, found.expect("it equals what is there"));
    }
}

/// electric #4703: 300 streams that were created at once waited for each other, about 4 ms each, one sync after the
/// other.
#[test]
fn three_hundred_streams_created_at_once_share_their_syncs() {
    let mut host = Host::serving(5);
    let inputs: Vec<_> = (0..300)
        .map(|number| {
            let token = host.issue();
            host.proposal(&format!("new/{number}"), create(token, b"")).1
        })
        .collect();
    let before = host.disk.operations();
    host.node().turn(inputs);
    host.node().sync();
    let operations = host.disk.operations() - before;
    let answers = host.node().answers();
    assert_eq!(answers.len(), 300);
    for (_, answer) in answers {
        let Answer::Write(Ok(answer)) = answer else { panic!("{answer:?}") };
        assert!(matches!(answer.result, Ok(Outcome::Created(_))), "{answer:?}");
    }
    assert!(operations <= 6, "{operations} operations on the disk for one batch");
    host.power_off();
    host.open().expect("recovers");
    for number in 0..300 {
        assert_eq!(host.content(&format!("new/{number}")).as_deref(), Some(&b""[..]), "new/{number}");
    }
}

/// s2 #669 and #670: acknowledged data was gone after a crash with a local folder, and the database did not open again.
#[test]
fn after_any_power_loss_the_node_opens_and_has_what_it_acknowledged() {
    for seed in 0..40 {
        let mut host = Host::serving(seed);
        host.create("s");
        let mut acknowledged = Vec::new();
        // The disk stops in the middle of something: an append, a sync, a checkpoint, a new segment.
        host.disk.stop_at(host.disk.operations() + 1 + seed * 3);
        for number in 0..200u32 {
            let body = vec![number as u8; 3_000];
            match host.try_write("s", append(&body)) {
                Some(Ok(_)) => acknowledged.extend(body),
                _ => break,
            }
            host.node().checkpoint();
        }
        assert!(host.disk.stopped(), "seed {seed}: the power never failed");
        host.power_off();
        host.open().unwrap_or_else(|error| panic!("seed {seed}: it does not open: {error}"));
        let found = host.content("s").unwrap_or_else(|| panic!("seed {seed}: the stream is gone"));
        assert!(found.starts_with(&acknowledged), "seed {seed}: {} of {}", found.len(), acknowledged.len());
        assert!(found.len() - acknowledged.len() <= 3_000, "seed {seed}: more than was sent");
        host.append("s", b"goes on");
    }
}
