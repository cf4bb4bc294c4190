//! What is told of a request once it is answered: its counts, and its line in the log.

use crate::error::Code;
use crate::front::Arrival;
use crate::metrics::Work;
use crate::router::{App, below_streams};
use axum::http::request::Parts;
use axum::http::{Method, Uri};
use axum::response::Response;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// What every key begins with.
const KEY_MARK: &str = "hw_";

/// A path, as the log shows it: without what stands where an id belongs and may be a whole key.
fn told(path: &str) -> &str {
    let key = path.strip_prefix("/v1/keys/").is_some_and(|rest| rest.contains(KEY_MARK));
    if key { "/v1/keys/hw_..." } else { path }
}

/// A request that is being answered.
pub(crate) struct Observed {
    begun: Instant,
    method: Method,
    uri: Uri,
    client: IpAddr,
    work: Work,
}

impl Observed {
    /// Begins with its head.
    pub(crate) fn begin(head: &Parts, arrival: &Arrival) -> Self {
        let stream = below_streams(head.uri.path()).is_some();
        let work = Work::of(&head.method, stream, head.uri.query());
        let (method, uri) = (head.method.clone(), head.uri.clone());
        Self { begun: Instant::now(), method, uri, client: arrival.client, work }
    }

    /// Ends with its answer's head.
    pub(crate) fn end<S>(self, app: &App<S>, response: &Response) {
        let took = self.begun.elapsed();
        let error = response.extensions().get::<Code>().copied();
        app.counts.count(&self.method, response.status(), error, self.work, took);
        if app.options.requests_logged {
            self.tell("request", None, response, took);
        }
        let slow = self.work != Work::Wait && took >= Duration::from_millis(app.options.slow_request_ms);
        if slow && let Some(untold) = app.traffic.slow_told.tell() {
            self.tell("slow_request", Some(untold), response, took);
        }
    }

    /// One line. A query may hold what a client thinks is its own; of it the log needs nothing.
    fn tell(&self, event: &'static str, untold: Option<u64>, response: &Response, took: Duration) {
        let code = response.extensions().get::<Code>().map(|code| code.row().name);
        tracing::info!(
            event,
            client = %self.client,
            method = %self.method,
            path = told(self.uri.path()),
            status = response.status().as_u16(),
            code,
            ms = took.as_secs_f64() * 1e3,
            untold,
            "a request was answered"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_a_path_does_not_reach_the_log() {
        for path in ["/v1/keys/hw_zd3abwxj9peg_ymdj90y9tdxkfj6f37prq", "/v1/keys/xhw_zd3abwxj9peg_ymdj"] {
            assert_eq!(told(path), "/v1/keys/hw_...", "{path}");
        }
        for path in ["/v1/keys/zd3abwxj9peg", "/v1/keys", "/v1/stream/hw_a"] {
            assert_eq!(told(path), path);
        }
    }
}
