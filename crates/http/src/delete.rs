//! DELETE: removes a stream and its bytes.

use crate::answer;
use crate::error::Error;
use crate::fields;
use crate::router::App;
use crate::service::Service;
use axum::http::request::Parts;
use axum::response::Response;
use highwater_stream::Operation;

/// Does DELETE on a stream's path.
pub(crate) async fn delete<S: Service>(app: &App<S>, path: String, head: &Parts) -> Result<Response, Error> {
    let incarnation = fields::incarnation(&head.headers)?;
    app.service.route(&path)?;
    let admission = app.service.admit(0)?;
    let answer = app.service.write(path, Operation::Delete { incarnation }, admission).await?;
    answer::write(answer, head)
}
