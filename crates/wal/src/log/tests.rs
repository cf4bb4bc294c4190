use super::*;
use bytes::Bytes;
use highwater_disk::SimDisk;

fn options() -> Options {
    Options { segment_bytes: 8 * PAGE, log_bytes_max: 1 << 20, ..Options::default() }
}

fn frame(owner: u64, position: u64, length: usize) -> Frame {
    let payload: Vec<u8> = (0..length).map(|at| (owner + position * 7 + at as u64) as u8).collect();
    Frame { owner: OwnerId(owner), kind: 1, position, payload: Bytes::from(payload) }
}

fn open_log(disk: &SimDisk) -> (Log, Recovered) {
    Log::open(Arc::new(disk.clone()), Path::new("/data/wal"), options()).expect("the log opens")
}

fn survivors(recovered: &Recovered) -> Vec<Frame> {
    let mut frames = Vec::new();
    let each = |found: crate::ReplayedFrame| {
        let crate::ReplayedFrame { owner, kind, position, payload, .. } = found;
        frames.push(Frame { owner, kind, position, payload });
        Ok::<(), std::convert::Infallible>(())
    };
    recovered.replay(|_| true, each).expect("every survivor reads back");
    frames
}

#[test]
fn what_was_appended_reads_back_and_survives() {
    let disk = SimDisk::new(1);
    let (mut log, recovered) = open_log(&disk);
    assert_eq!(recovered.last_run(), &crate::LastRun::New);
    let mut all = Vec::new();
    for round in 0..40 {
        let frames = [frame(1, round, 700), frame(2, round, 0), frame(3, round, 3000)];
        let locations = log.append(&frames).expect("append");
        log.sync().expect("sync");
        for (frame, location) in frames.iter().zip(&locations) {
            assert_eq!(log.reader().read(*location).expect("read"), frame.payload);
        }
        all.extend(frames);
    }
    assert!(log.segments.len() > 5);
    disk.power_loss();
    drop(log);
    let (_, recovered) = open_log(&disk);
    assert!(survivors(&recovered) == all);
    assert!(recovered.owners().values().all(|owner| owner.verdict.is_whole()));
}
