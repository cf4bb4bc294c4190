//! A Highwater server in a process of its own, on the operating system's disk.

use crate::subject::{Dialect, Subject};
use anyhow::{Context as _, Result};
use highwater_disk::{OsDisk, SystemClock, SystemRandom};
use highwater_http::{Front, HttpOptions, Lanes, Listener, Server};
use highwater_node::{Config, Node};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections of the server that is measured: enough for the largest cell.
const CONNECTIONS_MAX: usize = 16_384;

/// A server of one node, killed when dropped.
pub struct Highwater {
    child: Child,
    address: SocketAddr,
    directory: PathBuf,
    /// From its start until it served.
    pub started: Duration,
}

impl Highwater {
    /// Opens the directory `server` below this one, or makes it, and serves it on loopback.
    pub fn start(directory: &Path) -> Result<Self> {
        let directory = directory.join("server");
        let begun = Instant::now();
        let mut child = Command::new(std::env::current_exe()?)
            .arg("serve-child")
            .arg(&directory)
            .stdout(Stdio::piped())
            .stdin(Stdio::piped())
            .spawn()
            .context("the server's process does not start")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("its output")?).read_line(&mut line)?;
        let address = line.trim().parse().context("the server did not start")?;
        Ok(Self { child, address, directory, started: begun.elapsed() })
    }

    /// Kills it as a crash would, and starts it again.
    pub fn kill_and_restart(mut self) -> Result<Self> {
        self.child.kill()?;
        self.child.wait()?;
        let parent = self.directory.parent().context("a parent")?.to_owned();
        Self::start(&parent)
    }

    /// Stops it cleanly, and starts it again.
    pub fn restart(mut self) -> Result<Self> {
        drop(self.child.stdin.take());
        self.child.wait()?;
        let parent = self.directory.parent().context("a parent")?.to_owned();
        Self::start(&parent)
    }

    /// It, to be measured.
    pub fn subject(&self) -> Subject {
        Subject {
            address: self.address,
            dialect: Dialect::DurableStreams,
            prefix: "/v1/stream/bench".to_owned(),
            pid: Some(self.child.id()),
        }
    }

    /// The URL of a stream.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}/v1/stream/{path}", self.address)
    }
}

impl Drop for Highwater {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Is the server: prints its address, and ends when its input does.
pub fn child(directory: &Path) -> Result<()> {
    let config = Config::new(directory);
    let node = Node::open(config, Arc::new(OsDisk::new()), Arc::new(SystemClock::new()), Box::new(SystemRandom))?;
    let options = HttpOptions { connections_max: CONNECTIONS_MAX, ..HttpOptions::default() };
    let runtime = tokio::runtime::Runtime::new()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", listener.local_addr()?)?;
    out.flush()?;
    let listener = Listener { socket: listener, tls: None, front: Front::default() };
    let server = Server::new(node.handle(), options).over(Lanes::start()?);
    runtime.spawn(server.serve(vec![listener], std::future::pending()));
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    runtime.shutdown_background();
    node.shutdown()?;
    Ok(())
}
