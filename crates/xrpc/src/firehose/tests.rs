//! Sockets in memory, with peers that stall, ask and leave, in a time that passes when nothing else happens.

use super::message::{self, Asked, Incoming, Kind};
use super::socket::{Ended, Frames, Next, POLICY, serve};
use crate::options::StreamOptions;
use bytes::Bytes;
use std::future::pending;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Frames that a test sends; the end of the channel is the end of the stream.
struct Played(mpsc::UnboundedReceiver<Vec<Bytes>>);

impl Frames for Played {
    async fn next(&mut self) -> Next {
        match self.0.recv().await {
            Some(frames) => Next::Frames(frames),
            None => Next::End(Some(Bytes::from_static(b"why")), POLICY, "over"),
        }
    }
}

/// What the connection holds between the two.
const BETWEEN_BYTES: usize = 16 << 10;

fn start() -> (mpsc::UnboundedSender<Vec<Bytes>>, DuplexStream, JoinHandle<Ended>) {
    let (send, frames) = mpsc::unbounded_channel();
    let (ours, theirs) = duplex(BETWEEN_BYTES);
    let serving = tokio::spawn(async move { serve(ours, Played(frames), &StreamOptions::default(), pending()).await });
    (send, theirs, serving)
}

/// Reads one message: its kind and its bytes.
async fn read(peer: &mut DuplexStream) -> (u8, Vec<u8>) {
    let mut head = [0; 2];
    peer.read_exact(&mut head).await.expect("a message");
    assert_eq!(head[1] & 0x80, 0, "a server does not mask");
    let length = match head[1] {
        126 => u64::from(peer.read_u16().await.expect("a length")),
        127 => peer.read_u64().await.expect("a length"),
        short => u64::from(short),
    };
    let mut payload = vec![0; length as usize];
    peer.read_exact(&mut payload).await.expect("its bytes");
    (head[0], payload)
}

fn large(byte: u8) -> Bytes {
    vec![byte; 200_000].into()
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_reads_nothing_for_a_minute_keeps_its_socket_and_loses_nothing() {
    let (frames, mut peer, serving) = start();
    frames.send(vec![large(1), large(2)]).expect("taken");
    sleep(Duration::from_secs(100)).await;
    for byte in [1, 2] {
        let (kind, payload) = read(&mut peer).await;
        assert_eq!((kind, payload.len(), payload[0]), (0x80 | Kind::Binary as u8, 200_000, byte));
        // Pings that came up meanwhile stand between messages.
        if byte == 1 {
            assert_eq!(read(&mut peer).await.0, 0x80 | Kind::Ping as u8);
        }
    }
    assert!(!serving.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_for_two_minutes_is_gone() {
    let (frames, peer, serving) = start();
    let begun = Instant::now();
    frames.send(vec![large(1)]).expect("taken");
    assert_eq!(serving.await.expect("no panic"), Ended::Stalled);
    assert_eq!(begun.elapsed().as_secs(), 120);
    drop(peer);
}

/// The time in which there was nothing to take was counted as time in which nothing was taken.
#[tokio::test(start_paused = true)]
async fn a_peer_that_had_nothing_to_take_for_hours_is_not_gone_when_something_comes() {
    let (frames, queue) = mpsc::unbounded_channel();
    let (ours, mut peer) = duplex(BETWEEN_BYTES);
    let options = StreamOptions { ping_ms: 360_000_000, ..StreamOptions::default() };
    let serving = tokio::spawn(async move { serve(ours, Played(queue), &options, pending()).await });
    for _ in 0..30 {
        sleep(Duration::from_secs(3_600)).await;
        frames.send(vec![Bytes::from_static(b"new")]).expect("taken");
        assert_eq!(read(&mut peer).await.1, b"new");
    }
    assert!(!serving.is_finished());
}

/// Whoever takes a little is slow, not gone: the host counts how far it is behind.
#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_a_little_now_and_then_is_not_gone() {
    let (frames, mut peer, serving) = start();
    frames.send(vec![large(1)]).expect("taken");
    let mut part = [0; 1_024];
    for _ in 0..5 {
        sleep(Duration::from_secs(110)).await;
        peer.read_exact(&mut part).await.expect("bytes");
    }
    assert!(!serving.is_finished());
    sleep(Duration::from_secs(121)).await;
    assert_eq!(serving.await.expect("no panic"), Ended::Stalled);
}

/// Reports told of proxies that drop a connection on which nothing happens for two minutes, with code 1006.
#[tokio::test(start_paused = true)]
async fn an_idle_socket_hears_a_ping_every_half_minute_and_stays() {
    let (_frames, mut peer, serving) = start();
    let begun = Instant::now();
    for turn in 1..=10 {
        assert_eq!(read(&mut peer).await, (0x80 | Kind::Ping as u8, Vec::new()));
        assert_eq!(begun.elapsed().as_secs(), turn * 30);
    }
    assert!(!serving.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_ping_is_answered_before_the_rest_of_a_replay() {
    let (frames, mut peer, _serving) = start();
    frames.send((0..50).map(large).collect()).expect("taken");
    assert_eq!(read(&mut peer).await.1[0], 0);
    peer.write_all(&[0x89, 0x82, 0, 0, 0, 0, b'h', b'i']).await.expect("taken");
    // What was begun before the ping came ends first: one message on the way, one that had begun.
    let mut before = 0;
    loop {
        let (kind, payload) = read(&mut peer).await;
        if kind == 0x80 | Kind::Pong as u8 {
            assert_eq!(payload, b"hi");
            break;
        }
        before += 1;
        assert!(before <= 3, "the pong waits behind the replay");
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_stream_says_why_and_closes() {
    let (frames, mut peer, serving) = start();
    frames.send(vec![Bytes::from_static(b"last")]).expect("taken");
    drop(frames);
    assert_eq!(read(&mut peer).await.1, b"last");
    assert_eq!(read(&mut peer).await.1, b"why");
    assert_eq!(read(&mut peer).await, (0x88, message::close(POLICY, "over")[2..].to_vec()));
    drop(peer);
    assert_eq!(serving.await.expect("no panic"), Ended::Closed("over"));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_close_is_not_waited_for_longer_than_agreed() {
    let (frames, peer, serving) = start();
    drop(frames);
    let begun = Instant::now();
    assert_eq!(serving.await.expect("no panic"), Ended::Closed("over"));
    assert_eq!(begun.elapsed().as_millis() as u64, StreamOptions::default().close_ms_max);
    drop(peer);
}

#[tokio::test(start_paused = true)]
async fn what_a_client_says_is_ignored_its_goodbye_is_answered_and_nonsense_ends_the_socket() {
    let (_frames, mut peer, serving) = start();
    peer.write_all(&[0x82, 0x81, 0, 0, 0, 0, b'x', 0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8]).await.expect("taken");
    assert_eq!(read(&mut peer).await, (0x88, vec![0x03, 0xe8]));
    drop(peer);
    assert_eq!(serving.await.expect("no panic"), Ended::Gone);
    let (_frames, mut peer, serving) = start();
    peer.write_all(&[0x82, 0x01, b'x']).await.expect("taken");
    assert_eq!(read(&mut peer).await.1[..2], [0x03, 0xea], "1002");
    drop(peer);
    assert!(matches!(serving.await.expect("no panic"), Ended::Violation(_)));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_says_no_goodbye_because_consumers_would_not_come_back() {
    let (_send, frames) = mpsc::unbounded_channel();
    let (ours, mut theirs) = duplex(BETWEEN_BYTES);
    let stop = async {
        sleep(Duration::from_secs(1)).await;
        "the server stops"
    };
    let serving = tokio::spawn(async move { serve(ours, Played(frames), &StreamOptions::default(), stop).await });
    let mut sent = Vec::new();
    theirs.read_to_end(&mut sent).await.expect("the end");
    assert_eq!(sent, b"");
    assert_eq!(serving.await.expect("no panic"), Ended::Closed("the server stops"));
}

/// Its replay was overtaken by what is kept, or could not be read: dialling again helps.
#[tokio::test(start_paused = true)]
async fn a_subscriber_whose_frames_break_off_hears_no_goodbye_either() {
    struct Broken;
    impl Frames for Broken {
        async fn next(&mut self) -> Next {
            Next::Break("the stream ended")
        }
    }
    let (ours, mut theirs) = duplex(BETWEEN_BYTES);
    let ended = serve(ours, Broken, &StreamOptions::default(), pending()).await;
    let mut sent = Vec::new();
    theirs.read_to_end(&mut sent).await.expect("the end");
    assert_eq!((sent, ended), (Vec::new(), Ended::Closed("the stream ended")));
}

proptest::proptest! {
    /// What a client sends is never trusted: nonsense is refused, however it is cut, and never more than once.
    #[test]
    fn bytes_of_a_client_mean_the_same_however_they_are_cut(
        bytes in proptest::collection::vec(proptest::sample::select(vec![0u8, 0x80, 0x81, 0x82, 0x88, 0x89, 0x8a, 0xfe, 0xff, 3, 7]), 0..200),
        piece in 1usize..20,
    ) {
        let read = |piece: usize| {
            let (mut incoming, mut asked): (Incoming, Vec<Asked>) = (Incoming::default(), Vec::new());
            let fine = bytes.chunks(piece).try_for_each(|piece| incoming.take(piece, &mut asked));
            (fine, asked)
        };
        proptest::prop_assert_eq!(read(piece), read(200));
    }
}
