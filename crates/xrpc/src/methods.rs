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
    "com.atproto.repo.applyWrites" Procedure "the account" crate::repo::apply_writes,
        "Creates, updates and deletes up to 200 records in one commit.";
    "com.atproto.repo.createRecord" Procedure "the account" crate::repo::create_record, "Creates a record.";
    "com.atproto.repo.deleteRecord" Procedure "the account" crate::repo::delete_record,
        "Deletes a record; one that is not there is no error, and makes no commit.";
    "com.atproto.repo.describeRepo" Query "anyone" crate::repo::describe_repo,
        "An account's names, its DID document and the collections that it has.";
    "com.atproto.repo.getRecord" Query "anyone" crate::repo::get_record, "One record.";
    "com.atproto.repo.listRecords" Query "anyone" crate::repo::list_records,
        "Records of a collection, page by page, from the largest key on or the smallest.";
    "com.atproto.repo.putRecord" Procedure "the account" crate::repo::put_record,
        "Creates or replaces a record; the same content makes no commit.";
    "com.atproto.sync.getBlocks" Query "anyone" crate::sync::get_blocks, "Blocks of a repository.";
    "com.atproto.sync.getCheckout" Query "anyone" crate::sync::get_checkout, "Deprecated: as `getRepo`.";
    "com.atproto.sync.getHead" Query "anyone" crate::sync::get_head, "Deprecated: as `getLatestCommit`.";
    "com.atproto.sync.getLatestCommit" Query "anyone" crate::sync::get_latest_commit,
        "A repository's newest commit and its revision.";
    "com.atproto.sync.getRecord" Query "anyone" crate::sync::get_record,
        "An archive that proves a record, or that there is none.";
    "com.atproto.sync.getRepo" Query "anyone" crate::sync::get_repo,
        "A repository as an archive; `ETag` is its commit. It is whole also for whoever names a revision.";
    "com.atproto.sync.getRepoStatus" Query "anyone" crate::sync::get_repo_status, "Where an account stands.";
    "com.atproto.sync.listRepos" Query "anyone" crate::sync::list_repos,
        "All accounts of which relays have heard, with where they stand.";
    "com.atproto.sync.subscribeRepos" Subscription "anyone" crate::firehose::subscribe_repos,
        "The stream of everything that changes, over a WebSocket, from a cursor on.";
    "com.atproto.identity.resolveHandle" Query "anyone" crate::names::resolve_handle, "The DID of a handle of this server.";
    "com.atproto.server.describeServer" Query "anyone" crate::names::describe_server,
        "What the server is, and which names it gives.";
    "_health" Query "anyone" crate::pages::health, "Whether the server serves, and its version.";
}

/// The method of a name.
#[must_use]
pub fn find(nsid: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.nsid == nsid)
}
