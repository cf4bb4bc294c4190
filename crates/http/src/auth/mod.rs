//! Who asks, and what they may do.
//!
//! While no key exists, a listener on loopback is open, as `access` has it. From the first key on every request but
//! the probes needs one: it is looked up in the view that the control plane publishes, its scope and path are judged
//! before anything is asked of the node, so that a refusal tells nothing of what is there, and whoever asks in vain
//! again and again is answered slowly.
//!
//! Source: DESIGN decisions 9 and 12; the stream contract, answers of other layers.

mod live;
mod patience;
mod quota;
mod rates;

pub(crate) use live::{guarded, until};
pub(crate) use quota::check as check_quota;

use crate::error::{Code, Error};
use crate::front::Arrival;
use crate::names;
use crate::path::{Part, Target};
use crate::places;
use crate::router::App;
use crate::service::Service;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use highwater_base::Millis;
use highwater_control::{Credential, Denied, Key, KeyId, Scope, View};
use highwater_node::rooms::Asker;
use patience::Patience;
use rates::Rates;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tokio::sync::watch;

/// What a 401 says about how to ask.
const CHALLENGE: &str = "Bearer realm=\"highwater\"";

/// The same where a key was presented (RFC 6750, section 3.1).
const CHALLENGE_INVALID: &str = "Bearer realm=\"highwater\", error=\"invalid_token\"";

/// What the control plane knows, and what is remembered of those who ask.
#[derive(Debug)]
pub(crate) struct Guard {
    view: watch::Receiver<Option<Arc<View>>>,
    patience: Patience,
    rates: Rates,
}

/// By what right a request is answered; stands in the extensions of every request.
#[derive(Debug, Clone)]
pub(crate) struct Authority {
    /// The state by which it was judged.
    pub view: Arc<View>,
    /// Its key; absent in open mode.
    key: Option<Arc<Key>>,
    /// What the key was permitted to do with a stream.
    permitted: Option<Permitted>,
}

/// What was permitted, so that it can be judged once more.
#[derive(Debug, Clone)]
struct Permitted {
    /// Any of these was enough.
    scopes: &'static [Scope],
    /// The stream's path.
    path: Arc<str>,
}

impl Guard {
    pub(crate) fn new(view: watch::Receiver<Option<Arc<View>>>) -> Self {
        Self { view, patience: Patience::default(), rates: Rates::default() }
    }

    /// What the control plane knows now.
    /// # Errors
    /// `AUTHENTICATION_UNAVAILABLE` while that is not known: a server that does not know its keys takes none for
    /// granted, and is not open either.
    pub(crate) fn view(&self) -> Result<Arc<View>, Error> {
        self.view.borrow().clone().ok_or_else(|| {
            let message = "the group of keys and accounts does not serve, so that nobody can be told from anybody";
            Error::new(Code::AuthenticationUnavailable, message)
        })
    }

    /// Who asks. `open` says whether a request without a key may be answered as long as there are no keys.
    /// # Errors
    /// `INVALID_CREDENTIAL`, `CREDENTIAL_EXPIRED`, `ACCOUNT_REVOKED`.
    pub(crate) fn authenticate(
        view: Arc<View>,
        headers: &HeaderMap,
        at: Millis,
        open: bool,
    ) -> Result<Authority, Error> {
        if open && !view.is_keyed() {
            return Ok(Authority { view, key: None, permitted: None });
        }
        let mut presented = headers.get_all(header::AUTHORIZATION).iter();
        let Some(value) = presented.next() else {
            let message = "this server wants a key: send Authorization: Bearer hw_…";
            return Err(Error::new(Code::InvalidCredential, message).with(header::WWW_AUTHENTICATE, CHALLENGE));
        };
        let credential = if presented.next().is_some() { None } else { value.to_str().ok().and_then(bearer) };
        let key = credential.ok_or(Denied::Invalid).and_then(|credential| view.authenticate(&credential, at));
        key.map(|key| Authority { view, key: Some(key), permitted: None }).map_err(denied)
    }

    /// Takes a request of an account's key off what its plan allows; the body of one that is metered by bytes counts
    /// what it delivers.
    /// # Errors
    /// `RATE_LIMITED`, with the seconds after which the next one is allowed.
    pub(crate) fn meter(&self, authority: &Authority, method: &Method, body: Body) -> Result<Body, (Error, Body)> {
        let Some(account) = authority.key.as_ref().and_then(|key| authority.view.account_of(key)) else {
            return Ok(body);
        };
        let Some(plan) = authority.view.plan_of(account) else { return Ok(body) };
        let writes = matches!(*method, Method::POST | Method::PUT);
        match self.rates.take(&account.name, &plan.limits, writes) {
            Ok(None) => Ok(body),
            Ok(Some(meter)) => Ok(meter.around(body)),
            Err(seconds) => {
                let message = format!("the account {} has used up what its plan allows for now", account.name);
                Err((Error::new(Code::RateLimited, message).with(header::RETRY_AFTER, seconds), body))
            }
        }
    }

    /// Holds the answer to somebody who is refused again and again.
    pub(crate) async fn hold(&self, asker: u64) {
        self.patience.hold(asker).await;
    }
}

/// Whether an answer refuses whoever asks. A producer's 403 is an answer of the stream, and tells its writer what to do.
pub(crate) fn refuses(response: &Response) -> bool {
    let refused = matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    refused && !response.headers().contains_key(names::PRODUCER_OUTCOME)
}

/// Who asks, for telling repeats: from where, and with what.
pub(crate) fn asker(head: &Parts, arrival: &Arrival) -> u64 {
    let mut asker = DefaultHasher::new();
    (arrival.client, head.headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes)).hash(&mut asker);
    asker.finish()
}

/// Whose share of the memory for answers an answer takes: of each key one, and without keys of each address, or IPv6
/// network of 64 bits.
pub(crate) fn room_of(head: &Parts) -> Asker {
    let key = head.extensions.get::<Authority>().and_then(Authority::key_id);
    let address = key.is_none().then(|| places::site(Arrival::of(&head.extensions).client));
    let mut asker = DefaultHasher::new();
    (key.map(|key| key.to_string()), address).hash(&mut asker);
    Asker::numbered(asker.finish())
}

/// What may be done with a stream or a part of one: any of these scopes is enough.
pub(crate) fn scopes(target: &Target, method: &Method) -> &'static [Scope] {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    match target {
        Target::Stream(_) => match *method {
            // A writer needs the stream's token and its end.
            Method::HEAD => &[Scope::Read, Scope::Append],
            Method::PUT => &[Scope::Create],
            Method::POST => &[Scope::Append],
            Method::DELETE => &[Scope::Delete],
            _ => &[Scope::Read],
        },
        Target::Part(_, Part::Snapshot(_) | Part::BareSnapshot | Part::Immutable(..)) if reads => &[Scope::Read],
        Target::Part(..) => &[Scope::Snapshot],
    }
}

impl Authority {
    /// Whether nobody needed a key.
    pub(crate) fn is_open(&self) -> bool {
        self.key.is_none()
    }

    /// The id of the key that asks.
    pub(crate) fn key_id(&self) -> Option<KeyId> {
        self.key.as_ref().map(|key| key.id)
    }

    /// Refuses what the key may not do on the stream at `path`, whether or not it is there. What is permitted goes with
    /// the result, and is judged again with it.
    /// # Errors
    /// `FORBIDDEN`.
    pub(crate) fn permit(&self, scopes: &'static [Scope], path: &str) -> Result<Self, Error> {
        let Some(key) = &self.key else { return Ok(self.clone()) };
        judge(key, &self.view, scopes, path)?;
        Ok(Self { permitted: Some(Permitted { scopes, path: path.into() }), ..self.clone() })
    }

    /// Refuses what needs no path and the key may not do.
    /// # Errors
    /// `FORBIDDEN`.
    pub(crate) fn permit_anywhere(&self, scope: Scope) -> Result<(), Error> {
        match &self.key {
            Some(key) if !key.scopes.allow(scope) => {
                Err(forbidden(format!("the key {} does not have the scope {}", key.id, scope.name())))
            }
            _ => Ok(()),
        }
    }

    /// Whether what was permitted before still is.
    fn recheck(&self, view: &View, at: Millis) -> Result<(), Error> {
        match &self.key {
            None if view.is_keyed() => Err(denied(Denied::Invalid)),
            None => Ok(()),
            Some(key) => {
                view.recheck(key.id, at).map_err(denied)?;
                match &self.permitted {
                    Some(Permitted { scopes, path }) => judge(key, view, scopes, path),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Whether a key has one of the scopes on a path. Its account's buckets may change while it works.
fn judge(key: &Key, view: &View, scopes: &[Scope], path: &str) -> Result<(), Error> {
    if scopes.iter().any(|scope| view.permits(key, *scope, path)) {
        return Ok(());
    }
    let names: Vec<&str> = scopes.iter().map(|scope| scope.name()).collect();
    Err(forbidden(format!("the key {} does not have the scope {} on this path", key.id, names.join(" or "))))
}

/// Judges a request again, now that its body was read: that took as long as its sender liked, and the right by which it
/// was begun may be gone. Otherwise whoever holds a leaked key could keep requests half sent, and end them after the key
/// was revoked.
/// # Errors
/// Why it is refused from now on.
pub(crate) fn still<S: Service>(app: &App<S>, head: &Parts) -> Result<(), Error> {
    match head.extensions.get::<Authority>() {
        Some(authority) => authority.recheck(&*app.guard.view()?, app.service.wall()),
        None => Err(Error::new(Code::Internal, "the request was not judged")),
    }
}

/// The key of an `Authorization` header.
fn bearer(value: &str) -> Option<Credential> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| Credential::parse(token.trim())).flatten()
}

fn denied(denied: Denied) -> Error {
    let message = denied.to_string();
    match denied {
        Denied::Invalid => {
            Error::new(Code::InvalidCredential, message).with(header::WWW_AUTHENTICATE, CHALLENGE_INVALID)
        }
        Denied::Expired => {
            Error::new(Code::CredentialExpired, message).with(header::WWW_AUTHENTICATE, CHALLENGE_INVALID)
        }
        Denied::AccountRevoked => Error::new(Code::AccountRevoked, message),
    }
}

fn forbidden(message: String) -> Error {
    Error::new(Code::Forbidden, message)
}

/// Whether the answer to a HEAD may name the server: not to those whom it refuses, or a stranger would learn which
/// deployment this is.
pub(crate) fn may_name(status: StatusCode) -> bool {
    !matches!(status.as_u16(), 401 | 402 | 403 | 429)
}

/// Keeps what needed a key out of caches that others share.
pub(crate) fn make_private(headers: &mut HeaderMap) {
    let kept = headers.get(header::CACHE_CONTROL).and_then(|value| value.to_str().ok());
    let Some(rest) = kept.and_then(|value| value.strip_prefix("public")) else { return };
    let private = format!("private{rest}");
    let varied = headers.get(header::VARY).and_then(|value| value.to_str().ok());
    let vary = varied.map_or_else(|| "authorization".to_owned(), |varied| format!("{varied}, authorization"));
    crate::answer::set(headers, header::CACHE_CONTROL, private);
    crate::answer::set(headers, header::VARY, vary);
}

#[cfg(test)]
mod tests;
