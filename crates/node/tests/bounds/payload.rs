//! Very much payload.

use crate::alone;
use crate::counting::{held, peak_of};
use crate::host::{CountingDisk, Host, request};
use bytes::Bytes;
use highwater_base::Offset;
use highwater_node::shard::Answer;
use highwater_stream::ReadFrom;

/// Mebibytes that are written: few here, as many as `HIGHWATER_BOUNDS_MIB` says by hand (10240 for ten gigabytes).
fn mebibytes() -> u64 {
    std::env::var("HIGHWATER_BOUNDS_MIB").ok().and_then(|mib| mib.parse().ok()).unwrap_or(160)
}

/// The story: memory grew with what was appended until the server was restarted (s2 #449); another held 3.8 GB after
/// 2 GB of appends.
#[test]
fn a_long_stream_is_written_and_read_in_bounded_memory() {
    const MIB: usize = 1 << 20;
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let mut host = Host::open(directory.path(), &CountingDisk::default());
    let create = host.create("s", b"");
    host.write([create]);
    let total = mebibytes();
    let before = held();
    let writing = peak_of(|| {
        for number in 0..total {
            host.write([Host::append("s", Bytes::from(vec![number as u8; MIB]))]);
        }
    });
    println!("{total} MiB written with {} MiB at most", writing >> 20);
    // A write of one mebibyte in its few forms, and a checkpoint's buffers, which take in what lies in small pieces.
    assert!(writing < 48 << 20, "{writing} bytes at once");
    let left = held() - before;
    assert!(left < 8 << 20, "{left} bytes are still held");

    let (mut offset, mut sum) = (0, 0_u64);
    let reading = peak_of(|| {
        while offset < total * MIB as u64 {
            let answer = host.read(request("s", ReadFrom::At(Offset(offset)), None));
            let Some(Answer::Read(Ok(Ok(located)))) = answer else { panic!("{answer:?}") };
            let answer = host.node.fetch(located).expect("readable");
            assert!(
                answer
                    .body
                    .chunks(MIB)
                    .zip(offset / MIB as u64..)
                    .all(|(piece, n)| piece.iter().all(|b| *b == n as u8))
            );
            sum += answer.body.len() as u64;
            offset = answer.next.0;
        }
    });
    assert_eq!(sum, total * MIB as u64);
    println!("read with {} MiB at most", reading >> 20);
    assert!(reading < 32 << 20, "{reading} bytes at once");
}
