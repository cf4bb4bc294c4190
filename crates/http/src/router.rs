//! Which request goes where, and the layers around all of them.

use crate::body::{self, Budget};
use crate::closing::Closing;
use crate::error::{Code, Error};
use crate::front::Arrival;
use crate::head::identify;
use crate::options::HttpOptions;
use crate::path::{self, Part, Target};
use crate::service::Service;
use crate::traffic::Traffic;
use crate::{access, admin, append, cors, create, delete, drain, head, read};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use highwater_node::{ReadAnswer, ReadRequest, Unavailable};
use highwater_stream::Refusal;
use std::sync::Arc;

/// Where streams live.
const STREAMS: &str = "/v1/stream";

/// What every handler needs.
#[derive(Debug, Clone)]
pub(crate) struct App<S> {
    pub service: S,
    pub options: Arc<HttpOptions>,
    pub answers: Budget,
    pub counts: Arc<admin::Counts>,
    /// The moment from which readers that wait are answered.
    pub closing: Closing,
    pub traffic: Arc<Traffic>,
}

impl<S: Service> App<S> {
    pub(crate) fn new(service: S, options: HttpOptions) -> Self {
        let answers = Budget::new(options.answer_bytes_held_max);
        Self {
            service,
            options: Arc::new(options),
            answers,
            counts: Arc::default(),
            closing: Closing::default(),
            traffic: Arc::default(),
        }
    }

    /// Reads, and waits only as long as the server goes on: one that stops answers what there is.
    pub(crate) async fn read(&self, request: ReadRequest) -> Result<Result<ReadAnswer, Refusal>, Unavailable> {
        if request.wait_ms.is_none() {
            return self.service.read(request).await;
        }
        let at_once = ReadRequest { wait_ms: None, ..request.clone() };
        tokio::select! {
            answer = self.service.read(request) => answer,
            () = self.closing.wait() => self.service.read(at_once).await,
        }
    }

    /// The routes of every listener; what a listener does not offer, its front keeps away.
    pub(crate) fn routes(self) -> Router {
        routes(self)
    }
}

/// The routes in open mode.
///
/// [`crate::serve`] refuses to serve them on any but a loopback listener.
pub fn router<S: Service>(service: S, options: HttpOptions) -> Router {
    App::new(service, options).routes()
}

fn routes<S: Service>(app: App<S>) -> Router {
    Router::new()
        .route("/healthz", get(admin::health))
        .route("/readyz", get(admin::ready::<S>))
        .route("/metrics", get(admin::metrics::<S>))
        .route("/v1/admin/status", get(admin::status::<S>))
        .method_not_allowed_fallback(async || Error::method_not_allowed("GET, HEAD"))
        .fallback(fallback::<S>)
        .layer(middleware::from_fn_with_state(app.clone(), around::<S>))
        .with_state(app)
}

/// Around every request: whether it may be answered, its body's end, and what browsers are told.
async fn around<S: Service>(State(app): State<App<S>>, request: Request, next: Next) -> Response {
    let streams = below_streams(request.uri().path()).is_some();
    let method = request.method().clone();
    let (request, leftover) = drain::watch(request);
    let (mut head, body) = request.into_parts();
    let arrival = arrive(&mut head);
    let pages = access::pages(&head, &arrival.front);
    let mut response = match access::check(&head, &arrival, &pages) {
        Ok(()) => next.run(Request::from_parts(head, body)).await,
        Err(error) => {
            drop(body);
            error.into_response()
        }
    };
    if streams {
        if method == Method::HEAD {
            identify(response.headers_mut(), app.service.identity());
        }
        cors::mark_stream(response.headers_mut(), &pages);
    }
    cors::mark(response.headers_mut());
    app.counts.count(&method, response.status());
    match leftover {
        Some(leftover) => leftover.follow(response, &app.options),
        None => response,
    }
}

/// Notes who asks, now that the request's head can tell.
fn arrive(head: &mut axum::http::request::Parts) -> Arrival {
    let mut arrival = Arrival::of(&head.extensions);
    if !arrival.front.proxies.is_empty() {
        arrival.client = arrival.front.client(arrival.peer.ip(), &head.headers);
        head.extensions.insert(arrival.clone());
    }
    arrival
}

/// What of a path lies below the streams' root, still encoded.
pub(crate) fn below_streams(path: &str) -> Option<&str> {
    let below = path.strip_prefix(STREAMS)?;
    if below.is_empty() { Some("") } else { below.strip_prefix('/') }
}

/// Streams have paths of any depth in any spelling, so they are told apart here rather than by the router.
async fn fallback<S: Service>(State(app): State<App<S>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let Some(encoded) = below_streams(head.uri.path()) else {
        return Error::new(Code::NotFound, "no route serves this path; streams live below /v1/stream/").into_response();
    };
    // Everything that needs no body drops it before its answer is made, so that what is left of it can follow.
    let answer = stream(&app, encoded, &head, body).await;
    answer.unwrap_or_else(IntoResponse::into_response)
}

async fn stream<S: Service>(
    app: &App<S>,
    encoded: &str,
    head: &axum::http::request::Parts,
    body: axum::body::Body,
) -> Result<Response, Error> {
    if head.method == Method::OPTIONS {
        return Ok(cors::preflight());
    }
    body::check_length(&body, &app.options)?;
    let path = match path::parse(encoded)? {
        Target::Stream(path) => path,
        Target::Part(part) => return Err(not_offered(part, &head.method)),
    };
    match head.method {
        Method::GET => read::read(app, path, head).await,
        Method::HEAD => head::head(app, &path, head).await,
        Method::PUT => create::create(app, path, head, body).await,
        Method::POST => append::append(app, path, head, body).await,
        Method::DELETE => delete::delete(app, path, head).await,
        _ => Err(Error::method_not_allowed(cors::METHODS)),
    }
}

/// The answer to a request for a part of a stream that this server does not offer.
fn not_offered(part: Part, method: &Method) -> Error {
    let (what, methods) = match part {
        Part::BareSnapshot => ("anything at a bare /snapshot", ""),
        Part::Snapshot => ("snapshots yet", "PUT, GET, HEAD"),
        Part::StageParts => ("snapshots yet", "POST"),
        Part::DiscardParts => ("snapshots yet", "DELETE"),
        Part::Retention => ("retention yet", "PUT"),
        Part::Immutable => ("immutable reads yet", "GET, HEAD"),
    };
    if methods.split(", ").any(|served| served == method.as_str()) {
        return Error::unsupported(what);
    }
    if method == Method::PUT {
        return Error::new(Code::InvalidStreamId, "a stream's path must not end in the name of a part of a stream");
    }
    if part == Part::BareSnapshot {
        return Error::unsupported(what).with_status(405).with(header::ALLOW, "");
    }
    Error::method_not_allowed(methods)
}
