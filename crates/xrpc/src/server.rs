//! `com.atproto.server`: sessions, app passwords, and what an account does with itself.

mod account;
mod app_password;
mod service_auth;
mod session;

pub use account::{activate_account, check_account_status, create_account, deactivate_account};
pub use app_password::{create_app_password, list_app_passwords, revoke_app_password};
pub use service_auth::get_service_auth;
pub use session::{create_session, delete_session, get_session, refresh_session};

use axum::response::{IntoResponse, Response};

/// An answer without content.
pub(crate) fn nothing() -> Response {
    axum::http::StatusCode::OK.into_response()
}
