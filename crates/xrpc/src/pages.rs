//! Pages beside the methods.

use crate::call::Call;
use crate::error::Result;
use axum::Json;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// `/xrpc/_health`.
pub async fn health(_: Call) -> Result {
    Ok(Json(json!({ "version": concat!("highwater ", env!("CARGO_PKG_VERSION")) })).into_response())
}

/// `/robots.txt`: whoever follows links finds only what the stream tells better.
pub async fn robots() -> Response {
    text(
        "# Everything here is public by the stream and the methods of the AT Protocol.\nUser-agent: *\nAllow: /\n"
            .to_owned(),
    )
}

/// A page of text.
pub fn text(body: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}
