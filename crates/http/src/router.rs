//! Which request goes where, and the layers around all of them.

use crate::auth::{self, Authority, Guard};
use crate::body;
use crate::closing::Closing;
use crate::cors::Pages;
use crate::error::{Code, Error};
use crate::front::Arrival;
use crate::head::identify;
use crate::metrics::Counts;
use crate::mount::{self, Mounted};
use crate::observe::Observed;
use crate::options::HttpOptions;
use crate::path::{self, Part, Target};
use crate::service::Service;
use crate::sse::Relays;
use crate::tls::Tls;
use crate::traffic::Traffic;
use crate::{
    access, admin, append, backup, bounds, cors, create, delete, drain, head, immutable, manage, pieces, read,
    retention, snapshot,
};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Method, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use highwater_control::Scope;
use highwater_node::rooms::{Asker, Rooms};
use highwater_node::{ReadAnswer, ReadRequest, Unavailable};
use highwater_stream::Refusal;
use hyper::body::Body as _;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tower::ServiceExt;

/// Where streams live.
const STREAMS: &str = "/v1/stream";

/// What every handler needs.
#[derive(Debug, Clone)]
pub(crate) struct App<S> {
    pub service: S,
    pub options: Arc<HttpOptions>,
    /// Memory that answers hold until their readers took them.
    pub answers: Rooms,
    /// What readers by events hold of what they share, each counted in full: what all of it takes, `answers` counts once.
    pub shared: Rooms,
    pub counts: Arc<Counts>,
    /// What readers by events share.
    pub relays: Arc<Relays>,
    /// The moment from which readers that wait are answered.
    pub closing: Closing,
    pub traffic: Arc<Traffic>,
    /// Who asks, and what they may do.
    pub guard: Arc<Guard>,
    /// The certificates of the listeners.
    pub certificates: Vec<Tls>,
    /// What lives beside the node.
    pub mounted: Option<Arc<Mounted>>,
}

impl<S: Service> App<S> {
    pub(crate) fn new(service: S, options: HttpOptions) -> Self {
        let rooms = || Rooms::new(options.answer_bytes_held_max, options.answer_room_wait_ms_max);
        let (answers, shared) = (rooms(), rooms());
        let guard = Arc::new(Guard::new(service.control_view()));
        Self {
            service,
            options: Arc::new(options),
            answers,
            shared,
            counts: Arc::default(),
            relays: Arc::default(),
            closing: Closing::default(),
            traffic: Arc::default(),
            guard,
            certificates: Vec::new(),
            mounted: None,
        }
    }

    /// Begins a read, and waits only as long as the server goes on: one that stops answers what there is. Of a long answer
    /// `body` holds the first part alone.
    pub(crate) async fn read(
        &self,
        request: ReadRequest,
        asker: Asker,
    ) -> Result<Result<ReadAnswer, Refusal>, Unavailable> {
        if request.wait_ms.is_none() {
            return self.service.read_begun(request, pieces::PIECE_BYTES, asker).await;
        }
        let at_once = ReadRequest { wait_ms: None, ..request.clone() };
        tokio::select! {
            answer = self.service.read_begun(request, pieces::PIECE_BYTES, asker) => answer,
            () = self.closing.wait() => self.service.read_begun(at_once, pieces::PIECE_BYTES, asker).await,
        }
    }

    /// What every listener serves; what it does not offer, its front keeps away.
    pub(crate) fn routes(self) -> Routes {
        let app = Arc::new(self.clone());
        let stream = move |request: Request| -> Answering {
            let app = Arc::clone(&app);
            Box::pin(async move {
                let head = *request.method() == Method::HEAD;
                let response = around(&app, request, |request| fallback(&app, request)).await;
                Ok(if head { without_body(response) } else { response })
            })
        };
        Routes { others: routes(self), stream: Some(Arc::new(stream)) }
    }
}

/// An answer that is being made.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

/// The routes, of which those of streams, and of what lives beside the node, go through no router of ours: its layers allocate and move a request about as often as
/// everything else together that is done for a small append.
#[derive(Clone)]
pub(crate) struct Routes {
    others: Router,
    /// Without it, the router has them.
    stream: Option<Arc<dyn Fn(Request) -> Answering + Send + Sync>>,
}

impl From<Router> for Routes {
    fn from(others: Router) -> Self {
        Self { others, stream: None }
    }
}

impl Routes {
    /// Answers a request.
    pub(crate) fn answer(&self, request: Request) -> Answering {
        match &self.stream {
            Some(stream) if is_direct(request.uri().path()) => stream(request),
            _ => Box::pin(self.others.clone().oneshot(request)),
        }
    }
}

/// Whether a path is told apart in the fallback.
fn is_direct(path: &str) -> bool {
    below_streams(path).is_some() || mount::is_xrpc(path)
}

/// The routes.
///
/// [`crate::serve`] refuses to serve them on any but a loopback listener.
pub fn router<S: Service>(service: S, options: HttpOptions) -> Router {
    routes(App::new(service, options))
}

fn routes<S: Service>(app: App<S>) -> Router {
    Router::new()
        .route("/healthz", get(admin::health))
        .route("/readyz", get(admin::ready::<S>))
        .route("/metrics", get(admin::metrics::<S>))
        .route("/__ursula/live", get(admin::live))
        .route("/v1/admin/status", get(admin::status::<S>))
        .merge(manage::routes())
        .merge(backup::routes())
        .method_not_allowed_fallback(async || Error::method_not_allowed("GET, HEAD"))
        .fallback(async |State(app): State<App<S>>, request: Request| fallback(&app, request).await)
        .layer(middleware::from_fn_with_state(app.clone(), layer::<S>))
        .with_state(app)
}

async fn layer<S: Service>(State(app): State<App<S>>, request: Request, next: Next) -> Response {
    around(&app, request, |request| next.run(request)).await
}

/// The answer to HEAD: how long the body would be, and none.
fn without_body(mut response: Response) -> Response {
    if let Some(length) = response.body().size_hint().exact()
        && !response.headers().contains_key(header::CONTENT_LENGTH)
    {
        response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    }
    *response.body_mut() = Body::empty();
    response
}

/// Around every request: whether it may be answered, its body's end, and what browsers are told.
async fn around<S: Service, F>(app: &App<S>, request: Request, answer: impl FnOnce(Request) -> F) -> Response
where
    F: Future<Output = Response>,
{
    let streams = below_streams(request.uri().path()).is_some();
    let xrpc = mount::is_xrpc(request.uri().path());
    let method = request.method().clone();
    let (request, leftover) = drain::watch(request);
    let (mut head, body) = request.into_parts();
    let arrival = arrive(&mut head);
    let observed = Observed::begin(&head, &arrival);
    let asker = auth::asker(&head, &arrival);
    let Judged { open, pages, body } = judge(app, &mut head, &arrival, body);
    let mut response = match body {
        Ok(body) => answer(Request::from_parts(head, body)).await,
        Err((error, body)) => {
            drop(body);
            if xrpc { mount::refusal(&error) } else { error.into_response() }
        }
    };
    if streams {
        if method == Method::HEAD && (open || auth::may_name(response.status())) {
            identify(response.headers_mut(), app.service.identity());
        }
        cors::mark_stream(response.headers_mut(), &pages);
    }
    if xrpc {
        cors::mark_shared(response.headers_mut());
    }
    cors::mark(response.headers_mut());
    observed.end(app, &response);
    let response = match leftover {
        Some(leftover) => leftover.follow(response, &app.options),
        None => response,
    };
    // Whoever asks below `/xrpc` in vain is judged, and limited, by whoever answers there.
    if !open && !xrpc && auth::refuses(&response) {
        app.guard.hold(asker).await;
    }
    response
}

/// What was found of a request's head.
struct Judged {
    /// Whether it needs no key.
    open: bool,
    /// Which pages may read the answer.
    pages: Pages,
    /// Its body, and with it why it is refused, if it is.
    body: Result<Body, (Error, Body)>,
}

/// Whether a request may be answered, and by what right.
fn judge<S: Service>(app: &App<S>, head: &mut Parts, arrival: &Arrival, body: Body) -> Judged {
    let view = app.guard.view();
    let open = arrival.front.open && view.as_ref().is_ok_and(|view| !view.is_keyed());
    let pages = access::pages(head, &arrival.front, open);
    let fits = bounds::check_head(head).and_then(|()| access::check(head, arrival, &pages, open));
    let authority = fits.and_then(|()| {
        if is_public(head) {
            return Ok(None);
        }
        let authority = Guard::authenticate(view?, &head.headers, app.service.wall(), open)?;
        // Of a stream the path decides, which is read where it is told from its parts.
        if let Some(scope) = scope(head.uri.path()) {
            authority.permit_anywhere(scope)?;
        }
        Ok(Some(authority))
    });
    let body = match authority {
        Err(error) => Err((error, body)),
        Ok(None) => Ok(body),
        Ok(Some(authority)) => {
            let metered = app.guard.meter(&authority, &head.method, body);
            head.extensions.insert(authority);
            metered
        }
    };
    Judged { open, pages, body }
}

/// What is answered without a key of this server's: the probes, a browser's question before a request to a stream, and
/// what has ways of its own to tell who asks.
fn is_public(head: &Parts) -> bool {
    let path = head.uri.path();
    matches!(path, "/healthz" | "/readyz")
        || mount::is_xrpc(path)
        || head.method == Method::OPTIONS && below_streams(path).is_some()
}

/// The scope that a path needs by itself; none for streams. Whatever is not known here is administration.
fn scope(path: &str) -> Option<Scope> {
    match path {
        "/metrics" | "/v1/admin/status" => Some(Scope::Metrics),
        path if below_streams(path).is_some() => None,
        _ => Some(Scope::Admin),
    }
}

/// Notes who asks, now that the request's head can tell.
fn arrive(head: &mut Parts) -> Arrival {
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
async fn fallback<S: Service>(app: &App<S>, request: Request) -> Response {
    let path = request.uri().path();
    if mount::is_xrpc(path) || mount::is_operator(path) {
        let arrival = Arrival::of(request.extensions());
        return mount::answer(app.mounted.as_deref(), &arrival, request).await;
    }
    let (mut head, body) = request.into_parts();
    if below_streams(head.uri.path()).is_none() {
        return Error::new(Code::NotFound, "no route serves this path; streams live below /v1/stream/").into_response();
    }
    // Everything that needs no body drops it before its answer is made, so that what is left of it can follow.
    let answer = stream(app, &mut head, body).await;
    answer.unwrap_or_else(|error| error.towards(&head.uri).into_response())
}

async fn stream<S: Service>(app: &App<S>, head: &mut Parts, body: Body) -> Result<Response, Error> {
    if head.method == Method::OPTIONS {
        return Ok(cors::preflight());
    }
    body::check_length(&body, &app.options)?;
    let target = path::parse(below_streams(head.uri.path()).unwrap_or_default())?;
    let unjudged = || Error::new(Code::Internal, "the request was not judged");
    let authority = head.extensions.get::<Authority>().ok_or_else(unjudged)?;
    let authority = authority.permit(auth::scopes(&target, &head.method), target.stream())?;
    head.extensions.insert(authority.clone());
    auth::check_quota(app, &authority.view, target.stream(), &head.method, &body)?;
    let mut response = serve(app, target, &authority, head, body).await?;
    if !authority.is_open() {
        auth::make_private(response.headers_mut());
    }
    Ok(response)
}

async fn serve<S: Service>(
    app: &App<S>,
    target: Target,
    authority: &Authority,
    head: &Parts,
    body: Body,
) -> Result<Response, Error> {
    let path = match target {
        Target::Stream(path) => path,
        Target::Part(path, named) => {
            let response = part(app, path, named, head, body).await?;
            return Ok(if head.method == Method::GET { auth::until(app, authority, response) } else { response });
        }
    };
    match head.method {
        Method::GET => auth::guarded(app, authority, read::read(app, path, head)).await,
        Method::HEAD => head::head(app, &path, head).await,
        Method::PUT => create::create(app, path, head, body).await,
        Method::POST => append::append(app, path, head, body).await,
        Method::DELETE => delete::delete(app, path, head).await,
        _ => Err(Error::method_not_allowed(cors::METHODS)),
    }
}

/// Does a request for a part of the stream at `path`.
async fn part<S: Service>(app: &App<S>, path: String, part: Part, head: &Parts, body: Body) -> Result<Response, Error> {
    let method = &head.method;
    match part {
        Part::Snapshot(offset) if *method == Method::PUT => snapshot::publish(app, path, &offset, head, body).await,
        Part::Snapshot(offset) if reads(method) => snapshot::read(app, path, &offset, head).await,
        Part::StageParts(offset) if *method == Method::POST => snapshot::stage(app, path, &offset, head, body).await,
        Part::DiscardParts if *method == Method::DELETE => snapshot::discard(app, path, head).await,
        Part::Retention(offset) if *method == Method::PUT => retention::retain(app, path, &offset, head).await,
        Part::Immutable(token, rest) if reads(method) => immutable::read(app, path, &token, &rest, head).await,
        other => Err(not_served(&other, method)),
    }
}

fn reads(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

/// The answer to a method that a part of a stream does not serve.
fn not_served(part: &Part, method: &Method) -> Error {
    let methods = match part {
        Part::BareSnapshot => "",
        Part::Snapshot(_) => "PUT, GET, HEAD",
        Part::StageParts(_) => "POST",
        Part::DiscardParts => "DELETE",
        Part::Retention(_) => "PUT",
        Part::Immutable(..) => "GET, HEAD",
    };
    if *method == Method::PUT {
        return Error::new(Code::InvalidStreamId, "a stream's path must not end in the name of a part of a stream");
    }
    if *part == Part::BareSnapshot {
        return Error::unsupported("anything at a bare /snapshot").with_status(405).with(header::ALLOW, "");
    }
    Error::method_not_allowed(methods)
}
