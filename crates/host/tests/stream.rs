//! Following the stream.

mod support;

use bytes::Bytes;
use highwater_base::Random;
use highwater_base::random::SplitMix;
use highwater_disk::{OsDisk, SimDisk, SystemClock};
use highwater_host::{Change, Delivery, Host, Options, Seams};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Message, Server, SetClock, batch, drain, put, seqs};

/// Many frames, in few batches.
fn fill(server: &mut Server, account: highwater_pds::AccountId, frames: usize) {
    let before = server.host.status().seq;
    for chunk in 0..frames.div_ceil(500) {
        let pending: Vec<_> = (0..500.min(frames - chunk * 500))
            .map(|n| server.host.write(account, batch(vec![put("one", &format!("{before} {chunk} {n}"))])))
            .collect();
        server.worker.run_once();
        for mut pending in pending {
            pending.try_take().expect("an answer").expect("written");
        }
    }
}

#[test]
fn more_live_frames_than_may_wait_close_a_subscriber_and_a_replay_of_more_does_not() {
    let mut server = Server::new(1);
    let account = server.account();
    let mut slow = server.host.subscribe(None).expect("subscribed");
    fill(&mut server, account, 1);
    assert_eq!(drain(&mut slow).len(), 1);
    fill(&mut server, account, 4_096);
    assert_eq!(slow.lag(), 4_096);
    let mut slower = server.host.subscribe(None).expect("subscribed");
    fill(&mut server, account, 1);
    assert_eq!(slow.take(), Some(Delivery::TooSlow));
    assert_eq!(drain(&mut slower).len(), 1);
    // Whoever replays more than that is not too slow, however slowly it goes, and goes over to what is live.
    let mut replay = server.host.subscribe(Some(0)).expect("subscribed");
    assert!(replay.reads_disk());
    let Some(Delivery::Frames(mut got)) = replay.take() else { panic!("frames") };
    fill(&mut server, account, 5_000);
    got.extend(drain(&mut replay));
    assert_eq!(seqs(&got), seqs(&server.frames()));
    assert!(got.len() > 9_000);
    fill(&mut server, account, 1);
    assert_eq!(drain(&mut replay).len(), 1);
}

/// A thousand of them that took nothing held a gigabyte.
#[test]
fn a_replay_that_is_not_taken_holds_an_eighth_of_a_mebibyte_or_one_frame() {
    let mut options = support::options();
    options.log.segment_bytes = 4 << 20;
    options.log.log_bytes_max = 256 << 20;
    let mut server = Server::with(&SimDisk::new(5), &SetClock::new(), options);
    let account = server.account();
    let large = "x".repeat(300_000);
    for n in 0..1_200 {
        let text = if n % 400 == 7 { &large } else { "small" };
        server.write(account, vec![put("one", &format!("{text}{n}"))]);
    }
    fill(&mut server, account, 4_096);
    let mut replay = server.host.subscribe(Some(0)).expect("subscribed");
    let (mut got, mut longest) = (Vec::new(), 0);
    while replay.reads_disk() {
        let Some(Delivery::Frames(frames)) = replay.take() else { panic!("frames") };
        let bytes: usize = frames.iter().map(Bytes::len).sum();
        assert!(bytes <= 128 << 10 || frames.len() == 1, "{bytes} bytes in {} frames", frames.len());
        longest = longest.max(bytes);
        got.extend(frames);
    }
    assert!(longest > 300_000, "the large ones came from the disk");
    got.extend(drain(&mut replay));
    assert_eq!(seqs(&got), seqs(&server.frames()));
}

#[test]
fn a_subscriber_behind_what_memory_holds_reads_from_the_disk_and_is_not_too_slow_for_it() {
    let mut options = support::options();
    options.log.segment_bytes = 4 << 20;
    options.log.log_bytes_max = 256 << 20;
    let mut server = Server::with(&SimDisk::new(2), &SetClock::new(), options);
    let account = server.account();
    let mut live = server.host.subscribe(None).expect("subscribed");
    let large = "x".repeat(900_000);
    for n in 0..80 {
        server.put(account, "large", &format!("{n}{large}"));
    }
    let ring = server.host.status().ring.frames;
    assert!(ring < 80, "memory holds few of them: {ring}");
    assert!(live.reads_disk());
    let got = drain(&mut live);
    assert_eq!(got.len(), 80);
    assert_eq!(seqs(&got)[..], seqs(&server.frames())[3..]);
}

#[test]
fn frames_of_an_erased_account_are_left_out_of_a_replay_but_for_where_it_stands() {
    let mut server = Server::new(3);
    let (gone, kept) = (server.account(), server.account());
    server.put(gone, "a", "one");
    server.put(kept, "a", "one");
    let did = server.host.state(|state| state.accounts[&gone].did.to_string());
    let pending = server.host.change(gone, Change::Erase);
    assert_eq!(server.settle(pending), Ok(true));
    for round in 0..2 {
        let of: Vec<_> = server.frames().iter().map(Message::of).filter(|message| message.did() == did).collect();
        assert!(of.iter().all(|message| message.kind == "#account"), "{of:?}");
        assert_eq!(of.last().and_then(|message| message.text("status")).as_deref(), Some("deleted"));
        if round == 0 {
            server = server.restart();
        }
    }
    assert!(server.host.record(gone, "app.example.note/a").is_err());
}

/// Found by the simulator: a subscriber took the first frames of an account, which was erased before the rest. Its older frames were left out,
/// and one that had been written after the subscriber came was sent all the same: a commit that follows nothing.
#[test]
fn what_is_left_out_of_an_erased_account_is_followed_by_none_of_its_commits() {
    let mut server = Server::new(9);
    let gone = server.account();
    server.put(gone, "a", "one");
    let mut subscription = server.host.subscribe(Some(0)).expect("subscribed");
    server.put(gone, "a", "two");
    let pending = server.host.change(gone, Change::Erase);
    assert_eq!(server.settle(pending), Ok(true));
    let kinds: Vec<_> = drain(&mut subscription).iter().map(|frame| Message::of(frame).kind).collect();
    assert_eq!(kinds, ["#account", "#account"]);
    // Whoever had read everything before loses nothing of what comes.
    let kept = server.account();
    server.put(kept, "a", "one");
    let mut subscription = server.host.subscribe(Some(0)).expect("subscribed");
    let before = drain(&mut subscription).len();
    server.put(kept, "a", "two");
    let pending = server.host.change(kept, Change::Erase);
    assert_eq!(server.settle(pending), Ok(true));
    let kinds: Vec<_> = drain(&mut subscription).iter().map(|frame| Message::of(frame).kind).collect();
    assert_eq!((before, kinds), (2 + 4, vec!["#commit".to_owned(), "#account".to_owned()]));
}

#[test]
fn old_frames_go_and_a_cursor_before_them_is_told_so() {
    let mut server = Server::new(4);
    let account = server.account();
    fill(&mut server, account, 600);
    let middle = seqs(&server.frames())[300];
    server.clock.advance(73 * 3_600_000);
    fill(&mut server, account, 600);
    server = server.restart();
    let frames = server.frames();
    let oldest = seqs(&frames)[0];
    assert!(oldest > middle, "{oldest} {middle}");
    let mut old = server.host.subscribe(Some(1)).expect("subscribed");
    let got = drain(&mut old);
    assert_eq!(Message::of(&got[0]).kind, "#info");
    assert_eq!(got[1..], frames[..]);
    let mut edge = server.host.subscribe(Some(oldest - 1)).expect("subscribed");
    assert_eq!(drain(&mut edge), frames);
    let newest = *seqs(&frames).last().expect("frames");
    for cursor in [newest, server.host.status().ceiling] {
        assert!(server.host.subscribe(Some(cursor)).expect("subscribed").take().is_none());
    }
    assert!(server.host.subscribe(Some(newest + 1)).is_err());
}

fn production(directory: &std::path::Path) -> (Host, highwater_host::Running) {
    let mut options = Options::new(directory, "pds.example");
    options.log.segment_bytes = 8 << 20;
    // Checkpoints, compaction and releases happen while it runs.
    options.checkpoint_bytes = 1 << 20;
    let seams = Seams {
        disk: Arc::new(OsDisk::new()),
        clock: Arc::new(SystemClock::new()),
        random: Box::new(highwater_disk::SystemRandom),
        sealer: None,
    };
    let (host, worker, _) = Host::open(options, seams).expect("it opens");
    (host, worker.spawn().expect("threads"))
}

/// Source: public report 11, a cursor that skips events under concurrent commits.
#[test]
fn a_consumer_that_reconnects_at_any_cursor_sees_every_frame_of_64_writers_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (host, running) = production(folder.path());
    let accounts: Vec<_> = (0..8).map(|_| host.create_account(support::new_account()).wait().expect("made")).collect();
    let done = Arc::new(AtomicBool::new(false));
    let consumer = {
        let (host, done) = (host.clone(), Arc::clone(&done));
        std::thread::spawn(move || {
            let (mut random, mut cursor, mut got) = (SplitMix::new(5), 0, Vec::<Bytes>::new());
            loop {
                let last = done.load(Ordering::Acquire);
                let mut subscription = host.subscribe(Some(cursor)).expect("subscribed");
                for _ in 0..=random.below(6) {
                    while let Some(delivery) = subscription.take() {
                        let Delivery::Frames(frames) = delivery else { panic!("{delivery:?}") };
                        got.extend(frames);
                    }
                    subscription.wait(Duration::from_millis(random.below(3)));
                }
                cursor = got.last().map_or(0, |frame| Message::of(frame).seq());
                if last && subscription.take().is_none() {
                    return got;
                }
            }
        })
    };
    let writers: Vec<_> = (0..64)
        .map(|writer| {
            let (host, account) = (host.clone(), accounts[writer % accounts.len()]);
            std::thread::spawn(move || {
                for n in 0..20 {
                    let rkey = format!("w{writer}n{n}");
                    host.write(account, batch(vec![put(&rkey, &"y".repeat(2_000))])).wait().expect("written");
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
    done.store(true, Ordering::Release);
    let got = consumer.join().expect("no panic");
    assert_eq!(got.len(), 8 * 3 + 64 * 20);
    assert_eq!(seqs(&got), (1..=got.len() as u64).collect::<Vec<_>>());
    support::check_chains(&got);
    // Nobody answers what readers, blocks and a second start do not find.
    for account in &accounts {
        let list = highwater_host::List {
            collection: "app.example.note".into(),
            behind: None,
            limit: 1_000,
            bytes_max: usize::MAX,
            ascending: true,
        };
        assert_eq!(host.list(*account, &list).expect("listed").records.len(), 160);
    }
    // On a busy machine the writers may be done before a second one begins.
    assert!(host.status().checkpoints > 0);
    running.stop().expect("stopped");
    drop(host);
    let (host, running) = production(folder.path());
    let mut subscription = host.subscribe(Some(0)).expect("subscribed");
    assert_eq!(drain(&mut subscription), got);
    running.stop().expect("stopped");
}
