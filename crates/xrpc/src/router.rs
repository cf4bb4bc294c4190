//! From a request to its method.

use crate::call::Call;
use crate::context::Context;
use crate::error::{Error, Name, Result};
use crate::methods::{self, Method, Verb};
use crate::{cors, names, pages};
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{self, HeaderName, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use std::sync::Arc;

/// The routes of the surface: `/xrpc/`, the well-known files, and a page or two.
pub fn router(context: Arc<Context>) -> Router {
    Router::new()
        .route("/xrpc/{method}", any(xrpc))
        .route("/.well-known/did.json", get(names::did_document))
        .route("/.well-known/atproto-did", get(names::handle_did))
        .route("/robots.txt", get(pages::robots))
        .route("/", get(names::root))
        .layer(middleware::from_fn(around))
        .with_state(context)
}

/// Around every route.
async fn around(request: Request, next: Next) -> Response {
    let mut response = match *request.method() {
        http::Method::OPTIONS => cors::preflight(request.headers()),
        _ => next.run(request).await,
    };
    cors::mark(response.headers_mut());
    response
}

async fn xrpc(State(context): State<Arc<Context>>, Path(nsid): Path<String>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    match Call::new(context, head, body) {
        Ok(call) => dispatch(&nsid, call).await.unwrap_or_else(IntoResponse::into_response),
        Err(error) => error.into_response(),
    }
}

async fn dispatch(nsid: &str, call: Call) -> Result {
    let method = methods::find(nsid);
    let operator = method.filter(|method| method.is_operators() && call.shows_password()).map(|_| call.admin());
    let rate = call.context.limits.request(call.party(), call.context.clock.wall())?;
    let answer = async {
        operator.transpose()?;
        let method = method.ok_or_else(|| Error::new(Name::MethodNotImplemented, "this server has no such method"))?;
        answer(method, call).await
    };
    let mut answer = answer.await.unwrap_or_else(IntoResponse::into_response);
    for (name, value) in rate.iter().flat_map(crate::limits::Rate::headers) {
        answer.headers_mut().entry(name).or_insert(value);
    }
    Ok(answer)
}

async fn answer(method: &Method, call: Call) -> Result {
    let fits = match method.verb {
        Verb::Query => matches!(call.head.method, http::Method::GET | http::Method::HEAD),
        Verb::Procedure => call.head.method == http::Method::POST,
        Verb::Subscription => call.head.method == http::Method::GET,
    };
    if !fits {
        let allowed: (HeaderName, HeaderValue) = (header::ALLOW, HeaderValue::from_static(method.verb.allowed()));
        return Err(
            Error::new(Name::MethodNotAllowed, "the method is called with another verb").with(allowed.0, allowed.1)
        );
    }
    (method.answer)(call).await
}
