//! Where subscribers start once a window has moved. `transcripts/cursors.txt` has the rest.

use crate::server::Server;
use highwater_pds::boot;
use highwater_pds::cursor::{Start, start};
use highwater_pds::lifecycle::Announce;
use highwater_pds::restore::Marker;

const HOUR: u64 = 3_600;

/// A server that sent so many frames, one each second.
fn busy(frames: usize) -> Server {
    let mut server = Server::new();
    server.create("a", Some(Announce::OnActivation));
    told(&mut server, frames - 3);
    server
}

/// Frames of one second each.
fn told(server: &mut Server, frames: usize) {
    let account = server.account("a").clone();
    let block = server.directory.blocks[&account.head.expect("it has one").commit].clone();
    for _ in 0..frames / 2 {
        server.now = server.now.plus_seconds(2);
        let draft = boot::resync(&account, &block, server.now).expect("it is live");
        server.append(&draft).expect("it lives");
    }
}

#[test]
fn a_cursor_before_the_window_is_outdated_and_one_at_its_edge_is_not() {
    let mut server = busy(3_003);
    let newest = server.state.events.newest.expect("frames").0;
    assert!(server.state.expire(server.now, 1_500, u64::MAX).is_some(), "half of it is too old");
    let oldest = server.state.events.oldest().expect("frames").seq.0;
    assert!((1_000..2_000).contains(&oldest), "{oldest}");
    let start = |cursor| start(cursor, &server.state.events, &server.state.sequence);
    let behind = |seq, outdated| Start::Behind { seq, outdated };
    for (cursor, expected) in [
        (None, Start::Live),
        (Some(0), behind(0, false)),
        (Some(1), behind(0, true)),
        (Some(oldest - 2), behind(0, true)),
        (Some(oldest - 1), behind(oldest - 1, false)),
        (Some(oldest), behind(oldest, false)),
        (Some(newest - 1), behind(newest - 1, false)),
        (Some(newest), Start::Live),
        (Some(newest + 1), Start::Future { ceiling: newest }),
        (Some(u64::MAX), Start::Future { ceiling: newest }),
    ] {
        assert_eq!(start(cursor), expected, "{cursor:?}");
    }
    // The whole window is what is kept, and a reader finds its beginning.
    let (_, frames) = server.subscribe(Some(1));
    assert_eq!(frames.len() as u64, newest - oldest + 1);
    let point = server.state.events.start_behind(oldest - 1).expect("a point");
    assert_eq!(point.seq.0, oldest);
}

/// A floor that was raised while nothing was sent must not make a consumer's cursor one of the future: the ceiling counts.
#[test]
fn the_ceiling_counts_where_nothing_was_sent_behind_a_raise() {
    let mut server = Server::new();
    server.create("a", None);
    server.directory.marker = Some(Marker::default());
    server.boot().expect("it starts");
    let (state, floor) = (&server.state, server.directory.floor);
    assert_eq!(floor, 1_000_000_000_000);
    assert_eq!(start(Some(41), &state.events, &state.sequence), Start::Behind { seq: floor, outdated: true });
    assert_eq!(start(Some(floor), &state.events, &state.sequence), Start::Behind { seq: floor, outdated: true });
    assert_eq!(start(Some(floor + 1), &state.events, &state.sequence), Start::Future { ceiling: floor });
}

/// Frames of a restore are the only ones that heal what a relay holds: no bound of size takes them before the window's time is over.
#[test]
fn a_full_window_keeps_the_frames_of_a_restore_for_its_whole_time() {
    let mut server = busy(1_003);
    server.directory.marker = Some(Marker::default());
    server.boot().expect("it starts");
    let restored = server.directory.floor + 1;
    told(&mut server, 2_000);
    let bytes_max = 1;
    server.state.expire(server.now, 72 * HOUR, bytes_max);
    let oldest = server.state.events.oldest().expect("frames").seq.0;
    assert!(oldest <= restored, "{oldest}");
    let before_the_gap = start(Some(5_000), &server.state.events, &server.state.sequence);
    assert_eq!(before_the_gap, Start::Behind { seq: restored - 1, outdated: true });
    let later = server.now.plus_seconds(73 * HOUR);
    server.state.expire(later, 72 * HOUR, bytes_max);
    assert!(server.state.events.oldest().expect("frames").seq.0 > restored);
    // The gap lies before the window by now.
    let start = start(Some(5_000), &server.state.events, &server.state.sequence);
    assert_eq!(start, Start::Behind { seq: 0, outdated: true });
}

#[test]
fn what_was_erased_is_left_out_of_a_replay_but_for_its_end() {
    let mut server = Server::new();
    server.create("a", Some(Announce::OnActivation));
    server.create("b", Some(Announce::OnActivation));
    server.write("a", "x", 1).expect("written");
    server.change("a", highwater_pds::lifecycle::Change::Erase).expect("erased");
    let (_, frames) = server.subscribe(Some(0));
    // Both #account frames of the one, and all three of the other.
    assert_eq!(frames.len(), 5);
}
