//! Random requests: whatever comes, the answer is one of the contract's, and never the server's fault.

use crate::fake::Fake;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Method, Request};
use highwater_http::{HttpOptions, router};
use http_body_util::BodyExt;
use proptest::prelude::*;
use tower::ServiceExt;

const NAMES: [&str; 14] = [
    "producer-id",
    "producer-epoch",
    "producer-seq",
    "producer-digest",
    "stream-incarnation",
    "stream-seq",
    "stream-closed",
    "content-type",
    "if-none-match",
    "expect",
    "stream-ttl",
    "origin",
    "content-length",
    "range",
];

fn method() -> impl Strategy<Value = Method> {
    prop::sample::select(vec![
        Method::GET,
        Method::HEAD,
        Method::PUT,
        Method::POST,
        Method::DELETE,
        Method::OPTIONS,
        Method::PATCH,
    ])
}

fn target() -> impl Strategy<Value = String> {
    let path = prop_oneof![
        Just("a".to_owned()),
        "[ab/.%0-9]{0,12}",
        "a/(snapshot|retention|incarnation)(/[0-9a-z]{0,3}){0,3}"
    ];
    let query = prop_oneof![
        Just(String::new()),
        "\\?offset=[-0-9a-z%+]{0,5}",
        "\\?(offset|live|max_bytes|consistency|cursor|timeout_ms)=[-0-9a-z%]{0,4}(&(offset|live|timeout_ms)=[0-9]{1,2}){0,2}",
    ];
    (path, query).prop_map(|(path, query)| format!("/v1/stream/{path}{query}"))
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[0-9]{1,3}".prop_map(String::into_bytes),
        "[ -~]{0,20}".prop_map(String::into_bytes),
        prop::collection::vec(prop_oneof![Just(9u8), 32..=126u8, 128..=255u8], 0..12),
        Just(b"true".to_vec()),
        Just(b"text/plain".to_vec()),
    ]
}

async fn ask(routes: &Router, request: Request<Body>) -> (u16, Vec<u8>, axum::http::HeaderMap) {
    let response = routes.clone().oneshot(request).await.expect("a router cannot fail");
    let (head, body) = response.into_parts();
    (head.status.as_u16(), body.collect().await.expect("a body").to_bytes().to_vec(), head.headers)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn no_request_is_the_servers_fault(
        requests in prop::collection::vec(
            (method(), target(), prop::collection::vec((0..NAMES.len(), value()), 0..6), prop::collection::vec(any::<u8>(), 0..20)),
            1..12,
        )
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let routes = router(Fake::new(), HttpOptions::default());
        for (method, target, headers, body) in requests {
            // A wait would only make this slow; every other long-poll is tested where it belongs.
            if target.contains("live=long-poll") { continue }
            let Ok(mut request) = Request::builder().method(method.clone()).uri(&target).body(Body::from(body)) else { continue };
            request.headers_mut().insert("host", HeaderValue::from_static("localhost"));
            for (name, value) in &headers {
                request.headers_mut().append(HeaderName::from_static(NAMES[*name]), HeaderValue::from_bytes(value).expect("a value"));
            }
            let (status, body, answer) = runtime.block_on(ask(&routes, request));
            prop_assert!(status < 500, "{method} {target} {headers:?}: {status}");
            prop_assert_eq!(&answer["x-content-type-options"], "nosniff");
            if status >= 400 && method != Method::HEAD {
                let error: serde_json::Value = serde_json::from_slice(&body).expect("an error is JSON");
                let code = error["error"]["code"].as_str().expect("a code");
                prop_assert!(highwater_http::error::TABLE.iter().any(|row| row.name == code), "{code}");
            }
            if method == Method::HEAD && target.starts_with("/v1/stream") {
                prop_assert_eq!(&answer["ursula-cluster-id"], "fake-1");
            }
        }
    }
}
