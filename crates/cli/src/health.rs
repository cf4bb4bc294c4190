//! `highwater health`: asks a server on this machine whether it serves, for scripts and container health checks.

use crate::exit::{self, Status};
use crate::output;
use anyhow::{Context as _, Result};
use highwater_client::{Client, Options, TokenSource, Verb};
use serde::Serialize;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(4);

/// Bytes of an answer that are looked at; a reason is a line.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

#[derive(Serialize)]
struct Health {
    ready: bool,
    reason: Option<String>,
}

/// Asks `/readyz` below `url`.
pub fn run(url: &str, json: bool) -> Result<()> {
    let (secure, host) = match url.strip_prefix("https://") {
        Some(host) => (true, Some(host)),
        None => (false, url.strip_prefix("http://")),
    };
    let host = host.map(|rest| rest.trim_end_matches('/'));
    let Some(host) = host.filter(|host| !host.is_empty() && !host.contains('/')) else {
        let words = format!("{url} is not the address of a listener, such as http://127.0.0.1:4437");
        return Err(exit::with(Status::Wrong, words));
    };
    let health = match if secure { ask_securely(host) } else { ask(host) } {
        // What else it says is of a part that is not served.
        Ok((200, said)) => {
            let rest = said.trim().strip_prefix("ready").map(|rest| rest.trim_start_matches(';').trim().to_owned());
            Health { ready: true, reason: rest.filter(|rest| !rest.is_empty()) }
        }
        Ok((status, said)) => Health { ready: false, reason: Some(format!("{status}: {}", said.trim())) },
        Err(error) => Health { ready: false, reason: Some(format!("{error:#}")) },
    };
    if json {
        output::json(&health)?;
    } else if health.ready {
        println!("{}", health.reason.as_ref().map_or("ready".to_owned(), |reason| format!("ready; {reason}")));
    }
    match health.reason {
        Some(reason) if !health.ready => {
            Err(exit::with(Status::Later, format!("the server at {url} does not serve: {reason}")))
        }
        _ => Ok(()),
    }
}

/// As [`ask`], over TLS. No key is sent: none is needed.
fn ask_securely(host: &str) -> Result<(u16, String)> {
    let options = Options { token: TokenSource::none(), patience: PATIENCE, ..Options::from_environment() };
    let client = Client::new(options).context("cannot set up the HTTP client")?;
    let answer = client.manage(Verb::Get, &format!("https://{host}/readyz"), None, None);
    let answer = answer.map_err(anyhow::Error::msg)?;
    Ok((answer.status, String::from_utf8_lossy(&answer.body).into_owned()))
}

/// The status and the body of the answer.
fn ask(host: &str) -> Result<(u16, String)> {
    let with_port = if host.rsplit(']').next().is_some_and(|rest| rest.contains(':')) {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    let address = with_port.to_socket_addrs()?.next().context("the name has no address")?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET /readyz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("it does not speak HTTP")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("it does not speak HTTP")?;
    Ok((status, body.to_owned()))
}
