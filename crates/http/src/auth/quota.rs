//! What an account's buckets may hold together.

use crate::error::{Code, Error};
use crate::router::App;
use crate::service::Service;
use axum::body::Body;
use axum::http::Method;
use highwater_control::View;
use hyper::body::Body as _;

/// Refuses what would add bytes to the buckets of an account that holds as many as its plan allows, whoever adds them.
///
/// What is stored is counted with a delay of a moment, and what is under way not at all, so that an account may end
/// above its quota by what it sends in a second. Deleting and retention are always allowed, and make room.
/// # Errors
/// `PAYMENT_REQUIRED`.
pub(crate) fn check<S: Service>(
    app: &App<S>,
    view: &View,
    path: &str,
    method: &Method,
    body: &Body,
) -> Result<(), Error> {
    let size = body.size_hint();
    if !matches!(*method, Method::POST | Method::PUT) || size.exact() == Some(0) {
        return Ok(());
    }
    let Some(account) = view.owner_of(path) else { return Ok(()) };
    let Some(max) = view.plan_of(account).and_then(|plan| plan.limits.storage_bytes_max) else { return Ok(()) };
    let stored = app.service.stored_bytes(&account.buckets);
    if stored.saturating_add(size.lower()) <= max && stored < max {
        return Ok(());
    }
    let message = format!("the buckets of the account {} hold {stored} bytes, and its plan allows {max}", account.name);
    Err(Error::new(Code::PaymentRequired, message))
}
