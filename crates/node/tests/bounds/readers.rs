//! Very many readers that wait.

use crate::alone;
use crate::counting::held;
use crate::host::{CountingDisk, Host, refused, request};
use bytes::Bytes;
use highwater_node::shard::Answer;
use highwater_stream::ReadFrom;

const READERS: usize = 10_000;
const STREAMS: usize = 100;

fn path(number: usize) -> String {
    format!("service/events/{number:08}")
}

#[test]
fn ten_thousand_readers_wait_in_600_bytes_each_and_all_of_them_are_woken() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let mut host = Host::open(directory.path(), &CountingDisk::default());
    let creates: Vec<_> = (0..STREAMS).map(|number| host.create(&path(number), b"")).collect();
    host.write(creates);
    let before = held();
    for reader in 0..READERS {
        let answer = host.read(request(&path(reader % STREAMS), ReadFrom::Now, Some(60_000)));
        assert!(answer.is_none(), "{answer:?}");
    }
    let each = (held() - before) / READERS as i64;
    println!("{each} bytes a reader that waits");
    assert!(each <= 600, "{each} bytes a reader that waits");
    assert_eq!(host.node.core().live_reads(), READERS);

    for number in 0..STREAMS {
        let (path, operation) = Host::append(&path(number), Bytes::from_static(b"news"));
        let proposal = highwater_node::shard::Proposal::new(highwater_base::Millis(1), path, operation);
        host.node.turn([highwater_node::shard::Input::Write { token: 0, proposal }]);
    }
    host.node.sync();
    let answers = host.node.answers();
    let woken = answers.iter().filter(|(_, answer)| matches!(answer, Answer::Read(Ok(Ok(read))) if read.next.0 == 4));
    assert_eq!(woken.count(), READERS);
    drop(answers);
    assert_eq!(host.node.core().live_reads(), 0);
    let left = held() - before;
    assert!(left < 200_000, "{left} bytes are still held for readers that are gone");
}

#[test]
fn a_reader_above_the_bound_is_refused_and_the_others_go_on_waiting() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let mut host = Host::open(directory.path(), &CountingDisk::default());
    let create = host.create("s", b"");
    host.write([create]);
    let bound = highwater_node::Config::new("").live_reads_max;
    for _ in 0..bound {
        assert!(host.read(request("s", ReadFrom::Now, Some(60_000))).is_none());
    }
    let answer = host.read(request("s", ReadFrom::Now, Some(60_000))).expect("an answer at once");
    assert_eq!(refused(&answer), Some(&highwater_node::Unavailable::LiveReadsExhausted));
    assert_eq!(host.node.core().live_reads(), bound);
}
