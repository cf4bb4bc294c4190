//! Typed requests to one stream.

use crate::classify::{Answer, Outcome, WriteKind, Written, classify, read};
use crate::error_body::ERROR_BODY_BYTES_MAX;
use crate::exchange::{Client, Reply, Request};
use crate::head::{Head, Identity, head, identity};
use crate::headers::Headers;
use crate::token::TokenId;
use crate::url::StreamUrl;
use bytes::Bytes;
use highwater_base::{Digest, Incarnation, Offset, limits};
use std::sync::Arc;
use ureq::http::Method;

/// A producer's key of one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The producer.
    pub id: String,
    /// Its epoch.
    pub epoch: u64,
    /// The number of the write in that epoch; 0 claims the epoch.
    pub seq: u64,
}

/// An append, a claim or a close.
#[derive(Debug, Clone)]
pub struct Append<'a> {
    /// The bytes; their digest goes with a key.
    pub body: &'a [u8],
    /// What the stream holds.
    pub content_type: &'a str,
    /// The history that the write is meant for.
    pub incarnation: Option<Incarnation>,
    /// The producer's key.
    pub key: Option<Key>,
    /// Whether it closes the stream.
    pub close: bool,
}

/// When a stream ends by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expiry {
    /// So many seconds after it was last read or written.
    Ttl(u64),
    /// At this time, as RFC 3339 has it.
    At(String),
}

/// The settings of a stream to make.
#[derive(Debug, Clone)]
pub struct Create<'a> {
    /// What it holds.
    pub content_type: &'a str,
    /// When it ends by itself; never without one.
    pub expiry: Option<Expiry>,
    /// Whether it is made closed.
    pub close: bool,
    /// Its first bytes.
    pub body: Option<&'a [u8]>,
}

/// Where a read starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// At the first retained byte.
    Start,
    /// At the tail.
    Now,
    /// At this offset.
    At(Offset),
}

/// A read of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// Where it starts.
    pub from: From,
    /// Bytes that are wanted at the most; the server may give fewer. Not for JSON streams, of which a server gives one
    /// message whole.
    pub bytes_max: Option<u64>,
    /// Whether the leader must first confirm that it still leads, so that the read sees every acknowledged write.
    pub leader: bool,
    /// The history that is meant.
    pub incarnation: Option<Incarnation>,
    /// Milliseconds to wait at the tail for something new (a long-poll); never together with `leader`.
    pub wait_ms: Option<u64>,
}

/// What a read found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The bytes; empty at the tail. Of a JSON stream, the array of its messages.
    pub body: Bytes,
    /// What they are; empty where there are none.
    pub content_type: String,
    /// The offset behind them.
    pub next: Offset,
    /// The history that they belong to.
    pub incarnation: Incarnation,
    /// Whether nothing lay behind them when the answer was made.
    pub up_to_date: bool,
    /// Whether nothing ever will.
    pub closed: bool,
}

/// A HEAD's answer: who answered, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadAnswer {
    /// Who answered; `None` without a whole identity.
    pub identity: Option<Identity>,
    /// What.
    pub answer: Answer<Head>,
}

/// One stream behind one client.
///
/// ```no_run
/// use highwater_client::{Client, From, Options, Outcome, Read, Stream, StreamUrl};
/// use std::sync::Arc;
///
/// let client = Arc::new(Client::new(Options::from_environment())?);
/// let stream = Stream::new(client, StreamUrl::parse("http://127.0.0.1:4437/v1/stream/demo")?);
/// let (_, answer) = stream.read(&Read { from: From::Start, bytes_max: None, leader: true, incarnation: None, wait_ms: None });
/// if let Outcome::Done(piece) = answer.outcome {
///     println!("{} bytes, then {}", piece.body.len(), piece.next);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Stream {
    client: Arc<Client>,
    url: StreamUrl,
}

impl Stream {
    /// The stream at this address.
    #[must_use]
    pub fn new(client: Arc<Client>, url: StreamUrl) -> Self {
        Self { client, url }
    }

    /// The stream's address.
    #[must_use]
    pub fn url(&self) -> &StreamUrl {
        &self.url
    }

    /// The client underneath.
    #[must_use]
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Creates the stream, or finds it with the same settings. Done: its token.
    #[must_use]
    pub fn create(&self, content_type: &str, body: Option<&[u8]>, close: bool) -> (TokenId, Answer<Written>) {
        self.create_with(&Create { content_type, expiry: None, close, body })
    }

    /// As [`Self::create`], with everything that can be set.
    #[must_use]
    pub fn create_with(&self, create: &Create<'_>) -> (TokenId, Answer<Written>) {
        let mut headers = vec![("content-type", create.content_type.to_owned())];
        match &create.expiry {
            None => {}
            Some(Expiry::Ttl(ttl_s)) => headers.push(("stream-ttl", ttl_s.to_string())),
            Some(Expiry::At(at)) => headers.push(("stream-expires-at", at.clone())),
        }
        if create.close {
            headers.push(("stream-closed", "true".to_owned()));
        }
        // A body of no bytes, rather than none, makes the client send a length.
        self.write(WriteKind::Create, Method::PUT, headers, Some(create.body.unwrap_or_default()))
    }

    /// Appends, claims or closes. Done: a receipt with a key, the stream's new end without.
    #[must_use]
    pub fn append(&self, append: &Append<'_>) -> (TokenId, Answer<Written>) {
        let mut headers = vec![("content-type", append.content_type.to_owned())];
        headers.extend(append.incarnation.map(|token| ("stream-incarnation", token.to_string())));
        if append.close {
            headers.push(("stream-closed", "true".to_owned()));
        }
        let kind = match &append.key {
            None => WriteKind::Keyless,
            Some(key) => {
                headers.push(("producer-id", key.id.clone()));
                headers.push(("producer-epoch", key.epoch.to_string()));
                headers.push(("producer-seq", key.seq.to_string()));
                headers.push(("producer-digest", Digest::of(append.body).to_string()));
                WriteKind::Keyed
            }
        };
        self.write(kind, Method::POST, headers, Some(append.body))
    }

    /// Removes the stream, of this history if one is named.
    #[must_use]
    pub fn delete(&self, incarnation: Option<Incarnation>) -> (TokenId, Answer<Written>) {
        let headers = incarnation.map(|token| ("stream-incarnation", token.to_string())).into_iter().collect();
        self.write(WriteKind::Delete, Method::DELETE, headers, None)
    }

    /// Asks for the stream's head, of this history if one is named.
    #[must_use]
    pub fn head(&self) -> (TokenId, HeadAnswer) {
        let (token, reply) = self.exchange(Method::HEAD, String::new(), Vec::new(), None, ERROR_BODY_BYTES_MAX as u64);
        let answer = match reply {
            Err(cause) => HeadAnswer { identity: None, answer: Answer::none(cause) },
            Ok(Reply { status, headers, body }) => HeadAnswer {
                identity: identity(&headers),
                answer: read(status, &headers, &body, |status| (status == 200).then(|| head(&headers)).flatten()),
            },
        };
        (token, answer)
    }

    /// Reads a range, or waits for something new at the tail. Done with no bytes: nothing was there.
    #[must_use]
    pub fn read(&self, request: &Read) -> (TokenId, Answer<Piece>) {
        let query = query(request);
        let headers: Vec<_> =
            request.incarnation.map(|token| ("stream-incarnation", token.to_string())).into_iter().collect();
        // A server that sends more than it was asked for, or than any server may, has given no answer. The most that
        // one may send is one message of a JSON stream, in its array.
        let most = request.bytes_max.unwrap_or(limits::REQUEST_BYTES_MAX + 2).max(ERROR_BODY_BYTES_MAX as u64);
        let (token, reply) = self.exchange(Method::GET, query, headers, None, most);
        let answer = match reply {
            Err(cause) => Answer::none(cause),
            Ok(Reply { status, headers, body }) => {
                read(status, &headers, &body, |status| piece(status, &headers, body.clone()))
            }
        };
        (token, answer)
    }

    fn write(
        &self,
        kind: WriteKind,
        method: Method,
        headers: Vec<(&'static str, String)>,
        body: Option<&[u8]>,
    ) -> (TokenId, Answer<Written>) {
        let (token, reply) = self.exchange(method, String::new(), headers, body, ERROR_BODY_BYTES_MAX as u64);
        let answer = match reply {
            Err(cause) => Answer::none(cause),
            Ok(Reply { status, headers, body }) => classify(kind, status, &headers, &body),
        };
        (token, answer)
    }

    fn exchange(
        &self,
        method: Method,
        query: String,
        headers: Vec<(&'static str, String)>,
        body: Option<&[u8]>,
        answer_bytes_max: u64,
    ) -> (TokenId, Result<Reply, String>) {
        let url = format!("{}{query}", self.url);
        self.client.exchange(&Request { method, url, headers, body, answer_bytes_max })
    }
}

fn query(request: &Read) -> String {
    let mut query = match request.from {
        From::Start => "?offset=-1".to_owned(),
        From::Now => "?offset=now".to_owned(),
        From::At(offset) => format!("?offset={offset}"),
    };
    if let Some(bytes_max) = request.bytes_max {
        query.push_str(&format!("&max_bytes={bytes_max}"));
    }
    if request.leader {
        query.push_str("&consistency=leader");
    }
    if let Some(wait_ms) = request.wait_ms {
        query.push_str(&format!("&live=long-poll&timeout_ms={wait_ms}"));
    }
    query
}

/// A piece of a stream; nothing if the answer lacks its typed headers, so that it proves nothing.
fn piece(status: u16, headers: &Headers, body: Bytes) -> Option<Piece> {
    if !matches!(status, 200 | 204) || (status == 204 && !body.is_empty()) {
        return None;
    }
    Some(Piece {
        content_type: headers.text("content-type").ok()?.unwrap_or_default().to_owned(),
        next: headers.offset("stream-next-offset").ok()??,
        incarnation: headers.incarnation("stream-incarnation").ok()??,
        up_to_date: headers.flag("stream-up-to-date").ok()? || status == 204,
        closed: headers.flag("stream-closed").ok()?,
        body,
    })
}

impl<T> Answer<T> {
    /// What was done, if it was.
    #[must_use]
    pub fn done(self) -> Option<T> {
        match self.outcome {
            Outcome::Done(done) => Some(done),
            _ => None,
        }
    }
}
