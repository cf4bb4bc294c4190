//! Requests about keys, accounts and plans, which are JSON both ways.

use crate::exchange::{Client, Request, Unanswered};
use bytes::Bytes;
use ureq::http::Method;

/// Bytes of an answer: a list of every key that a server may hold.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Reads.
    Get,
    /// Makes.
    Post,
    /// Changes.
    Patch,
    /// Revokes.
    Delete,
}

/// An answer, whatever it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Managed {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Bytes,
}

impl Client {
    /// Reads a resource of any server, with further headers and at most so many bytes.
    /// # Errors
    /// Why there is no whole answer, for people.
    pub fn fetch(&self, url: &str, headers: Vec<(&'static str, String)>, bytes_max: u64) -> Result<Managed, String> {
        let request =
            Request { method: Method::GET, url: url.to_owned(), headers, body: None, answer_bytes_max: bytes_max };
        let (_, reply) = self.exchange(&request);
        reply.map(|reply| Managed { status: reply.status, body: reply.body })
    }

    /// Sends one request below `/v1`. `request_id` makes one that creates something repeatable.
    /// # Errors
    /// [`Unanswered`]: there is no whole answer, and the request may have been carried out unless it says otherwise.
    pub fn manage(
        &self,
        verb: Verb,
        url: &str,
        request_id: Option<&str>,
        body: Option<&[u8]>,
    ) -> Result<Managed, Unanswered> {
        let method = match verb {
            Verb::Get => Method::GET,
            Verb::Post => Method::POST,
            Verb::Patch => Method::PATCH,
            Verb::Delete => Method::DELETE,
        };
        let mut headers = vec![("accept", "application/json".to_owned())];
        headers.extend(body.map(|_| ("content-type", "application/json".to_owned())));
        headers.extend(request_id.map(|id| ("request-id", id.to_owned())));
        let request = Request { method, url: url.to_owned(), headers, body, answer_bytes_max: ANSWER_BYTES_MAX };
        let (_, reply) = self.attempt(&request);
        reply.map(|reply| Managed { status: reply.status, body: reply.body })
    }
}
