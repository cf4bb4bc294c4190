//! A closed-loop HTTP/1.1 load over loopback: each connection sends its next request when the last was answered.

use crate::quantiles::{Quantiles, Recorder};
use anyhow::{Context as _, Result, bail};
use axum::Router;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// What is sent.
#[derive(Debug, Clone)]
pub struct Load {
    /// Connections, each with one request in flight.
    pub connections: usize,
    /// Bytes of every body.
    pub body_bytes: usize,
    /// How long requests are sent.
    pub duration: Duration,
    /// Header lines, each ended by CRLF.
    pub headers: String,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            connections: 1,
            body_bytes: 256,
            duration: Duration::from_secs(1),
            headers: "Content-Type: application/octet-stream\r\n".to_owned(),
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    /// Requests answered a second.
    pub per_second: f64,
    /// From the request's first byte to the answer's last.
    pub latency_us: Quantiles,
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

/// Sends POSTs until the time is over; connection `n` to the path `path(n)`.
pub fn run(address: SocketAddr, load: &Load, path: impl Fn(usize) -> String) -> Result<Report> {
    let runtime = Runtime::new()?;
    runtime.block_on(async {
        let begun = Instant::now();
        let tasks = (0..load.connections)
            .map(|number| tokio::spawn(connection(address, request(load, &path(number)), load.duration)))
            .collect::<Vec<_>>();
        let mut all = Quantiles::recorder();
        for task in tasks {
            all.merge(&task.await??);
        }
        let latency_us = all.finish();
        Ok(Report { per_second: latency_us.count as f64 / begun.elapsed().as_secs_f64(), latency_us })
    })
}

fn request(load: &Load, path: &str) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n{}\r\n",
        load.body_bytes, load.headers
    );
    let mut request = head.into_bytes();
    request.resize(request.len() + load.body_bytes, b'x');
    request
}

async fn connection(address: SocketAddr, request: Vec<u8>, duration: Duration) -> Result<Recorder> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let mut latencies = Quantiles::recorder();
    let start = Instant::now();
    while start.elapsed() < duration {
        let begun = Instant::now();
        stream.get_mut().write_all(&request).await?;
        answer(&mut stream).await?;
        latencies.record(begun.elapsed());
    }
    Ok(latencies)
}

/// Reads one answer whose length its head tells.
async fn answer(stream: &mut BufReader<TcpStream>) -> Result<()> {
    let mut head = Vec::with_capacity(512);
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head)?.to_ascii_lowercase();
    if !head.starts_with("http/1.1 20") {
        bail!("unexpected answer: {head}");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.map_or(Ok(0), |value| value.trim().parse()).context("a Content-Length")?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(())
}
