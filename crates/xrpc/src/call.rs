//! What a method is asked.

use crate::auth::Access;
use crate::body::{self, Arriving};
use crate::context::Context;
use crate::error::{Error, Name, Result};
use crate::limits::network;
use crate::query::Query;
use crate::shares::{Party, Share};
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::header;
use axum::http::request::Parts;
use bytes::{Bytes, BytesMut};
use highwater_host::Host;
use highwater_pds::{Account, AccountId};
use serde::de::DeserializeOwned;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::timeout;

/// Bytes of room that a body takes at a time, as it comes.
const STEP_BYTES: usize = 64 << 10;

/// Bytes of a body that is parsed where it was read: what they may become is made in well under a millisecond.
const PARSED_AT_ONCE_BYTES_MAX: usize = 16 << 10;

/// Characters of a parser's error that are told.
const TOLD_CHARS_MAX: usize = 300;

/// Whose request it is, as an extension of the request, if somebody in front of these routes knows better than the socket.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

/// A request to a method.
pub struct Call {
    /// What all methods share.
    pub context: Arc<Context>,
    /// The request's head.
    pub head: Parts,
    /// Its parameters.
    pub query: Query,
    /// Where it comes from.
    pub peer: IpAddr,
    /// Its body, not read yet.
    pub body: Body,
    /// The account whose request it is, once that was asked.
    account: OnceLock<AccountId>,
    /// It showed the administrator's password.
    operator: AtomicBool,
}

impl Call {
    pub(crate) fn new(context: Arc<Context>, head: Parts, body: Body) -> Result<Self> {
        let (query, peer) = (Query::parse(head.uri.query())?, peer(&head));
        Ok(Self { context, head, query, peer, body, account: OnceLock::new(), operator: AtomicBool::new(false) })
    }

    /// Whose request it is, by what is durable now. Bodies and turns take their time: whatever the request then has done, the host
    /// judges again by the [`Access::asker`] that goes with it.
    /// # Errors
    /// As [`crate::Gatekeeper::access`].
    pub fn access(&self) -> Result<Access> {
        let access = self.context.gatekeeper.access(&self.context, &self.head)?;
        self.account.get_or_init(|| access.account);
        Ok(access)
    }

    /// It comes from the administrator.
    pub(crate) fn is_operators(&self) {
        self.operator.store(true, Ordering::Relaxed);
    }

    /// The host, as whoever asks reads an account: also its owner, who shows a session of it, while it is deactivated.
    /// # Errors
    /// `RepoNotFound`, `RepoTakendown`, `RepoSuspended`, `RepoDeactivated`; as [`Self::access`] for a session that is none.
    pub fn reads(&self, account: &Account) -> Result<Host> {
        let host = &self.context.host;
        let Err(unserved) = account.served() else { return Ok(host.clone()) };
        let shows = self.head.headers.contains_key(header::AUTHORIZATION);
        if account.owner_reads() && shows && self.access()?.account == account.id {
            return Ok(host.for_owner());
        }
        Err(unserved.into())
    }

    /// Who counts as one where something is shared.
    #[must_use]
    pub fn party(&self) -> Party {
        if self.operator.load(Ordering::Relaxed) {
            return Party::Operator;
        }
        let account = self.account.get().copied().map(Party::Account);
        account.unwrap_or_else(|| Party::Address(network(self.peer)))
    }

    /// The body's media type, in lower case and without its parameters.
    #[must_use]
    pub fn media_type(&self) -> Option<String> {
        let value = self.head.headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
        Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
    }

    /// Reads a body of JSON with a few short fields.
    /// # Errors
    /// `UnsupportedMediaType`, `PayloadTooLarge`, `RequestTimeout`, `NotEnoughResources`; `InvalidRequest` if it is not what
    /// the method reads.
    pub async fn json<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.check_json()?;
        let body = self.bytes(self.context.options.fields_bytes_max).await?;
        parse(&body.what)
    }

    /// Reads a body of JSON that may be large, and makes of it what is kept: on a thread for that, unless it is small. What is
    /// made must not be larger than the body, whose room it has from then on; whatever `make` was given is gone by then.
    /// # Errors
    /// As [`Self::json`], and those of `make`.
    pub(crate) async fn large_json<T: DeserializeOwned, M: Send + 'static>(
        &mut self,
        make: impl FnOnce(T) -> Result<M> + Send + 'static,
    ) -> Result<Read<M>> {
        self.check_json()?;
        let Read { what: body, room } = self.bytes(self.context.options.json_bytes_max).await?;
        let small = body.len() <= PARSED_AT_ONCE_BYTES_MAX;
        let work = move || parse(&body).and_then(make).map(|what| Read { what, room });
        if small {
            return work();
        }
        // Values take many times their text: a few bodies become some at a time, and the others wait as they came.
        let turn = Arc::clone(&self.context.parsing).acquire_owned().await;
        let turn = turn.map_err(|error| crate::answer::internal(&error))?;
        let parsed = blocking(move || {
            let _turn = turn;
            work()
        });
        parsed.await?
    }

    fn check_json(&self) -> Result<()> {
        match self.media_type().as_deref() {
            Some("application/json") => Ok(()),
            _ => Err(Error::new(Name::UnsupportedMediaType, "the body must be application/json")),
        }
    }

    /// Reads a whole body of at most `bytes_max` bytes.
    /// # Errors
    /// `UnsupportedMediaType` if it is compressed; `PayloadTooLarge`, `RequestTimeout`, `NotEnoughResources`.
    async fn bytes(&mut self, bytes_max: usize) -> Result<Read<Bytes>> {
        let too_large =
            || Error::new(Name::PayloadTooLarge, format!("the body may have {bytes_max} bytes at the most"));
        let declared = body::declared(&self.head)?;
        if declared.is_some_and(|declared| declared > bytes_max as u64) {
            return Err(too_large());
        }
        // Room is taken for what came, not for what is announced: whoever announces much and sends nothing would keep it from others.
        let step = STEP_BYTES.min(bytes_max.next_multiple_of(1 << 10));
        let mut room = self.context.bodies.take(self.party(), step >> 10)?;
        let options = &self.context.options;
        let mut arriving = Arriving::new(&mut self.body, options).within(options.body_ms_max);
        let mut read = BytesMut::new();
        while let Some(data) = arriving.next().await? {
            let length = read.len() + data.len();
            if length > bytes_max {
                return Err(too_large());
            }
            room.grow(length.next_multiple_of(step) >> 10)?;
            read.extend_from_slice(&data);
        }
        Ok(Read { what: read.freeze(), room })
    }
}

/// What was read, or made of it, with the room that it takes from others.
pub(crate) struct Read<T> {
    pub what: T,
    pub room: Share,
}

/// What a body of JSON says.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|error| {
        // It may quote the body.
        let told: String = error.to_string().chars().take(TOLD_CHARS_MAX).collect();
        Error::invalid(format!("the body: {told}"))
    })
}

/// Does what may wait for the disk, on a thread for that.
/// # Errors
/// `InternalServerError` if it panicked.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| crate::answer::internal(&error))
}

/// Reads what is stored, on a thread that may wait for the disk. Some reads go on at once; the others wait for their turn.
/// # Errors
/// `NotEnoughResources` if there are too many, and those of `read`.
pub(crate) async fn reading<T: Send + 'static>(
    context: &Context,
    read: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let wait = Duration::from_millis(context.options.read_wait_ms_max);
    let turn = timeout(wait, Arc::clone(&context.reads).acquire_owned()).await;
    let turn = turn.map_err(|_| crate::answer::busy("too many reads at once; try again in a moment".to_owned()))?;
    let turn = turn.map_err(|error| crate::answer::internal(&error))?;
    let work = blocking(move || {
        let _turn = turn;
        read()
    });
    work.await?
}

/// Where a request comes from.
fn peer(head: &Parts) -> IpAddr {
    let told = head.extensions.get::<Peer>().map(|peer| peer.0);
    let socket = || head.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    told.or_else(socket).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)).to_canonical()
}
