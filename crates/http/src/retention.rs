//! PUT of a retained offset: gives up the bytes below it.

use crate::answer;
use crate::error::{Code, Error};
use crate::fields;
use crate::router::App;
use crate::service::Service;
use crate::snapshot;
use axum::http::request::Parts;
use axum::response::Response;
use highwater_stream::Operation;

/// Does PUT on a retention path.
pub(crate) async fn retain<S: Service>(
    app: &App<S>,
    path: String,
    path_offset: &str,
    head: &Parts,
) -> Result<Response, Error> {
    if fields::names_producer(&head.headers) {
        return Err(Error::new(Code::InvalidProducer, "retention takes no producer headers"));
    }
    let offset = snapshot::offset(path_offset)?;
    let incarnation = fields::incarnation(&head.headers)?;
    app.service.route(&path)?;
    snapshot::check_boundary(app, &path, incarnation, offset).await?;
    let admission = app.service.admit(0)?;
    answer::write(app.service.write(path, Operation::Retain { incarnation, offset }, admission).await?, head)
}
