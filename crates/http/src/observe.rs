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
            path = self.uri.path(),
            status = response.status().as_u16(),
            code,
            ms = took.as_secs_f64() * 1e3,
            untold,
            "a request was answered"
        );
    }
}
