//! The client over real sockets, against a server that answers by a script.

use highwater_client::{
    Append, Client, From, Incarnation, Key, Offset, Options, Outcome, Read, Stream, StreamUrl, TokenSource, Written,
};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A server whose connections are handled, one after the other, by `script`; every request's head arrives at the test.
fn serve(script: impl Fn(usize, &str, &mut TcpStream) + Send + 'static) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/v1/stream/app", listener.local_addr().expect("an address"));
    let (heads, received) = channel();
    thread::spawn(move || {
        let mut number = 0;
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            while let Some(head) = request_head(&mut connection) {
                if heads.send(head.clone()).is_err() {
                    return;
                }
                script(number, &head, &mut connection);
                number += 1;
            }
        }
    });
    (url, received)
}

/// Reads a request's head, and its body too unless the script does that (`content-length` above 64 KiB).
fn request_head(connection: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if connection.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("a head is text");
    let length = body_length(&head);
    if length <= 64 << 10 {
        connection.read_exact(&mut vec![0; length]).ok()?;
    }
    Some(head)
}

fn body_length(head: &str) -> usize {
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ").map(str::to_owned));
    length.map_or(0, |length| length.parse().expect("a length"))
}

fn respond(connection: &mut TcpStream, answer: &str) {
    connection.write_all(answer.as_bytes()).expect("a client that listens");
}

const RECEIPT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nProducer-Epoch: 1\r\nProducer-Seq: 2\r\n\
    Stream-Offset: 00000000000000000010\r\nStream-Next-Offset: 00000000000000000014\r\n\
    Stream-Incarnation: 4503599627370497\r\n\r\n";

fn stream(url: &str, patience_ms: u64, token: TokenSource) -> Stream {
    let options = Options { patience: Duration::from_millis(patience_ms), token, ca_file: None };
    Stream::new(Arc::new(Client::new(options).expect("no file to read")), StreamUrl::parse(url).expect("an address"))
}

fn append(stream: &Stream, body: &[u8]) -> Outcome<Written> {
    append_answer(stream, body).outcome
}

fn append_answer(stream: &Stream, body: &[u8]) -> highwater_client::Answer<Written> {
    let key = Some(Key { id: "test/1".to_owned(), epoch: 1, seq: 2 });
    let incarnation = Incarnation::new(4_503_599_627_370_497);
    stream.append(&Append { body, content_type: "text/plain", incarnation, key, close: false }).1
}

#[test]
fn a_keyed_append_carries_its_key_and_reads_its_receipt() {
    let (url, heads) = serve(|_, _, connection| respond(connection, RECEIPT));
    let stream = stream(&url, 5_000, TokenSource::fixed("secret"));
    let Outcome::Done(Written::Receipt(receipt)) = append(&stream, b"four") else { panic!("a receipt") };
    assert_eq!(receipt.range, Some((Offset(10), Offset(14))));
    let head = heads.recv().expect("a request").to_ascii_lowercase();
    for line in [
        "post /v1/stream/app http/1.1",
        "producer-id: test/1",
        "producer-epoch: 1",
        "producer-seq: 2",
        "stream-incarnation: 4503599627370497",
        "content-type: text/plain",
        "content-length: 4",
        "authorization: bearer secret",
    ] {
        assert!(head.lines().any(|l| l == line), "{line} in {head}");
    }
    assert!(head.contains(&format!("producer-digest: {}", highwater_base::Digest::of(b"four"))));
}

#[test]
fn one_connection_is_kept_and_given_up_at_rest() {
    let (connections, counted) = channel();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/v1/stream/app", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            if connections.send(()).is_err() {
                return;
            }
            thread::spawn(move || {
                while request_head(&mut connection).is_some() {
                    respond(&mut connection, RECEIPT);
                }
            });
        }
    });
    let stream = stream(&url, 5_000, TokenSource::none());
    for _ in 0..3 {
        assert!(matches!(append(&stream, b"four"), Outcome::Done(_)));
    }
    assert_eq!(counted.try_iter().count(), 1);
    stream.client().rest();
    assert!(matches!(append(&stream, b"four"), Outcome::Done(_)));
    assert_eq!(counted.try_iter().count(), 1, "one more after the rest");
}

#[test]
fn a_redirect_is_reported_and_never_followed() {
    let (url, heads) = serve(|_, _, connection| {
        respond(
            connection,
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: /v1/stream/other\r\nContent-Length: 0\r\n\r\n",
        );
    });
    let stream = stream(&url, 5_000, TokenSource::none());
    assert_eq!(append(&stream, b"four"), Outcome::Redirected);
    let read = Read { from: From::Start, bytes_max: None, leader: false, incarnation: None, wait_ms: None };
    assert_eq!(stream.read(&read).1.outcome, Outcome::Redirected);
    assert_eq!(heads.try_iter().count(), 2, "each request was sent once");
}

#[test]
fn a_server_that_accepts_and_never_answers_is_given_up_for_want_of_progress() {
    let (url, _heads) = serve(|_, _, _| thread::sleep(Duration::from_secs(30)));
    let stream = stream(&url, 300, TokenSource::none());
    let started = Instant::now();
    let answer = append_answer(&stream, b"four");
    let elapsed = started.elapsed();
    assert_eq!(answer.outcome, Outcome::Unknown);
    assert!(answer.message.contains("no progress for 300 ms"), "{}", answer.message);
    assert!(elapsed >= Duration::from_millis(300) && elapsed < Duration::from_secs(5), "{elapsed:?}");
}

#[test]
fn a_slow_link_that_takes_bytes_is_not_given_up() {
    // The whole takes twice the patience; what fits into the receiver's buffer takes a third of it.
    const BODY: usize = 40 << 20;
    let (url, _heads) = serve(|_, head, connection| {
        let mut left = body_length(head);
        let mut piece = vec![0; 1 << 20];
        while left > 0 {
            let want = left.min(piece.len());
            connection.read_exact(&mut piece[..want]).expect("the body");
            left -= want;
            thread::sleep(Duration::from_millis(50));
        }
        respond(connection, RECEIPT);
    });
    let stream = stream(&url, 1_000, TokenSource::none());
    let started = Instant::now();
    let answer = append_answer(&stream, &vec![7; BODY]);
    assert!(matches!(answer.outcome, Outcome::Done(_)), "{answer:?}");
    assert!(started.elapsed() > Duration::from_millis(1_500), "slower than the patience: {:?}", started.elapsed());
}

#[test]
fn an_answer_that_breaks_off_is_no_answer() {
    for broken in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nProducer-Epoch: 1\r\n\r\nonly this",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "",
    ] {
        let (url, _heads) = serve(move |_, _, connection| {
            respond(connection, broken);
            connection.shutdown(std::net::Shutdown::Both).expect("an open connection");
        });
        let answer = append_answer(&stream(&url, 5_000, TokenSource::none()), b"four");
        assert_eq!((answer.outcome, answer.status), (Outcome::Unknown, 0), "{broken:?}");
    }
}

#[test]
fn a_refused_connection_is_no_answer() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("an address").port();
    let stream = stream(&format!("http://127.0.0.1:{port}/v1/stream/app"), 5_000, TokenSource::none());
    assert_eq!(append(&stream, b"four"), Outcome::Unknown);
}

#[test]
fn an_endless_answer_is_no_answer() {
    let (url, _heads) = serve(|_, _, connection| {
        let huge = "HTTP/1.1 403 Forbidden\r\nContent-Length: 1000000000\r\n\r\n";
        // The client may hang up at any of these; that is what it is meant to do.
        let sent = connection.write_all(huge.as_bytes()).and_then(|()| connection.write_all(&vec![b'x'; 1 << 20]));
        drop(sent.and_then(|()| connection.shutdown(std::net::Shutdown::Both)));
    });
    assert_eq!(append(&stream(&url, 5_000, TokenSource::none()), b"four"), Outcome::Unknown);
}

#[test]
fn a_head_names_the_cluster_even_where_there_is_no_stream() {
    let (url, _heads) = serve(|number, _, connection| {
        respond(
            connection,
            match number {
                0 => {
                    "HTTP/1.1 404 Not Found\r\nUrsula-Protocol: 11\r\nUrsula-Cluster-Id: c1\r\nContent-Length: 0\r\n\r\n"
                }
                _ => {
                    "HTTP/1.1 200 OK\r\nUrsula-Protocol: 11\r\nUrsula-Cluster-Id: c1\r\nContent-Length: 0\r\n\
                     Stream-Incarnation: 4503599627370497\r\nStream-Next-Offset: 00000000000000000014\r\n\
                     Stream-Retained-Offset: 00000000000000000000\r\nUrsula-Max-Request-Bytes: 33554432\r\n\r\n"
                }
            },
        );
    });
    let stream = stream(&url, 5_000, TokenSource::none());
    let (_, missing) = stream.head();
    assert_eq!(missing.identity.expect("an identity").cluster_id, "c1");
    assert!(matches!(missing.answer.outcome, Outcome::Refused(refusal) if refusal.status == 404));
    let (_, found) = stream.head();
    let head = found.answer.done().expect("a head");
    assert_eq!((head.next, head.request_bytes_max), (Offset(14), Some(32 << 20)));
}
