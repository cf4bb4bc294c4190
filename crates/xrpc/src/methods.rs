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

/// Who calls the operator's methods.
const OPERATOR: &str = "the operator";

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
        "An account's names, its DID document and the collections that it has, up to 1,000.";
    "com.atproto.repo.getRecord" Query "anyone" crate::repo::get_record, "One record.";
    "com.atproto.repo.listMissingBlobs" Query "the account" crate::blobs::list_missing_blobs,
        "Blobs that the account's records refer to and that the server lost; an upload brings one back.";
    "com.atproto.repo.listRecords" Query "anyone" crate::repo::list_records,
        "Records of a collection, page by page, from the largest key on or the smallest; a page ends behind 2 MiB of records.";
    "com.atproto.repo.putRecord" Procedure "the account" crate::repo::put_record,
        "Creates or replaces a record; the same content makes no commit.";
    "com.atproto.sync.getBlocks" Query "anyone" crate::sync::get_blocks, "Blocks of a repository, 4 MiB at once.";
    "com.atproto.sync.getCheckout" Query "anyone" crate::sync::get_checkout, "Deprecated: as `getRepo`.";
    "com.atproto.sync.getHead" Query "anyone" crate::sync::get_head, "Deprecated: as `getLatestCommit`.";
    "com.atproto.sync.getLatestCommit" Query "anyone" crate::sync::get_latest_commit,
        "A repository's newest commit and its revision.";
    "com.atproto.sync.getRecord" Query "anyone" crate::sync::get_record,
        "An archive that proves a record, or that there is none.";
    "com.atproto.sync.getRepo" Query "anyone" crate::sync::get_repo,
        "A repository as an archive, or what of it is newer than a revision; `ETag` is its commit.";
    "com.atproto.sync.getRepoStatus" Query "anyone" crate::sync::get_repo_status, "Where an account stands.";
    "com.atproto.sync.listRepos" Query "anyone" crate::sync::list_repos,
        "All accounts of which relays have heard, with where they stand.";
    "com.atproto.sync.subscribeRepos" Subscription "anyone" crate::firehose::subscribe_repos,
        "The stream of everything that changes, over a WebSocket, from a cursor on.";
    "com.atproto.identity.resolveHandle" Query "anyone" crate::names::resolve_handle, "The DID of a handle of this server.";
    "com.atproto.identity.getRecommendedDidCredentials" Query "the account" crate::names::recommended_did_credentials,
        "What this server would have the account's DID document say.";
    "com.atproto.server.describeServer" Query "anyone" crate::names::describe_server,
        "What the server is, and which names it gives.";
    "com.atproto.repo.uploadBlob" Procedure "the account, or a service for it" crate::blobs::upload_blob,
        "Takes a blob, which is public once a record refers to it.";
    "com.atproto.sync.getBlob" Query "anyone" crate::blobs::get_blob, "A blob that a record refers to.";
    "com.atproto.sync.listBlobs" Query "anyone" crate::blobs::list_blobs,
        "Blobs that records refer to, all or since a revision, page by page.";
    "com.atproto.server.activateAccount" Procedure "the account's password" crate::server::activate_account,
        "Ends a deactivation.";
    "com.atproto.server.checkAccountStatus" Query "the account" crate::server::check_account_status,
        "Whether the account is active, and what it holds.";
    "com.atproto.server.createAccount" Procedure "the operator" crate::server::create_account,
        "Makes an account, which is active at once; nobody signs up.";
    "com.atproto.server.createAppPassword" Procedure "the account's password" crate::server::create_app_password,
        "Makes a password for a program, shown this once.";
    "com.atproto.server.createSession" Procedure "anyone" crate::server::create_session,
        "Logs in by handle or DID, with the account's password or an app password.";
    "com.atproto.server.deactivateAccount" Procedure "the account's password" crate::server::deactivate_account,
        "Hides the account until it is activated again.";
    "com.atproto.server.deleteSession" Procedure "a refresh token" crate::server::delete_session,
        "Ends the session; its tokens are good for nothing.";
    "com.atproto.server.getServiceAuth" Query "the account" crate::server::get_service_auth,
        "A token for another service, good for 60 seconds at the most.";
    "com.atproto.server.getSession" Query "the account" crate::server::get_session, "Whose session it is.";
    "com.atproto.server.listAppPasswords" Query "the account's password" crate::server::list_app_passwords,
        "Names of app passwords.";
    "com.atproto.server.refreshSession" Procedure "a refresh token" crate::server::refresh_session,
        "The next pair of tokens; a token that was used gives the same next one for two hours.";
    "com.atproto.server.revokeAppPassword" Procedure "the account's password" crate::server::revoke_app_password,
        "Ends an app password and the sessions that were opened with it.";
    "com.atproto.admin.deleteAccount" Procedure "the operator" crate::admin::delete_account,
        "Erases an account for good; its names are never given again.";
    "com.atproto.admin.getAccountInfo" Query "the operator" crate::admin::get_account_info, "An account's names.";
    "com.atproto.admin.getAccountInfos" Query "the operator" crate::admin::get_account_infos, "Several accounts' names.";
    "com.atproto.admin.getSubjectStatus" Query "the operator" crate::admin::get_subject_status,
        "Whether an account is taken down or deactivated.";
    "com.atproto.admin.updateAccountPassword" Procedure "the operator" crate::admin::update_account_password,
        "Gives an account another password, and ends its sessions.";
    "com.atproto.admin.updateSubjectStatus" Procedure "the operator" crate::admin::update_subject_status,
        "Takes an account down or deactivates it, or undoes that.";
    "_health" Query "anyone" crate::pages::health, "Whether the server serves, and its version.";
}

impl Method {
    /// Whether it is the operator's: with the administrator's password it is counted by itself, so that whoever floods the server
    /// does not keep the operator from ending it.
    #[must_use]
    pub fn is_operators(&self) -> bool {
        self.who == OPERATOR
    }
}

/// Methods of the protocol's servers that are not here, each with the reason.
pub static LEFT_OUT: &[(&str, &str)] = &[
    ("app.bsky.actor.getPreferences", "An application's; they come with forwarding to applications."),
    ("app.bsky.actor.putPreferences", "An application's; they come with forwarding to applications."),
    ("com.atproto.identity.refreshIdentity", "Nothing is kept of foreign identities."),
    (
        "com.atproto.identity.requestPlcOperationSignature",
        "Accounts here have DIDs of the web, which no directory signs.",
    ),
    (
        "com.atproto.identity.resolveDid",
        "Documents of this server are served by their hosts; foreign ones are resolved by clients.",
    ),
    ("com.atproto.identity.resolveIdentity", "As `resolveDid`."),
    ("com.atproto.identity.signPlcOperation", "As `requestPlcOperationSignature`."),
    ("com.atproto.identity.submitPlcOperation", "As `requestPlcOperationSignature`."),
    ("com.atproto.identity.updateHandle", "A handle is given once and for good."),
    ("com.atproto.moderation.createReport", "It comes with forwarding to other services."),
    ("com.atproto.repo.importRepo", "Accounts do not move here yet."),
    ("com.atproto.server.confirmEmail", "The server sends no mail."),
    ("com.atproto.server.createInviteCode", "Nobody signs up: accounts are made by the operator."),
    ("com.atproto.server.createInviteCodes", "As `createInviteCode`."),
    ("com.atproto.server.deleteAccount", "It is confirmed by mail; the operator erases accounts."),
    ("com.atproto.server.getAccountInviteCodes", "As `createInviteCode`."),
    ("com.atproto.server.requestAccountDelete", "As `deleteAccount`."),
    ("com.atproto.server.requestEmailConfirmation", "The server sends no mail."),
    ("com.atproto.server.requestEmailUpdate", "The server sends no mail."),
    ("com.atproto.server.requestPasswordReset", "The server sends no mail; the operator sets passwords."),
    ("com.atproto.server.reserveSigningKey", "Keys are made with accounts, which do not move here yet."),
    ("com.atproto.server.resetPassword", "The server sends no mail; the operator sets passwords."),
    ("com.atproto.server.updateEmail", "The server sends no mail."),
    ("com.atproto.sync.getHostStatus", "A relay's."),
    ("com.atproto.sync.listHosts", "A relay's."),
    ("com.atproto.sync.listReposByCollection", "A relay's."),
    ("com.atproto.sync.notifyOfUpdate", "A relay's, and given up."),
    ("com.atproto.sync.requestCrawl", "A relay's."),
    ("com.atproto.temp.checkSignupQueue", "Nobody signs up."),
];

/// The method of a name.
#[must_use]
pub fn find(nsid: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.nsid == nsid)
}
