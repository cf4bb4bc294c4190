//! Names, by the host that is asked.

use crate::server::{Server, ZONE};
use crate::wire::{self, Answer};
use highwater_pds::lifecycle::Change;
use serde_json::json;

fn at(server: &Server, host: &str, path: &str) -> Answer {
    wire::ask(server.address, "GET", path, &[("host", host)], None)
}

const DOCUMENT: &str = "/.well-known/did.json";
const HANDLE: &str = "/.well-known/atproto-did";

#[test]
fn an_account_is_found_by_the_host_of_its_did_and_of_its_handle() {
    let server = Server::start();
    let account = server.account();
    let (did, handle) = (account.did.as_str(), account.handle.as_str());
    let host = did.strip_prefix("did:web:").expect("a did:web");
    let key = account.key.public.as_str();
    let expected = json!({
        "@context": ["https://www.w3.org/ns/did/v1", "https://w3id.org/security/multikey/v1"],
        "id": did,
        "alsoKnownAs": [format!("at://{handle}")],
        "verificationMethod": [{
            "id": format!("{did}#atproto"), "type": "Multikey", "controller": did, "publicKeyMultibase": key,
        }],
        "service": [{
            "id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": format!("https://{ZONE}"),
        }],
    });
    assert!(key.starts_with("zQ3"), "k256 as a Multikey: {key}");
    for spelling in [host.to_owned(), format!("{host}:443"), host.to_uppercase()] {
        assert_eq!(at(&server, &spelling, DOCUMENT).ok(), expected, "{spelling}");
    }
    let answer = at(&server, handle, HANDLE);
    assert_eq!((answer.status, answer.body.as_slice()), (200, did.as_bytes()));
    assert!(answer.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")));
    for other in ["none.pds.test", "elsewhere.example", "pds.test.evil.example", ""] {
        assert_eq!(at(&server, other, DOCUMENT).refused(), (404, "NotFound".to_owned()), "{other}");
        assert_eq!(at(&server, other, HANDLE).status, 404, "{other}");
    }
    let resolve = |handle: &str| server.query("com.atproto.identity.resolveHandle", &format!("handle={handle}"));
    assert_eq!(resolve(handle).ok(), json!({ "did": did }));
    assert_eq!(resolve(&handle.to_uppercase()).ok(), json!({ "did": did }));
    assert_eq!(resolve("nobody.pds.test").refused(), (400, "HandleNotFound".to_owned()));
    assert_eq!(resolve("no%20handle").refused(), (400, "InvalidRequest".to_owned()));
}

/// A relay looks a DID up before it believes a frame of an account that it does not know, and those of an erased account are
/// replayed for days.
#[test]
fn the_document_of_an_erased_account_goes_on_naming_this_host_and_its_handle_is_nobodys() {
    let server = Server::start();
    let account = server.account();
    let host = account.did.as_str().strip_prefix("did:web:").expect("a did:web");
    let before = at(&server, host, DOCUMENT).ok();
    for change in [Change::Lock, Change::Erase] {
        server.change(&account, change);
        assert_eq!(at(&server, host, DOCUMENT).ok(), before, "{change:?}");
    }
    assert_eq!(at(&server, account.handle.as_str(), HANDLE).status, 404);
    let query = format!("handle={}", account.handle);
    assert_eq!(server.query("com.atproto.identity.resolveHandle", &query).status, 400);
}

/// A relay asks this before it crawls, without a session; and one that finds `atproto-relay` in the `Server` header bans the host.
#[test]
fn what_a_relay_asks_first_is_answered_without_a_session() {
    let server = Server::start();
    let answer = server.get("/xrpc/com.atproto.server.describeServer");
    let told = answer.ok();
    assert_eq!(told["did"], format!("did:web:{ZONE}"));
    assert_eq!(told["availableUserDomains"], json!([format!(".{ZONE}")]));
    assert!(!answer.header("server").unwrap_or_default().contains("atproto-relay"));
    assert_eq!(at(&server, ZONE, DOCUMENT).ok()["id"], format!("did:web:{ZONE}"));
    assert!(server.get("/xrpc/_health").ok()["version"].is_string());
    for page in ["/", "/robots.txt"] {
        let answer = server.get(page);
        assert!(answer.status == 200 && !answer.body.is_empty(), "{page}");
    }
}
