//! Names: DID documents and handles, by the host that is asked, and what this server says about itself.

use crate::answer;
use crate::call::Call;
use crate::context::Context;
use crate::error::{Error, Name, Result};
use crate::options::Options;
use crate::pages;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use highwater_pds::Account;
use highwater_pds::names::Zone;
use highwater_repo::syntax::is_handle;
use serde_json::{Value as Json, json};
use std::sync::Arc;

/// The media type of DID documents, which readers of JSON read as well.
const DOCUMENT: HeaderValue = HeaderValue::from_static("application/json");

/// The host that a request asks: what `Host` says, or the target of HTTP/2.
fn host(head: &Parts) -> Option<&str> {
    let named = || head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    head.uri.authority().map(|authority| authority.as_str()).or_else(named)
}

/// An account's DID document.
#[must_use]
pub fn document(account: &Account, options: &Options) -> Json {
    let did = account.did.as_str();
    json!({
        "@context": ["https://www.w3.org/ns/did/v1", "https://w3id.org/security/multikey/v1"],
        "id": did,
        "alsoKnownAs": [format!("at://{}", account.handle)],
        "verificationMethod": [{
            "id": format!("{did}#atproto"),
            "type": "Multikey",
            "controller": did,
            "publicKeyMultibase": account.key.public,
        }],
        "service": [service(options)],
    })
}

fn service(options: &Options) -> Json {
    json!({
        "id": "#atproto_pds",
        "type": "AtprotoPersonalDataServer",
        "serviceEndpoint": options.public_url,
    })
}

/// `/.well-known/did.json`: of the account whose host is asked, in whatever position it is, because relays look a DID up before
/// they believe a frame of it, and those of an erased account are replayed. Of the server itself at the zone.
pub async fn did_document(State(context): State<Arc<Context>>, head: Parts) -> Result {
    let asked = host(&head).unwrap_or_default();
    let zone = context.host.zone();
    let did = zone.did_at(asked);
    let account = did.and_then(|did| context.host.state(|state| state.by_did(did.as_str()).cloned()));
    let document = match account {
        Some(account) => document(&account, &context.options),
        None if is_zone(zone, asked) => {
            let did = server_did(zone);
            json!({ "@context": ["https://www.w3.org/ns/did/v1"], "id": did, "service": [service(&context.options)] })
        }
        None => return Err(Error::new(Name::NotFound, "nobody here has this name")),
    };
    let mut response = answer::json(&document)?;
    response.headers_mut().insert(header::CONTENT_TYPE, DOCUMENT);
    Ok(response)
}

/// The server's own DID: that of its zone.
#[must_use]
pub fn server_did(zone: &Zone) -> String {
    format!("did:web:{}", zone.to_string().replace(':', "%3A"))
}

fn is_zone(zone: &Zone, asked: &str) -> bool {
    let asked = asked.to_ascii_lowercase();
    asked == zone.to_string() || asked.rsplit_once(':').map_or(asked.as_str(), |(host, _)| host) == zone.host()
}

/// `/.well-known/atproto-did`: the DID of the account whose handle is asked, while it is not erased.
pub async fn handle_did(State(context): State<Arc<Context>>, head: Parts) -> Result {
    let handle = host(&head).and_then(|host| context.host.zone().handle_at(host));
    let did = handle.and_then(|handle| resolve(&context, handle.as_str()));
    did.map(pages::text).ok_or_else(|| Error::new(Name::NotFound, "nobody here has this name"))
}

/// The DID of a handle of this server.
fn resolve(context: &Context, handle: &str) -> Option<String> {
    context.host.state(|state| {
        let account = state.by_handle(handle).filter(|account| !account.standing.erased)?;
        Some(account.did.to_string())
    })
}

/// `com.atproto.identity.resolveHandle`
pub async fn resolve_handle(call: Call) -> Result {
    let handle = call.query.required("handle")?.to_ascii_lowercase();
    if !is_handle(&handle) {
        return Err(Error::invalid("the parameter handle is no handle"));
    }
    let did = resolve(&call.context, &handle);
    let did = did.ok_or_else(|| Error::new(Name::HandleNotFound, "no account of this server has this handle"))?;
    answer::json(&json!({ "did": did }))
}

/// `com.atproto.identity.getRecommendedDidCredentials`: without keys that rotate others, of which DIDs of the web have none.
pub async fn recommended_did_credentials(call: Call) -> Result {
    let row = call.row(&call.access()?)?;
    answer::json(&json!({
        "alsoKnownAs": [format!("at://{}", row.handle)],
        "verificationMethods": { "atproto": format!("did:key:{}", row.key.public) },
        "services": { "atproto_pds": { "type": "AtprotoPersonalDataServer", "endpoint": call.context.options.public_url } },
    }))
}

/// `com.atproto.server.describeServer`: relays ask it before they crawl, so that it needs no session.
pub async fn describe_server(call: Call) -> Result {
    let options = &call.context.options;
    let mut told = json!({
        "did": server_did(call.context.host.zone()),
        "availableUserDomains": [format!(".{}", call.context.host.zone().host())],
        "inviteCodeRequired": true,
        "phoneVerificationRequired": false,
        "links": {},
    });
    if let Some(email) = &options.contact {
        told["contact"] = json!({ "email": email });
    }
    answer::json(&told)
}

/// `/`: what this is, for whoever opens it in a browser.
pub async fn root(State(context): State<Arc<Context>>) -> Response {
    let zone = context.host.zone();
    pages::text(format!(
        "This is {zone}, a Personal Data Server of the AT Protocol.\n\n\
         Methods are below /xrpc/ ; what it is and which names it gives says /xrpc/com.atproto.server.describeServer\n\
         The protocol: https://atproto.com\n"
    ))
    .into_response()
}
