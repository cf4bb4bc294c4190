//! Storage in the long run: damage is found and told, and space comes back.

use crate::harness::{Host, append, config, delete};
use highwater_base::random::SplitMix;
use highwater_base::{Offset, Random};
use highwater_disk::{Disk, OpenMode};
use highwater_node::shard::{Answer, Input};
use highwater_node::{Config, GroupStatus};
use highwater_store::ReadError;
use highwater_stream::ReadFrom;
use std::path::Path;

/// Lets everything happen that is due, compactions too.
fn settle(host: &mut Host) {
    for _ in 0..12 {
        host.node().pass(100);
        host.node().sync();
        host.node().checkpoint();
    }
}

fn groups(host: &mut Host) -> Vec<GroupStatus> {
    host.node().core().status()
}

#[test]
fn damage_is_found_with_its_stream_and_offsets_and_only_reads_of_it_fail() {
    let mut host = Host::serving(1);
    for path in ["hit", "spared", "elsewhere"] {
        host.create(path);
        host.append(path, &[7; 30_000]);
        host.append(path, &[8; 30_000]);
    }
    settle(&mut host);
    assert_eq!(host.node().scrub().faults, []);
    let before = host.node().scrub();
    assert!(before.last.is_some_and(|pass| pass.bytes >= 180_000), "{before:?}");
    // The first group's data file; its first block is the first bytes of one of the three streams.
    let file = Path::new("/data/store/g0/data-00000001");
    host.disk.flip_bit(file, 4096 + 500).expect("a data file");
    let status = host.node().scrub();
    let [fault] = &status.faults[..] else { panic!("{status:?}") };
    assert_eq!((fault.group, fault.file.as_str(), fault.position), (0, "/data/store/g0/data-00000001", 4096));
    assert_eq!((fault.from, fault.to), (Some(0), Some(60_000)));
    let hit = fault.stream.clone().expect("its stream is named");
    for path in ["hit", "spared", "elsewhere"] {
        let token = host.token();
        let request = Host::read_request(path, ReadFrom::At(Offset(0)));
        let Some(Answer::Read(Ok(Ok(located)))) = host.ask(token, Input::Read { token, request }) else {
            panic!("{path} is located")
        };
        match host.node().fetch(located) {
            Err(ReadError::Damaged { position, .. }) => assert_eq!((path, position), (hit.as_str(), 4096)),
            answer => {
                assert_eq!(answer.expect("readable").body[..30_000], [7; 30_000]);
                assert_ne!(path, hit, "damaged bytes were served");
            }
        }
    }
    // The damaged stream takes writes, and gives what is sound.
    host.append(&hit, b"more");
    let request = Host::read_request(&hit, ReadFrom::At(Offset(60_000)));
    let answer = host.try_read(request).expect("answered").expect("serves").expect("readable");
    assert_eq!(&answer.body[..], b"more");
    // Deleting it takes the damage away.
    host.done(&hit, delete());
    settle(&mut host);
    for path in ["hit", "spared", "elsewhere"].into_iter().filter(|path| *path != hit) {
        (0..3).for_each(|_| {
            host.append(path, &[1; 30_000]);
        });
    }
    settle(&mut host);
    assert_eq!(host.node().scrub().faults, []);
}

#[test]
fn a_damaged_index_is_told_before_the_restart_that_would_refuse_it() {
    let mut host = Host::serving(1);
    host.create("s");
    host.append("s", &[7; 60_000]);
    settle(&mut host);
    let name = (0..2).map(|group| format!("/data/store/g{group}/index-0000000000000001"));
    let longest = name.max_by_key(|name| host.disk.open(Path::new(name), OpenMode::Read).unwrap().length().unwrap());
    let index = longest.expect("two groups");
    host.disk.flip_bit(Path::new(&index), 20).expect("an index");
    let status = host.node().scrub();
    let [fault] = &status.faults[..] else { panic!("{status:?}") };
    assert_eq!((&fault.file, &fault.stream), (&index, &None));
    assert_eq!(host.content("s").map(|content| content.len()), Some(60_000));
}

/// Public report S16 (Ursula 107 and 111: log and journal never shrink, whatever is deleted). Here streams come, grow and
/// go for a long time, and neither the log nor the data files keep more than a small multiple of what lives.
#[test]
fn log_and_journal_never_shrink_is_not_our_story() {
    let small = highwater_store::Options { file_bytes_max: 256 << 10, ..Default::default() };
    let mut host = Host::with(3, Config { store: small, ..config() });
    host.open().expect("an empty disk");
    let (mut random, mut alive, mut written, mut highest) = (SplitMix::new(5), Vec::new(), 0u64, 0);
    for round in 0..300u32 {
        let path = format!("s{round}");
        host.create(&path);
        alive.push((path, 0u64));
        for _ in 0..4 {
            let index = random.next_u64() as usize % alive.len();
            let length = 1 + random.next_u64() % 12_000;
            let (path, bytes) = &mut alive[index];
            let path = path.clone();
            *bytes += length;
            written += length;
            host.done(&path, append(&vec![round as u8; length as usize]));
        }
        while alive.len() > 12 {
            // The oldest few live on, so that no file dies whole by itself.
            let index = 3 + random.next_u64() as usize % (alive.len() - 3);
            let (path, _) = alive.remove(index);
            host.done(&path, delete());
        }
        settle(&mut host);
        if round > 60 {
            let live: u64 = alive.iter().map(|(_, bytes)| bytes).sum();
            // The log's bound, a file that is written on and one that was just left for each of two groups, and indexes.
            let bound = 2 * live + (2 << 20) + 4 * (256 << 10) + (128 << 10);
            assert!(host.disk.used_bytes() < bound, "round {round}: {} of {bound}", host.disk.used_bytes());
            highest = highest.max(host.disk.used_bytes());
        }
    }
    assert!(written > highest, "{written} bytes were written, {highest} on disk: the soak is long enough");
    let compacted: u64 = groups(&mut host).iter().map(|group| group.storage.compacted).sum();
    assert!(compacted > 0 && compacted < written, "{compacted} bytes moved for {written} written");
    for group in groups(&mut host) {
        let storage = group.storage;
        assert!(storage.dead <= storage.files && storage.live <= storage.files && storage.index > 0, "{storage:?}");
    }
    host.power_off();
    host.open().expect("recovers");
    for (path, bytes) in alive {
        assert_eq!(host.content(&path).map(|content| content.len() as u64), Some(bytes), "{path}");
    }
}
