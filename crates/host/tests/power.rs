//! Power goes at every operation of the disk, and nothing that anybody saw is lost.

mod support;

use bytes::Bytes;
use highwater_disk::SimDisk;
use highwater_host::{Change, Options, Pending, Subscription};
use highwater_pds::AccountId;
use std::collections::BTreeSet;
use std::sync::Arc;
use support::{Message, Server, SetClock, batch, check_chains, put, record, seqs, try_open};

/// What others know of a run.
#[derive(Default)]
struct Seen {
    /// Frames that a subscriber got.
    frames: Vec<Bytes>,
    /// Writes that were acknowledged.
    written: Vec<(AccountId, String)>,
    accounts: Vec<AccountId>,
}

fn small() -> Options {
    let mut options = support::options();
    // A checkpoint every few turns, and a log of several segments.
    options.checkpoint_bytes = 12 << 10;
    options.log.segment_bytes = 64 << 10;
    options
}

/// Drives the writer until an answer is there, or the disk is dead.
fn settle<T>(server: &mut Server, mut pending: Pending<T>, seen: &mut Seen, live: &mut Subscription) -> Option<T> {
    for _ in 0..20 {
        server.worker.run_once();
        while let Some(highwater_host::Delivery::Frames(frames)) = live.take() {
            seen.frames.extend(frames);
        }
        if let Some(answer) = pending.try_take() {
            return Some(answer);
        }
    }
    None
}

/// Some of everything, for as long as the disk lives.
fn run(server: &mut Server, seen: &mut Seen) {
    let mut live = server.host.subscribe(None).expect("subscribed");
    for _ in 0..2 {
        let pending = server.host.create_account(support::new_account());
        match settle(server, pending, seen, &mut live) {
            Some(Ok(account)) => seen.accounts.push(account),
            _ => return,
        }
    }
    for round in 0..8 {
        server.clock.advance(10);
        for account in seen.accounts.clone() {
            let pending: Vec<_> = (0..3)
                .map(|n| (format!("r{round}n{n}"), n))
                .map(|(rkey, _)| (rkey.clone(), server.host.write(account, batch(vec![put(&rkey, &"x".repeat(300))]))))
                .collect();
            for (rkey, pending) in pending {
                match settle(server, pending, seen, &mut live) {
                    Some(Ok(_)) => seen.written.push((account, rkey)),
                    _ => return,
                }
            }
        }
        for change in [Change::Lock, Change::Lift].into_iter().filter(|_| round == 4) {
            let pending = server.host.change(seen.accounts[0], change);
            if !matches!(settle(server, pending, seen, &mut live), Some(Ok(true))) {
                return;
            }
        }
    }
}

fn check(server: &mut Server, seen: &Seen) {
    let frames = server.frames();
    let known: BTreeSet<&Bytes> = frames.iter().collect();
    for frame in &seen.frames {
        assert!(known.contains(frame), "a frame that was seen is gone: {:?}", Message::of(frame));
    }
    let locked: Vec<_> = seen.accounts.iter().copied().filter(|account| server.host.head(*account).is_err()).collect();
    for account in &locked {
        let pending = server.host.change(*account, Change::Lift);
        assert_eq!(server.settle(pending), Ok(true));
    }
    for (account, rkey) in &seen.written {
        assert_eq!(server.text(*account, rkey), Some(record(&"x".repeat(300))), "{rkey} was acknowledged");
    }
    // Numbers and revisions go on above everything that was seen.
    let newest = seqs(&frames).last().copied().unwrap_or(0);
    for account in &seen.accounts {
        server.put(*account, "after", "the crash");
    }
    let all = server.frames();
    assert_eq!(all[..frames.len()], frames[..]);
    assert!(seqs(&all).into_iter().skip(frames.len()).all(|seq| seq > newest));
    check_chains(&all);
}

#[test]
fn nothing_that_was_seen_or_acknowledged_is_lost_wherever_power_goes() {
    let whole = SimDisk::new(7);
    let mut server = Server::with(&whole, &SetClock::new(), small());
    let begun = whole.operations();
    let mut seen = Seen::default();
    run(&mut server, &mut seen);
    assert_eq!((seen.written.len(), server.host.status().checkpoints > 2), (48, true));
    check(&mut server, &seen);
    let end = whole.operations();
    drop(server);
    for stop in begun..end {
        let (disk, clock) = (SimDisk::new(7 + stop), SetClock::new());
        let mut server = Server::with(&disk, &clock, small());
        disk.stop_at(stop);
        let mut seen = Seen::default();
        run(&mut server, &mut seen);
        drop(server);
        disk.power_loss();
        let mut server = try_open(&disk, &clock, small(), stop).unwrap_or_else(|error| panic!("stop {stop}: {error}"));
        assert_eq!(server.boot.frames, 0, "stop {stop}: a start after a crash tells nothing");
        check(&mut server, &seen);
    }
}

#[test]
fn with_the_sync_held_back_no_frame_and_no_answer_leaves() {
    use highwater_disk::watched::{Call, WatchedDisk, Watcher};
    use std::sync::Mutex;
    struct Look(Mutex<Option<Box<dyn FnMut() + Send>>>);
    impl Watcher for Look {
        fn before(&self, call: Call, path: &std::path::Path, _bytes: u64) {
            if call == Call::Sync
                && path.to_string_lossy().contains("/log/")
                && let Some(look) = self.0.lock().expect("not poisoned").as_mut()
            {
                look();
            }
        }
    }
    let (disk, clock) = (SimDisk::new(3), SetClock::new());
    let look = Arc::new(Look(Mutex::new(None)));
    let seams = highwater_host::Seams {
        disk: Arc::new(WatchedDisk::new(disk, Arc::clone(&look) as Arc<dyn Watcher>)),
        clock: Arc::clone(&clock) as Arc<dyn highwater_base::Clock>,
        random: Box::new(highwater_base::random::SplitMix::new(1)),
        sealer: None,
    };
    let (host, mut worker, _) = highwater_host::Host::open(small(), seams).expect("it opens");
    let mut created = host.create_account(support::new_account());
    worker.run_once();
    let account = created.try_take().expect("an answer").expect("an account");
    let head = host.head(account).expect("a head");
    let pending = Arc::new(Mutex::new(host.write(account, batch(vec![put("a", "one")]))));
    let live = Arc::new(Mutex::new(host.subscribe(None).expect("subscribed")));
    let looked = Arc::new(Mutex::new(0));
    let (seen, waiting, counted, reader) = (Arc::clone(&live), Arc::clone(&pending), Arc::clone(&looked), host.clone());
    *look.0.lock().expect("not poisoned") = Some(Box::new(move || {
        assert!(seen.lock().expect("not poisoned").take().is_none(), "a frame left before the sync");
        assert!(waiting.lock().expect("not poisoned").try_take().is_none(), "an answer left before the sync");
        assert_eq!(reader.head(account), Ok(head), "a reader saw it before the sync");
        *counted.lock().expect("not poisoned") += 1;
    }));
    worker.run_once();
    *look.0.lock().expect("not poisoned") = None;
    assert!(*looked.lock().expect("not poisoned") > 0);
    assert!(live.lock().expect("not poisoned").take().is_some());
    assert!(pending.lock().expect("not poisoned").try_take().expect("an answer").is_ok());
    assert_ne!(host.head(account), Ok(head));
}
