//! A Highwater server in this process, on the operating system's disk.

use crate::load;
use anyhow::Result;
use highwater_disk::{OsDisk, SystemClock, SystemRandom};
use highwater_node::{Config, Node};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// A server of one node, stopped when dropped.
pub struct Highwater {
    http: load::Server,
    _node: Node,
}

impl Highwater {
    /// Opens an empty directory and serves it on loopback.
    pub fn start(directory: &Path) -> Result<Self> {
        let config = Config::new(directory.join("server"));
        let node = Node::open(config, Arc::new(OsDisk::new()), Arc::new(SystemClock::new()), Box::new(SystemRandom))?;
        let router = highwater_http::router(node.handle(), highwater_http::HttpOptions::default());
        Ok(Self { http: load::Server::start(router)?, _node: node })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.http.address()
    }

    /// The URL of a stream.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}/v1/stream/{path}", self.address())
    }
}
