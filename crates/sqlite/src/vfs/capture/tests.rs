use super::*;

const PAGE: u32 = 512;
const A: ConnectionId = ConnectionId(1);
const B: ConnectionId = ConnectionId(2);

fn capture() -> Capture {
    let mut capture = Capture::new(PAGE, LogPosition(0));
    capture.begin(A, 0).expect("begin");
    let mut header = [0; 32];
    header[8..12].copy_from_slice(&PAGE.to_be_bytes());
    assert_eq!(capture.write(A, &header, 0), Ok(Piece::Plain));
    capture
}

/// Writes a whole frame; the answer to its page.
fn frame(capture: &mut Capture, frame: u32, page: u32, size: u32) -> Result<Piece, Unexpected> {
    let offset = capture.frame_offset(frame);
    let mut header = [0; 24];
    header[..4].copy_from_slice(&page.to_be_bytes());
    header[4..8].copy_from_slice(&size.to_be_bytes());
    assert_eq!(capture.write(A, &header, offset)?, Piece::Plain);
    capture.write(A, &[7; PAGE as usize], offset + 24)
}

fn commit(capture: &mut Capture, last: u32, page: u32, size: u32, end: u64) -> Vec<(u32, u32)> {
    let commit = Commit { frame: last, pages_after: size };
    assert_eq!(frame(capture, last, page, size), Ok(Piece::CommitPage(commit)));
    let images = capture.images(commit);
    let logged = Logged { commit, end: LogPosition(end) };
    capture.logged(logged);
    capture.confirm(logged, 0);
    images
}

#[test]
fn a_commit_takes_of_each_page_the_highest_frame() {
    let mut capture = capture();
    for (number, page) in [(1, 3), (2, 4), (3, 3)] {
        assert_eq!(frame(&mut capture, number, page, 0), Ok(Piece::Plain));
    }
    assert_eq!(capture.write(A, &[9; PAGE as usize], capture.frame_offset(2) + 24), Ok(Piece::Plain), "in place");
    let images = commit(&mut capture, 4, 1, 9, 10);
    assert_eq!(images, [(1, 4), (3, 3), (4, 2)]);
}

/// The frames of a savepoint that was rolled back are written over by other pages, and fewer of them.
#[test]
fn a_rolled_back_savepoint_leaves_nothing_behind() {
    let mut capture = capture();
    for (number, page) in [(1, 3), (2, 4), (3, 5)] {
        frame(&mut capture, number, page, 0).expect("spill");
    }
    let images = commit(&mut capture, 2, 8, 9, 10);
    assert_eq!(images, [(3, 1), (8, 2)]);
    assert_eq!(capture.frames(), 2);
}

/// R2: a rolled-back spill hid another connection's later frames, because each handle kept its own overlay.
#[test]
fn a_rolled_back_spill_hides_nothing_of_the_next_transaction() {
    let mut capture = capture();
    commit(&mut capture, 1, 2, 9, 10);
    capture.begin(A, 1).expect("begin");
    frame(&mut capture, 2, 5, 0).expect("spill");
    frame(&mut capture, 3, 6, 0).expect("spill");
    capture.abandon();
    capture.begin(A, 1).expect("begin");
    assert_eq!(commit(&mut capture, 2, 7, 9, 20), [(7, 2)]);
}

#[test]
fn what_sqlite_never_does_is_refused() {
    let mut capture = capture();
    assert_eq!(capture.write(B, &[0; 24], capture.frame_offset(1)), Err(Unexpected::NoTransaction));
    assert_eq!(frame(&mut capture, 2, 1, 0), Err(Unexpected::Order { frame: 2, last: 0 }));
    let offset = capture.frame_offset(1);
    assert_eq!(capture.write(A, &[0; 25], offset), Err(Unexpected::Shape { offset, length: 25 }));
    assert_eq!(capture.write(A, &[0; 512], 3), Err(Unexpected::Shape { offset: 3, length: 512 }));
    let last = Commit { frame: 1, pages_after: 9 };
    assert_eq!(frame(&mut capture, 1, 2, 9), Ok(Piece::CommitPage(last)));
    capture.logged(Logged { commit: last, end: LogPosition(5) });
    assert_eq!(frame(&mut capture, 1, 2, 9), Err(Unexpected::AfterCommit { frame: 1 }), "the page again");
    assert_eq!(frame(&mut capture, 1, 3, 9), Err(Unexpected::AfterCommit { frame: 1 }), "for another page");
    let (mut header, offset) = ([0; 24], capture.frame_offset(1));
    header[3] = 2;
    assert_eq!(capture.write(A, &header, offset), Ok(Piece::Plain), "its checksum may be written anew");
    assert_eq!(capture.begin(B, 2), Err(Unexpected::Lost { published: 2, captured: 1 }));
}

#[test]
fn pages_past_the_end_and_the_lock_page_are_left_out() {
    let lock = 0x4000_0000 / PAGE + 1;
    let mut capture = capture();
    frame(&mut capture, 1, lock, 0).expect("spill");
    frame(&mut capture, 2, lock + 2, 0).expect("spill");
    assert_eq!(commit(&mut capture, 3, lock + 1, lock + 1, 10), [(lock + 1, 3)]);
}

#[test]
fn a_backfill_is_worth_the_last_commit_that_it_covers() {
    let mut capture = capture();
    commit(&mut capture, 1, 2, 9, 10);
    capture.begin(A, 1).expect("begin");
    frame(&mut capture, 2, 3, 0).expect("frame");
    commit(&mut capture, 3, 2, 9, 20);
    assert_eq!(capture.backfill(0), LogPosition(0));
    assert_eq!(capture.backfill(2), LogPosition(10));
    assert_eq!(capture.backfill(3), LogPosition(20));
    assert_eq!(capture.backfill(1), LogPosition(20), "never back");
    capture.begin(A, 0).expect("begin");
    let mut header = [0; 32];
    header[8..12].copy_from_slice(&PAGE.to_be_bytes());
    capture.write(A, &header, 0).expect("restart");
    assert_eq!(commit(&mut capture, 1, 2, 9, 30), [(2, 1)]);
    assert_eq!(capture.backfill(0), LogPosition(20), "the old frames are in the file");
}
