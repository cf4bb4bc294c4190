//! `highwater pds follow`: a consumer that takes nothing on trust.

use super::arguments::FollowArguments;
use crate::exit::{self, Status};
use crate::output;
use anyhow::{Context as _, Result};
use bytes::Bytes;
use highwater_base::Clock as _;
use highwater_client::websocket::{Message, WebSocket, WebSocketOptions};
use highwater_client::{Client, Options, TokenSource};
use highwater_consumer::follower::{Follower, Input, Options as Rules, Output, Source};
use highwater_consumer::frame::ErrorFrame;
use highwater_disk::SystemClock;
use highwater_repo::key::PublicKey;
use highwater_repo::syntax::Did;
use highwater_repo::write::Operation;
use serde_json::{Value, json};
use std::time::Duration;

/// Milliseconds between two attempts to connect.
const PAUSE_MS: u64 = 1_000;

/// How long a connection may be silent before the server is asked for a sign of life, and again before it is given up: a stream
/// that rests is quiet, and one whose other end is gone is, too.
const QUIET: Duration = Duration::from_secs(45);

/// Bytes of a repository that is asked for, at the most.
const REPO_BYTES_MAX: u64 = 1 << 30;

/// Bytes of a DID document, at the most.
const DOCUMENT_BYTES_MAX: u64 = 1 << 20;

/// Follows until it is stopped, or has come as far as it should.
pub fn run(arguments: &FollowArguments) -> Result<()> {
    let url = arguments.url.trim_end_matches('/');
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(exit::with(Status::Wrong, format!("{url} is no URL of a server such as https://pds.example.com")));
    }
    let socket = format!("{url}/xrpc/com.atproto.sync.subscribeRepos");
    let mut source = Server::new(url)?;
    let (mut follower, mut broken) = (Follower::new(Rules::default()), 0);
    loop {
        let cursor = follower.cursor().or(arguments.cursor);
        match read(&socket, cursor, &mut follower, &mut source, arguments, &mut broken) {
            Ok(Ended::Enough) => break,
            Ok(Ended::Refused(why)) => return Err(exit::with(Status::Failed, why)),
            Err(error) => eprintln!("highwater: {error:#}; connecting again"),
        }
        std::thread::sleep(Duration::from_millis(PAUSE_MS));
    }
    match broken {
        0 => Ok(()),
        broken => Err(exit::with(Status::Differs, format!("the server broke a rule {broken} times"))),
    }
}

/// Why nothing more is read.
enum Ended {
    Enough,
    Refused(String),
}

fn read(
    socket: &str,
    cursor: Option<u64>,
    follower: &mut Follower,
    source: &mut Server,
    arguments: &FollowArguments,
    broken: &mut u64,
) -> Result<Ended> {
    let target = cursor.map_or_else(|| socket.to_owned(), |cursor| format!("{socket}?cursor={cursor}"));
    let options = WebSocketOptions { ca_file: Options::from_environment().ca_file, ..WebSocketOptions::default() };
    let mut connection = WebSocket::connect(&target, &options)?;
    let mut take = |follower: &mut Follower, input| -> Result<Option<String>> {
        let mut refused = None;
        for found in follower.follow(SystemClock::new().wall(), input, source) {
            *broken += u64::from(matches!(found, Output::Violation { .. }));
            // Whoever was too slow comes back with its cursor; nobody comes back from the future.
            if let Output::Refused(error) = &found
                && error.error == "FutureCursor"
            {
                refused = Some(format!("the server closes the stream: {}", refusal(error)));
            }
            tell(&found, arguments.json)?;
        }
        Ok(refused)
    };
    take(follower, Input::Connected { cursor })?;
    let mut asked = false;
    loop {
        let read = connection.read(QUIET)?;
        asked &= read.is_none();
        match read {
            Some(Message::Binary(bytes)) => {
                if let Some(why) = take(follower, Input::Message(bytes))? {
                    return Ok(Ended::Refused(why));
                }
            }
            Some(Message::Close { code, reason }) => anyhow::bail!("the server closed the connection: {code} {reason}"),
            Some(_) => {}
            None if asked => anyhow::bail!("the server gave no sign of life for {} s", 2 * QUIET.as_secs()),
            None => {
                connection.ping()?;
                asked = true;
            }
        }
        if arguments.until.is_some_and(|until| follower.cursor() >= Some(until)) {
            return Ok(Ended::Enough);
        }
    }
}

fn tell(found: &Output, json: bool) -> Result<()> {
    let event = describe(found);
    if json {
        return output::json(&event);
    }
    let words: Vec<String> = ["sequence", "event", "did", "rev", "active", "status", "handle", "reason"]
        .iter()
        .filter(|name| !event[**name].is_null())
        .map(|name| crate::manage::text(&event[*name]))
        .collect();
    println!("{}", words.join("  "));
    for operation in event["operations"].as_array().into_iter().flatten() {
        println!("    {}  {}", crate::manage::text(&operation["action"]), crate::manage::text(&operation["path"]));
    }
    Ok(())
}

/// What was found, as JSON: every member is there, and `null` where the event has none.
fn describe(found: &Output) -> Value {
    let mut event = json!({
        "event": null, "sequence": null, "did": null, "rev": null, "active": null, "status": null, "handle": null,
        "reason": null, "operations": null,
    });
    let mut set = |name: &str, value: Value| event[name] = value;
    match found {
        Output::Account { sequence, did, position } => {
            set("event", "account".into());
            set("sequence", (*sequence).into());
            set("did", did.as_str().into());
            set("active", position.is_active().into());
            set("status", position.status().map(|status| status.as_str()).into());
        }
        Output::Identity { sequence, did, handle } => {
            set("event", "identity".into());
            set("sequence", (*sequence).into());
            set("did", did.as_str().into());
            set("handle", handle.as_ref().map(|handle| handle.as_str()).into());
        }
        Output::Committed { sequence, did, rev, operations, .. } => {
            set("event", "commit".into());
            set("sequence", (*sequence).into());
            set("did", did.as_str().into());
            set("rev", rev.to_string().into());
            set("operations", operations.iter().map(operation).collect());
        }
        Output::Advanced { sequence, did, rev } => {
            set("event", "sync".into());
            set("sequence", (*sequence).into());
            set("did", did.as_str().into());
            set("rev", rev.to_string().into());
        }
        Output::Ignored { sequence, did, rev, held, .. } => {
            set("event", "ignored".into());
            set("sequence", (*sequence).into());
            set("did", did.as_str().into());
            set("rev", rev.to_string().into());
            set("reason", format!("{held} is held").into());
        }
        Output::Desynchronized { sequence, did, cause } => {
            set("event", "desynchronized".into());
            set("sequence", (*sequence).into());
            set("did", did.as_str().into());
            set("reason", format!("{cause:?}").to_lowercase().into());
        }
        Output::Resynchronized { did, rev } => {
            set("event", "resynchronized".into());
            set("did", did.as_str().into());
            set("rev", rev.to_string().into());
        }
        Output::Outdated => set("event", "outdated".into()),
        Output::Refused(error) => {
            set("event", "refused".into());
            set("reason", refusal(error).into());
        }
        Output::Violation { sequence, did, violation } => {
            set("event", "violation".into());
            set("sequence", (*sequence).into());
            set("did", did.as_ref().map(Did::as_str).into());
            set("reason", violation.to_string().into());
        }
        // What is asked for is answered before it is told of.
        Output::Resolve { did } | Output::GetRepo { did } => set("did", did.as_str().into()),
    }
    event
}

fn refusal(error: &ErrorFrame) -> String {
    let message = error.message.as_deref().map(|message| format!(": {message}")).unwrap_or_default();
    format!("{}{message}", error.error)
}

fn operation(operation: &Operation) -> Value {
    let action = match (&operation.previous, &operation.cid) {
        (None, _) => "create",
        (Some(_), Some(_)) => "update",
        (Some(_), None) => "delete",
    };
    json!({ "action": action, "path": operation.path, "cid": operation.cid.map(|cid| cid.to_string()) })
}

/// The server that is followed, for what its stream does not carry.
struct Server {
    client: Client,
    url: String,
}

impl Server {
    fn new(url: &str) -> Result<Self> {
        let options = Options { token: TokenSource::none(), ..Options::from_environment() };
        Ok(Self { client: Client::new(options).context("cannot set up the HTTP client")?, url: url.to_owned() })
    }

    /// A DID document. Names below localhost are in no DNS: their server is the one that is followed.
    fn document(&self, did: &Did) -> Option<Bytes> {
        let name = did.as_str();
        let (url, host) = match name.strip_prefix("did:web:").map(|host| host.replace("%3A", ":")) {
            Some(host) if is_localhost(&host) => (self.url.clone(), Some(host)),
            Some(host) => (format!("https://{host}"), None),
            None => return self.fetch(&format!("https://plc.directory/{name}"), None, DOCUMENT_BYTES_MAX),
        };
        self.fetch(&format!("{url}/.well-known/did.json"), host, DOCUMENT_BYTES_MAX)
    }

    fn fetch(&self, url: &str, host: Option<String>, bytes_max: u64) -> Option<Bytes> {
        let headers: Vec<_> = host.map(|host| ("host", host)).into_iter().collect();
        match self.client.fetch(url, headers, bytes_max) {
            Ok(answer) if answer.status == 200 => Some(answer.body),
            Ok(answer) => {
                eprintln!("highwater: {url} answers {}", answer.status);
                None
            }
            Err(why) => {
                eprintln!("highwater: {url}: {why}");
                None
            }
        }
    }
}

fn is_localhost(host: &str) -> bool {
    let name = host.split(':').next().unwrap_or(host);
    name == "localhost" || name.ends_with(".localhost")
}

impl Source for Server {
    fn key(&mut self, did: &Did) -> Option<PublicKey> {
        let document: Value = serde_json::from_slice(&self.document(did)?).ok()?;
        let methods = document["verificationMethod"].as_array()?;
        let method = methods.iter().find(|method| method["id"].as_str().is_some_and(|id| id.ends_with("#atproto")))?;
        PublicKey::parse(method["publicKeyMultibase"].as_str()?).ok()
    }

    fn repo(&mut self, did: &Did) -> Option<Bytes> {
        let url = format!("{}/xrpc/com.atproto.sync.getRepo?did={}", self.url, crate::manage::segment(did.as_str()));
        self.fetch(&url, None, REPO_BYTES_MAX)
    }
}
