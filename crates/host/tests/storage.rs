//! What is stored, whatever happens to the disk below it.

mod support;

use bytes::Bytes;
use highwater_disk::{Disk, OpenMode, SimDisk};
use highwater_host::export::Wanted;
use highwater_host::layout::Paths;
use highwater_host::{Action, Change, Export, Host, OpenError, ReadError, Seams, Unsettled, WriteRefused, verify};
use highwater_pds::{AccountId, Fact, Position, Status};
use highwater_repo::car;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use support::{DATA, Message, Server, SetClock, batch, options, put, record, try_open, write_of};

fn seams(disk: &SimDisk) -> Seams {
    Seams {
        disk: Arc::new(disk.clone()),
        clock: SetClock::new(),
        random: Box::new(highwater_base::random::SplitMix::new(9)),
        sealer: None,
    }
}

/// A repository's blocks, and how many bytes its archive has.
fn exported(host: &Host, account: AccountId) -> (BTreeMap<highwater_repo::Cid, Bytes>, usize) {
    let mut export = host.export(account).expect("begun");
    let (mut reader, mut blocks, mut bytes) = (car::Reader::new(), BTreeMap::new(), 0);
    while let Some(chunk) = export.chunk().expect("a chunk") {
        bytes += chunk.len();
        reader.push(&chunk);
        while let Some((cid, block)) = reader.block().expect("an archive") {
            blocks.insert(cid, block);
        }
    }
    assert_eq!(reader.finish().expect("whole"), [export.head().commit]);
    (blocks, bytes)
}

/// Source: public report 15, partial application that leaves every later write failing.
#[test]
fn a_full_disk_refuses_writes_as_a_whole_still_locks_and_takes_writes_again() {
    let mut server = Server::new(1);
    let (account, other) = (server.account(), server.account());
    let mut written = 0;
    let full = loop {
        if written == 30 {
            // What is there is all there will be.
            server.disk.set_capacity(Some(server.disk.used_bytes() + (8 << 10)));
        }
        let pending: Vec<_> = (0..3)
            .map(|n| server.host.write(account, batch(vec![put(&format!("k{}", written + n), &"z".repeat(2_000))])))
            .collect();
        server.worker.run_once();
        let answers: Vec<_> = pending.into_iter().map(|mut pending| pending.try_take().expect("an answer")).collect();
        let good = answers.iter().take_while(|answer| answer.is_ok()).count();
        written += good;
        if good < 3 {
            break answers[good..].to_vec();
        }
        assert!(written < 10_000, "the disk is full at some time");
    };
    assert_eq!(full[0], Err(WriteRefused::Unsettled(Unsettled::Full)), "after {written}");
    assert!(
        full[1..]
            .iter()
            .all(|answer| matches!(answer, Err(WriteRefused::Unsettled(Unsettled::Overtaken | Unsettled::Full))))
    );
    let (head, frames) = (server.host.head(account), server.frames());
    assert_eq!(server.text(account, &format!("k{}", written - 1)), Some(record(&"z".repeat(2_000))));
    assert_eq!(server.text(account, &format!("k{written}")), None);
    // A lock bites all the same, and is told.
    let pending = server.host.change(other, Change::Lock);
    assert_eq!(server.settle(pending), Ok(true));
    assert_eq!(server.host.head(other), Err(highwater_host::Unserved::Inactive(Status::Suspended)));
    let refused = server.try_write(account, vec![put("small", "text")]);
    assert_eq!(refused, Err(WriteRefused::Unsettled(Unsettled::Full)));
    assert_eq!(server.host.head(account), head);
    // Somebody makes room.
    server.disk.set_capacity(None);
    server.host.checkpoint_soon();
    server.worker.run_once();
    assert!(server.put(account, "again", "text").commit.is_some());
    let server = server.crash();
    let all = server.frames();
    assert_eq!(all[..frames.len()], frames[..]);
    support::check_chains(&all);
    assert_eq!(server.text(account, "again"), Some(record("text")));
}

/// Found by the simulator: about one new account in a hundred has a number that the index's table takes for one that it holds. The writer
/// took the account for one that had been left on disk, and stopped; so did every start after it, when it read the record.
#[test]
fn a_new_account_is_taken_for_none_that_is_stored() {
    let mut small = options();
    small.store.index_delta_bytes_min = 4 << 10;
    let mut server = Server::with(&SimDisk::new(11), &SetClock::new(), small);
    for _ in 0..12 {
        for _ in 0..50 {
            server.account();
        }
        server.host.checkpoint_soon();
        server.worker.run_once();
    }
    for _ in 0..50 {
        server.account();
    }
    let server = server.crash();
    assert_eq!(server.host.state(|state| state.accounts.len()), 650);
    assert!((1..=650).all(|id| server.host.record(AccountId(id), "app.example.note/a") == Ok(None)));
}

/// Found by the simulator: a write was refused because its account was locked, and the lock itself was refused in the same batch, for want
/// of space.
#[test]
fn a_refusal_that_rests_on_a_lock_which_found_no_space_is_none() {
    let mut server = Server::new(10);
    let accounts: Vec<_> = (0..64).map(|_| server.account()).collect();
    for account in &accounts {
        server.put(*account, "a", "one");
    }
    fill(&mut server, accounts[0]);
    for account in accounts {
        let lock = server.host.change(account, Change::Lock);
        let mut write = server.host.write(account, batch(vec![put("b", "two")]));
        let locked = server.settle(lock);
        let written = write.try_take().expect("an answer");
        if locked.is_err() {
            assert_eq!(written, Err(WriteRefused::Unsettled(Unsettled::Overtaken)));
            return;
        }
    }
    panic!("the disk is full at some time");
}

/// Writes until the disk is full.
fn fill(server: &mut Server, account: AccountId) {
    server.disk.set_capacity(Some(server.disk.used_bytes()));
    for n in 0..10_000 {
        if server.try_write(account, vec![put(&format!("fill{n}"), &"z".repeat(500))]).is_err() {
            return;
        }
    }
    panic!("the disk is full at some time");
}

/// An account deactivated and activated itself on a full disk until no lock found room any more.
#[test]
fn an_owner_cannot_use_up_the_room_that_is_kept_for_locks() {
    let mut server = Server::new(11);
    let (agent, others) = (server.account(), [server.account(), server.account()]);
    server.put(agent, "a", "one");
    fill(&mut server, agent);
    let toggles = [Change::Deactivate, Change::Reactivate].into_iter().cycle().take(400);
    let refused = toggles.filter(|change| {
        let pending = server.host.change(agent, *change);
        server.settle(pending).is_err()
    });
    assert!(refused.count() > 0, "there is an end to it");
    for account in others.into_iter().chain([agent]) {
        let pending = server.host.change(account, Change::Lock);
        assert_eq!(server.settle(pending), Ok(true));
        assert!(server.host.head(account).is_err());
    }
}

/// Room for 250 locks was kept whatever there was to be locked: of a server with more accounts than that, an operator could stop some.
#[test]
fn every_account_can_be_locked_on_a_full_disk() {
    let mut large = options();
    large.log.segment_bytes = 4 << 20;
    large.log.log_bytes_max = 64 << 20;
    large.log.spare_segments_max = 1;
    let mut server = Server::with(&SimDisk::new(12), &SetClock::new(), large);
    let accounts: Vec<_> = (0..220).map(|_| server.account()).collect();
    server.disk.set_capacity(Some(server.disk.used_bytes()));
    for bytes in [40_000, 400] {
        let refused = (0..10_000)
            .find(|n| server.try_write(accounts[0], vec![put(&format!("{bytes}-{n}"), &"z".repeat(bytes))]).is_err());
        assert!(refused.is_some(), "the disk is full at some time");
    }
    for account in accounts {
        let pending = server.host.change(account, Change::Lock);
        assert_eq!(server.settle(pending), Ok(true), "account {}", account.0);
        assert!(server.host.head(account).is_err());
    }
}

#[test]
fn a_lock_bites_even_if_no_frame_can_be_numbered_and_is_told_by_none() {
    let mut server = Server::new(2);
    let account = server.account();
    let pending = server.host.note(Fact::Floor(highwater_pds::sequence::SEQ_MAX));
    assert_eq!(server.settle(pending), Ok(()));
    let frames = server.frames();
    assert_eq!(server.try_write(account, vec![put("a", "b")]), Err(WriteRefused::Unsettled(Unsettled::Numbers)));
    let pending = server.host.change(account, Change::Lock);
    assert_eq!(server.settle(pending), Ok(true));
    let row = server.host.state(|state| state.accounts[&account].clone());
    assert_eq!(row.position(), Some(Position::Inactive(Status::Suspended)));
    assert_eq!(row.announced, Some(Position::Active), "the next start tells of it");
    assert_eq!(server.frames(), frames);
}

#[test]
fn a_failed_write_or_sync_stops_everything_and_a_restart_recovers() {
    use highwater_disk::sim::Operation;
    for operation in [Operation::Write, Operation::Sync] {
        let mut server = Server::new(3);
        let account = server.account();
        server.put(account, "a", "one");
        let (head, frames) = (server.host.head(account), server.frames());
        let mut live = server.host.subscribe(None).expect("subscribed");
        server.disk.fail_next(operation, "/log/");
        let refused = server.try_write(account, vec![put("b", "two")]);
        assert!(matches!(refused, Err(WriteRefused::Unsettled(Unsettled::Stopped(_)))), "{refused:?}");
        assert_eq!((server.host.head(account), server.host.ended().is_some()), (head, true));
        assert!(matches!(live.take(), Some(highwater_host::Delivery::Ended(_))));
        assert!(server.try_write(account, vec![put("c", "three")]).is_err());
        let mut server = server.crash();
        assert_eq!(server.frames()[..frames.len()], frames[..]);
        server.put(account, "d", "four");
        support::check_chains(&server.frames());
    }
}

#[test]
fn writing_blocks_together_and_giving_up_old_frames_change_no_answer() {
    let mut small = options();
    small.checkpoint_bytes = 64 << 10;
    small.log.segment_bytes = 2 << 20;
    small.log.log_bytes_max = 64 << 20;
    let mut server = Server::with(&SimDisk::new(4), &SetClock::new(), small);
    let account = server.account();
    let mut model = BTreeMap::new();
    let mut random = highwater_base::random::SplitMix::new(4);
    use highwater_base::Random;
    let (mut compacted, mut told) = (0, false);
    for round in 0..60u64 {
        let mut writes = Vec::new();
        for n in 0..20 {
            let rkey = format!("k{:03}", (random.below(15) * 20 + n) % 300);
            let text = format!("{round} {}", "q".repeat(random.below(4_000) as usize));
            if random.below(4) == 0 {
                model.remove(&rkey);
                writes.push(write_of(Action::Remove, &rkey, None));
            } else {
                model.insert(rkey.clone(), record(&text));
                writes.push(put(&rkey, &text));
            }
        }
        server.write(account, writes);
        server.clock.advance(3 * 3_600_000);
        (0..4).for_each(|_| assert!(server.worker.run_once() || server.host.ended().is_none()));
        let blocks = server.host.state(|state| state.accounts[&account].blocks);
        compacted += u64::from(blocks.front > 0 && blocks.compacted_bytes > 0);
        told |= server.host.status().compactions > 0;
        if round % 15 == 14 {
            server = if round % 2 == 0 { server.crash() } else { server.restart() };
        }
        if round % 10 == 9 {
            let (blocks, _) = exported(&server.host, account);
            assert!(model.values().all(|record| blocks.values().any(|block| block == record)));
            let list = highwater_host::List {
                collection: "app.example.note".into(),
                behind: None,
                limit: 1_000,
                bytes_max: usize::MAX,
                ascending: true,
            };
            let listed = server.host.list(account, &list).expect("listed").records.into_iter();
            let listed: BTreeMap<_, _> = listed.map(|row| (row.rkey, row.record)).collect();
            assert_eq!(listed, model, "round {round}");
            support::check_chains(&server.frames());
        }
    }
    assert!(compacted > 5 && told, "{compacted}, and the status says so: {told}");
    let blocks = server.host.state(|state| state.accounts[&account].blocks);
    assert!(blocks.end - blocks.front < 3 * blocks.compacted_bytes + (2 << 20), "{blocks:?}");
    let disk = server.disk.clone();
    let kept = server.host.options().clone();
    server.worker.stop().expect("stopped");
    drop(server.host);
    let verified = verify(kept, seams(&disk)).expect("it opens");
    assert_eq!((verified.faults.clone(), verified.records), (Vec::new(), model.len() as u64));
}

#[test]
fn an_export_keeps_its_blocks_while_the_repository_is_written_together() {
    let mut small = options();
    small.checkpoint_bytes = 64 << 10;
    small.log.segment_bytes = 4 << 20;
    let mut server = Server::with(&SimDisk::new(5), &SetClock::new(), small);
    let account = server.account();
    for n in 0..40 {
        server.put(account, &format!("k{n:02}"), &"w".repeat(20_000));
    }
    let (before, bytes) = exported(&server.host, account);
    assert!(bytes > 800_000);
    let mut slow = server.host.export(account).expect("begun");
    let mut joined = server.host.export(account).expect("begun");
    let first = slow.chunk().expect("a chunk").expect("a first one");
    assert_eq!(joined.chunk().expect("a chunk").expect("a first one").as_ptr(), first.as_ptr(), "they are one");
    for round in 0..3 {
        for n in 0..40 {
            server.put(account, &format!("k{n:02}"), &format!("{round}{}", "v".repeat(20_000)));
        }
    }
    let mut reader = car::Reader::new();
    reader.push(&first);
    while let Some(chunk) = slow.chunk().expect("a chunk") {
        reader.push(&chunk);
    }
    let mut blocks = BTreeMap::new();
    while let Some((cid, block)) = reader.block().expect("an archive") {
        blocks.insert(cid, block);
    }
    assert_eq!(blocks, before);
    drop((slow, joined));
    server.put(account, "k00", "last");
    (0..4).for_each(|_| assert!(server.worker.run_once() || server.host.ended().is_none()));
    let blocks = server.host.state(|state| state.accounts[&account].blocks);
    assert!(blocks.front > 0, "it was put off, not given up: {blocks:?}");
    assert_eq!(exported(&server.host, account).0.len(), before.len() + 1);
}

/// One who took nothing any more had all that a faster one took kept in memory: the whole archive, for as long as it stayed.
#[test]
fn an_export_that_one_reader_leaves_lying_is_not_kept_for_it_and_still_whole_when_it_comes_back() {
    let mut small = options();
    small.export_kept_bytes_max = 512 << 10;
    small.log.segment_bytes = 4 << 20;
    let mut server = Server::with(&SimDisk::new(9), &SetClock::new(), small);
    let account = server.account();
    for n in 0..150 {
        server.put(account, &format!("k{n:03}"), &format!("{n}{}", "w".repeat(20_000)));
    }
    let mut slow = server.host.export(account).expect("begun");
    let mut fast = server.host.export(account).expect("begun");
    let mut slowly = vec![slow.chunk().expect("a chunk").expect("a first one")];
    let taken: Vec<Bytes> = std::iter::from_fn(|| fast.chunk().expect("a chunk")).collect();
    assert_eq!(slowly[0].as_ptr(), taken[0].as_ptr(), "they are one");
    let kept: usize = taken[1..].iter().filter(|chunk| !chunk.is_unique()).map(Bytes::len).sum();
    assert!(taken.concat().len() > 3_000_000 && kept <= 512 << 10, "{kept} bytes are kept");
    slowly.extend(std::iter::from_fn(|| slow.chunk().expect("a chunk")));
    assert_eq!(slowly, taken);
    assert_eq!(
        slowly.last().map(|chunk| chunk.as_ptr()),
        taken.last().map(|chunk| chunk.as_ptr()),
        "who has caught up shares again"
    );
}

/// One reader of many repositories, who took nothing, held all places, and nobody else exported anything. Whoever joined another's
/// export and stayed in it held that one's place.
#[test]
fn exports_that_one_reader_holds_leave_places_for_others() {
    let mut few = options();
    (few.exports_max, few.export_wait_ms_max) = (4, 0);
    let mut server = Server::with(&SimDisk::new(8), &SetClock::new(), few);
    let accounts: Vec<_> = (0..6).map(|_| server.account()).collect();
    let begin = |account: usize, address: u8| {
        let wanted = Wanted { since: None, whose: std::net::Ipv4Addr::new(192, 0, 2, address).into() };
        server.host.export_wanted(accounts[account], wanted)
    };
    let mut greedy: Vec<_> = (0..6).map(|account| begin(account, 1)).collect();
    let busy = |export: &Result<Export, ReadError>| matches!(export, Err(ReadError::Busy));
    assert_eq!(greedy.iter().map(busy).collect::<Vec<_>>(), [false, false, true, true, true, true]);
    let other = begin(2, 2).expect("another reader's");
    assert!(begin(3, 2).is_err(), "it has as many as are left");
    // Whoever stays in an export that another one began holds its place from then on.
    let joined = begin(0, 3).expect("it is under way");
    greedy.clear();
    let again = begin(4, 1).expect("it has given its places back");
    assert!(begin(5, 3).is_err(), "the one that it joined counts for it");
    drop(joined);
    let fresh = begin(5, 3).expect("a place");
    drop((other, again, fresh));
    assert_eq!((0..2).filter_map(|account| begin(account, 1).ok()).collect::<Vec<_>>().len(), 2, "all are free");
}

/// The checkpoint that gives the log back waited behind the compaction, which waited for room in the log: an account with more blocks
/// than fit there was never written together, and stopped all writes at each attempt.
#[test]
fn an_account_with_more_blocks_than_the_log_holds_is_written_together() {
    let mut small = options();
    small.log.log_bytes_max = 4 << 20;
    small.checkpoint_bytes = 1 << 30;
    let log_bytes_max = small.log.log_bytes_max;
    let mut server = Server::with(&SimDisk::new(31), &SetClock::new(), small);
    let account = server.account();
    let Server { worker, host, .. } = server;
    let running = worker.spawn().expect("threads");
    let is_compacted = || host.state(|state| state.accounts[&account].blocks.compacted_bytes) > log_bytes_max;
    for n in 0..4_000 {
        let one = batch(vec![put(&format!("k{}", n % 300), &format!("{n}{}", "x".repeat(20_000)))]);
        // What others write at such times is written at leisure: the checkpoint has to come first.
        while host.status().log.log_bytes > log_bytes_max / 2 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        host.write(account, one).wait().expect("written");
        if is_compacted() {
            break;
        }
    }
    assert!(is_compacted(), "{:?}", host.state(|state| state.accounts[&account].blocks));
    running.stop().expect("stopped");
}

#[test]
fn a_copy_of_a_running_server_opens_verifies_and_goes_on() {
    let mut server = Server::new(6);
    let account = server.account();
    for n in 0..30 {
        server.put(account, &format!("k{n}"), &"u".repeat(1_000));
    }
    let Server { disk, clock, worker, host, .. } = server;
    let running = worker.spawn().expect("threads");
    let to = Path::new("/copy/pds");
    let copied = host.backup(to).expect("copied");
    assert!(copied.files >= 2 && copied.bytes > 30_000, "{copied:?}");
    assert!(host.backup(to).is_err(), "the folder is not empty");
    let frames = support::drain(&mut host.subscribe(Some(0)).expect("subscribed"));
    host.write(account, batch(vec![put("later", "text")])).wait().expect("written");
    let mut kept = options();
    kept.directory = to.into();
    let mut shared = options();
    assert!(verify(shared.clone(), seams(&disk)).is_err(), "the server that runs has it open");
    running.stop().expect("stopped");
    drop(host);
    for round in 0..2 {
        let verified = verify(kept.clone(), seams(&disk)).expect("it opens");
        assert_eq!((verified.faults.clone(), verified.records), (Vec::new(), 30), "round {round}");
    }
    let mut copy = try_open(&disk, &clock, kept.clone(), 1).expect("it opens");
    assert_eq!(copy.frames(), frames);
    copy.put(account, "later", "than the copy");
    let Server { worker, .. } = copy;
    worker.stop().expect("stopped");
    let copy = try_open(&disk, &clock, kept, 2).expect("it opens again");
    assert_eq!(copy.text(account, "later"), Some(record("than the copy")));
    shared.directory = DATA.into();
    assert_eq!(verify(shared, seams(&disk)).expect("it opens").records, 31);
}

#[test]
fn files_of_different_times_are_told_from_a_whole_directory_and_left_alone() {
    let mut server = Server::new(7);
    let account = server.account();
    server.put(account, "a", "one");
    let server = server.restart();
    let paths = Paths::new(Path::new(DATA));
    let old = server.disk.fork(1);
    let mut server = server;
    for n in 0..20 {
        server.put(account, &format!("k{n}"), "later");
    }
    let server = server.restart();
    let new = server.disk.clone();
    drop((server.worker, server.host));
    // The store of now with the log of before, as a copy of single files leaves them.
    let mixed = old.fork(2);
    for (disk, folder) in [(&new, paths.store())] {
        for name in mixed.list(&folder).expect("listed") {
            mixed.remove(&folder.join(name)).expect("removed");
        }
        for (path, bytes) in disk.files().into_iter().filter(|(path, _)| path.starts_with(&folder)) {
            let file = mixed.open(&path, OpenMode::Create).expect("made");
            file.write_at(&bytes, 0).expect("written");
        }
    }
    let before = mixed.files();
    let refused = try_open(&mixed, &SetClock::new(), options(), 1).err().expect("it is refused");
    assert!(matches!(refused, OpenError::CopiedLive { applied, log_end } if applied > log_end), "{refused}");
    assert!(refused.to_string().contains("highwater pds backup"));
    let store = |files: Vec<(std::path::PathBuf, Vec<u8>)>| -> Vec<_> {
        files.into_iter().filter(|(path, _)| path.starts_with(paths.store())).collect()
    };
    assert_eq!(store(mixed.files()), store(before));
    // A log that is gone is no copy.
    let gone = new.fork(3);
    for name in gone.list(&paths.log()).expect("listed") {
        gone.remove(&paths.log().join(name)).expect("removed");
    }
    gone.remove_directory(&paths.log()).ok();
    let refused = try_open(&gone, &SetClock::new(), options(), 1).err().expect("it is refused");
    assert!(matches!(refused, OpenError::LogMissing(_) | OpenError::CopiedLive { .. }), "{refused}");
}

#[test]
fn damage_in_the_log_is_refused_and_said_where() {
    let mut server = Server::new(8);
    let account = server.account();
    for n in 0..200 {
        server.put(account, &format!("k{n}"), &"t".repeat(1_000));
    }
    let disk = server.disk.clone();
    drop((server.worker, server.host));
    let log = Paths::new(Path::new(DATA)).log();
    let segment = disk.list(&log).expect("listed").into_iter().find(|name| name.ends_with(".segment"));
    let segment = log.join(segment.unwrap_or_else(|| panic!("{:?}", disk.list(&log))));
    (20_000..24_000).step_by(50).for_each(|offset| disk.flip_bit(&segment, offset).expect("flipped"));
    let refused = try_open(&disk, &SetClock::new(), options(), 1).err().expect("it is refused");
    assert!(matches!(refused, OpenError::LogDamaged { .. }), "{refused}");
    assert!(refused.to_string().contains("Nothing was changed"));
}

/// Source: public report 5, a stream that begins low because its last file is empty.
#[test]
fn an_empty_last_segment_and_a_lost_side_file_lower_no_number() {
    let mut server = Server::new(9);
    let account = server.account();
    server.put(account, "a", "one");
    let newest = server.host.status().seq;
    let server = server.restart().restart();
    let (disk, clock) = (server.disk.clone(), Arc::clone(&server.clock));
    let kept = server.host.options().clone();
    drop((server.worker, server.host));
    disk.remove(&Paths::new(Path::new(DATA)).floor()).expect("removed");
    let mut server = Server::with(&disk, &clock, kept);
    server.put(account, "b", "two");
    let last = Message::of(server.frames().last().expect("a frame")).seq();
    assert_eq!(last, newest + 1);
}

#[test]
fn what_is_not_there_is_told_from_what_cannot_be_read() {
    let mut server = Server::new(10);
    let account = server.account();
    server.put(account, "a", "one");
    let missing = highwater_repo::Cid::of(highwater_repo::Codec::DagCbor, b"nothing");
    assert_eq!(server.host.blocks(account, &[missing]), Err(ReadError::NoBlock(missing)));
    let head = server.host.head(account).expect("a head");
    assert_eq!(server.host.blocks(account, &[head.commit, head.data]).expect("blocks").len(), 2);
    assert!(matches!(server.host.record(AccountId(77), "a/b"), Err(ReadError::Account(_))));
}

#[test]
fn a_part_of_blocks_written_together_that_is_refused_takes_the_rest_with_it() {
    // Segments in which a record fits, but not with so much as such a part already has.
    let mut server = Server::new(11);
    let account = server.account();
    for n in 0..20 {
        server.put(account, &format!("a{n:02}"), &format!("{n}{}", "s".repeat(2_000)));
    }
    for n in 0..20 {
        server.put(account, &format!("l{n:02}"), &format!("{n}{}", "l".repeat(215_000)));
        server.put(account, &format!("l{n:02}"), &format!("{n}{}", "m".repeat(215_000)));
        server.worker.run_once();
    }
    let refused = server.host.status().turns_refused;
    assert!(refused > 0);
    for n in 0..20 {
        assert_eq!(server.text(account, &format!("l{n:02}")), Some(record(&format!("{n}{}", "m".repeat(215_000)))));
    }
    server.put(account, "after", "all");
    assert_eq!(exported(&server.crash().host, account).0.values().filter(|block| block.len() > 1_900).count(), 40);
}
