//! Appends over loopback: closed loop, where each connection sends its next request when the last was answered, or open
//! loop, where requests are due at fixed times and a late answer counts from when its request was due.

use crate::process::Usage;
use crate::quantiles::{Quantiles, Recorder};
use crate::subject::{Subject, Template, request};
use crate::wire::Wire;
use anyhow::Result;
use axum::Router;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// What is sent.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Connections, each with one request in flight.
    pub writers: usize,
    /// Streams that they write to in turn.
    pub streams: usize,
    /// Bytes of every body.
    pub bytes: usize,
    /// Each writer is a producer, whose repeats would be recognised.
    pub keyed: bool,
    /// Requests a second in all, or as many as are answered.
    pub per_second: Option<f64>,
}

impl Default for Load {
    fn default() -> Self {
        Self { writers: 1, streams: 1, bytes: 256, keyed: false, per_second: None }
    }
}

/// What came of it.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    /// Requests answered a second.
    pub per_second: f64,
    /// To the answer's last byte, from the request's first or from when it was due.
    pub latency_us: Quantiles,
    /// What the server's process used meanwhile, if it is known; its memory is that of the end.
    pub used: Option<Usage>,
}

impl Report {
    /// Microseconds of the server's processor time for each request.
    pub fn cpu_us_each(&self) -> Option<f64> {
        self.used.map(|used| used.cpu_us as f64 / self.latency_us.count.max(1) as f64)
    }

    /// Times that a thread of the server went to sleep, for each request.
    pub fn switches_each(&self) -> Option<f64> {
        self.used.map(|used| used.switches as f64 / self.latency_us.count.max(1) as f64)
    }
}

/// A server on a loopback port of its own threads, stopped when dropped.
pub struct Server {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Server {
    /// Serves `router` as the server serves its own.
    pub fn start(router: Router) -> Result<Self> {
        let runtime = Runtime::new()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let options = highwater_http::HttpOptions::default();
        runtime.spawn(highwater_http::serve(listener, router, options, std::future::pending()));
        Ok(Self { address, runtime: Some(runtime) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Appends to streams that exist, named `{name}0` and so on.
pub fn run(subject: &Subject, name: &str, load: &Load, duration: Duration) -> Result<Report> {
    let body = vec![b'x'; load.bytes];
    let of = |number: usize| format!("{name}{}", number % load.streams);
    let requests = (0..load.writers).map(|number| {
        let template = subject.append_template(&of(number), &body, "application/octet-stream");
        Requests { template, producer: load.keyed.then(|| format!("{name}-{number}")), sent: 0 }
    });
    send(subject, requests.collect(), load.per_second, duration)
}

/// Sends the same bodies to a server that does nothing with them.
pub fn no_op(address: SocketAddr, connections: usize, bytes: usize, duration: Duration) -> Result<Report> {
    let subject =
        Subject { address, dialect: crate::subject::Dialect::DurableStreams, prefix: String::new(), pid: None };
    let template = subject.append_template("", &vec![b'x'; bytes], "application/octet-stream");
    let requests = vec![Requests { template, producer: None, sent: 0 }; connections];
    send(&subject, requests, None, duration)
}

/// The requests of one connection.
#[derive(Clone)]
struct Requests {
    template: Template,
    producer: Option<String>,
    sent: u64,
}

impl Requests {
    fn next(&mut self, request: &mut Vec<u8>) {
        match &self.producer {
            None if !request.is_empty() => {}
            None => self.template.write(format_args!(""), request),
            Some(id) => {
                let seq = self.sent;
                let key = format_args!("Producer-Id: {id}\r\nProducer-Epoch: 0\r\nProducer-Seq: {seq}\r\n");
                self.template.write(key, request);
            }
        }
        self.sent += 1;
    }
}

fn send(subject: &Subject, requests: Vec<Requests>, per_second: Option<f64>, duration: Duration) -> Result<Report> {
    let before = subject.usage();
    let pause = per_second.map(|per_second| Duration::from_secs_f64(requests.len() as f64 / per_second));
    let runtime = Runtime::new()?;
    runtime.block_on(async {
        let begun = Instant::now();
        let many = requests.len() as u32;
        let tasks = (0..).zip(requests).map(|(number, requests)| {
            // Those that are due at fixed times take turns.
            let schedule = pause.map(|pause| (pause, pause * number / many));
            tokio::spawn(connection(subject.address, requests, schedule, duration))
        });
        let mut all = Quantiles::recorder();
        for task in tasks.collect::<Vec<_>>() {
            all.merge(&task.await??);
        }
        let latency_us = all.finish();
        let per_second = latency_us.count as f64 / begun.elapsed().as_secs_f64();
        let used = before.zip(subject.usage()).map(|(before, after)| Usage {
            cpu_us: after.cpu_us - before.cpu_us,
            memory_bytes: after.memory_bytes,
            switches: after.switches.saturating_sub(before.switches),
        });
        Ok(Report { per_second, latency_us, used })
    })
}

async fn connection(
    address: SocketAddr,
    mut requests: Requests,
    schedule: Option<(Duration, Duration)>,
    duration: Duration,
) -> Result<Recorder> {
    let mut wire = Wire::connect(address).await?;
    let mut latencies = Quantiles::recorder();
    let start = Instant::now();
    let mut due = schedule.map(|(_, first)| start + first);
    let mut request = Vec::new();
    while start.elapsed() < duration {
        if let Some(due) = due {
            tokio::time::sleep_until(due.into()).await;
        }
        requests.next(&mut request);
        let begun = due.unwrap_or_else(Instant::now);
        wire.ask(&request).await?;
        latencies.record(begun.elapsed());
        due = due.zip(schedule).map(|(due, (pause, _))| due + pause);
    }
    Ok(latencies)
}

/// Asks for something once, on a connection of its own.
pub async fn get(subject: &Subject, path: &str) -> Result<crate::wire::Head> {
    Wire::connect(subject.address).await?.ask(&request("GET", path, "", b"")).await
}
