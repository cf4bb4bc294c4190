//! The table of methods: one row each, from which the router and the reference page are made.

use crate::call::Call;
use crate::error::Result;
use axum::response::Response;
use std::future::Future;
use std::pin::Pin;

/// What a method is called with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// GET.
    Query,
    /// POST.
    Procedure,
    /// GET with a WebSocket.
    Subscription,
}

impl Verb {
    /// The verbs of HTTP, as `Allow` lists them.
    #[must_use]
    pub fn allowed(self) -> &'static str {
        match self {
            Self::Query => "GET, HEAD, OPTIONS",
            Self::Procedure => "POST, OPTIONS",
            Self::Subscription => "GET, OPTIONS",
        }
    }
}

/// An answer that is being made.
pub type Answering = Pin<Box<dyn Future<Output = Result<Response>> + Send>>;

/// A row of the table.
#[derive(Debug)]
pub struct Method {
    /// Its name.
    pub nsid: &'static str,
    /// What it is called with.
    pub verb: Verb,
    /// Who may call it, in a word.
    pub who: &'static str,
    /// What it does.
    pub about: &'static str,
    /// What answers it.
    pub answer: fn(Call) -> Answering,
}

macro_rules! methods {
    ($($nsid:literal $verb:ident $who:literal $handler:path, $about:literal;)+) => {
        /// Every method.
        pub static METHODS: &[Method] = &[$(Method {
            nsid: $nsid,
            verb: Verb::$verb,
            who: $who,
            about: $about,
            answer: |call| Box::pin($handler(call)),
        },)+];
    };
}

methods! {
    "_health" Query "anyone" crate::pages::health, "Whether the server serves, and its version.";
}

/// The method of a name.
#[must_use]
pub fn find(nsid: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.nsid == nsid)
}
