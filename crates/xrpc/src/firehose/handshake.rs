//! From a request to a WebSocket.
//!
//! Source: RFC 6455, section 4.2.

use crate::error::{Error, Name, Result};
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::upgrade::OnUpgrade;
use sha1::{Digest, Sha1};

/// What the answer's key is made with (RFC 6455, section 1.3).
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The version of the protocol.
const VERSION: &str = "13";

/// Takes the connection of a request that asks for a WebSocket, with the answer that agrees to it.
/// # Errors
/// `UpgradeRequired` if it asks for none; `InvalidRequest` if it asks in a way that is not the protocol's.
pub fn accept(head: &mut Parts) -> Result<(OnUpgrade, Response<Body>)> {
    let lists = |name: HeaderName, word: &str| {
        let values = head.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
    };
    let connection = head.extensions.get::<OnUpgrade>().is_some();
    if !connection || !lists(header::CONNECTION, "upgrade") || !lists(header::UPGRADE, "websocket") {
        let required = Error::new(Name::UpgradeRequired, "this is a stream: connect with a WebSocket, over HTTP/1.1");
        return Err(required
            .with(header::UPGRADE, HeaderValue::from_static("websocket"))
            .with(header::CONNECTION, HeaderValue::from_static("upgrade")));
    }
    if head.headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != VERSION) {
        let version = HeaderValue::from_static(VERSION);
        return Err(
            Error::invalid("this server speaks version 13 of WebSockets").with(header::SEC_WEBSOCKET_VERSION, version)
        );
    }
    let key = head.headers.get(header::SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
    let sound = |key: &&[u8]| BASE64_STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16);
    let key = key.filter(sound).ok_or_else(|| Error::invalid("Sec-WebSocket-Key must hold 16 bytes in base64"))?;
    let accepted = BASE64_STANDARD.encode(Sha1::new().chain_update(key).chain_update(KEY_SUFFIX).finalize());
    let upgrade = head.extensions.remove::<OnUpgrade>();
    let upgrade =
        upgrade.ok_or_else(|| Error::new(Name::UpgradeRequired, "the connection cannot become a WebSocket"))?;
    let answer = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, accepted)
        .body(Body::empty());
    Ok((upgrade, answer.map_err(|_| Error::new(Name::InternalServerError, "the answer could not be made"))?))
}
