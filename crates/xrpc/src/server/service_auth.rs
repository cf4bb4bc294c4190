//! Tokens that an account shows to other services, and those that it shows here.

use crate::answer;
use crate::auth::{Access, Scope};
use crate::call::Call;
use crate::error::{Error, Name, Result};
use crate::jose::{SERVICE_SECONDS_MAX, ServiceClaims, ServiceError, ServiceExpected, mint_service, parse_service};
use crate::sessions::bearer;
use highwater_pds::{Account, Authority};
use highwater_repo::key::{PublicKey, SigningKey};
use highwater_repo::syntax::{is_did, is_nsid};
use serde_json::json;

/// Methods by which accounts are managed: no token is minted for them, since whoever gets one would manage the account.
const PROTECTED: [&str; 3] = ["com.atproto.admin.", "com.atproto.server.", "com.atproto.identity."];
/// The one of them that another server is shown when an account moves there.
const MOVING: &str = "com.atproto.server.createAccount";
/// Methods that only the account's own password and privileged app passwords call.
const PRIVILEGED: &str = "chat.bsky.";

/// Whether a session may have a token for a method.
fn may_call(scope: Scope, method: Option<&str>) -> Result<()> {
    let Some(method) = method else {
        // A token for any method is one for those that the session may not call.
        return match scope {
            Scope::Full => Ok(()),
            _ => Err(Error::invalid("an app password gets tokens for single methods: name one with `lxm`")),
        };
    };
    if !is_nsid(method) {
        return Err(Error::invalid("the parameter lxm is no NSID"));
    }
    let protected = method != MOVING && PROTECTED.iter().any(|prefix| method.starts_with(prefix));
    let moving = method == MOVING && scope != Scope::Full;
    let private = method.starts_with(PRIVILEGED) && scope == Scope::AppPassword;
    if protected || moving || private {
        return Err(Error::invalid(format!("this session gets no token for {method}")));
    }
    Ok(())
}

/// The audience is a DID, with the fragment of one of its services or without.
fn is_audience(text: &str) -> bool {
    let (did, fragment) = text.split_once('#').map_or((text, None), |(did, fragment)| (did, Some(fragment)));
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    is_did(did) && fragment.is_none_or(|fragment| !fragment.is_empty() && fragment.bytes().all(fits))
}

/// `com.atproto.server.getServiceAuth`
pub async fn get_service_auth(call: Call) -> Result {
    let access = call.access()?;
    let row = call.row(&access)?;
    row.may_act()?;
    let audience = call.query.required("aud")?;
    if !is_audience(audience) {
        return Err(Error::invalid("the parameter aud is a DID, with a service's fragment or without"));
    }
    let method = call.query.optional("lxm")?;
    may_call(access.scope, method)?;
    let now = call.context.clock.wall().0 / 1_000;
    let latest = now + SERVICE_SECONDS_MAX;
    let exp = call.query.integer("exp", 0..=u64::MAX, latest)?;
    if exp <= now || exp > latest {
        let message =
            format!("a token ends within {SERVICE_SECONDS_MAX} seconds from now, because nobody can call it back");
        return Err(Error::new(Name::BadExpiration, message));
    }
    let claims = ServiceClaims {
        iat: now,
        iss: row.did.to_string(),
        aud: audience.to_owned(),
        exp,
        lxm: method.map(str::to_owned),
        jti: format!("{:032x}", u128::from_be_bytes(call.context.draw_16())),
    };
    let key = signing_key(&call, &row)?;
    answer::secret(&json!({ "token": mint_service(&key, &claims) }))
}

fn signing_key(call: &Call, row: &Account) -> Result<SigningKey> {
    let secret = call.context.host.unseal(row.key.sealed, &row.key.secret);
    let secret: Option<[u8; 32]> = secret.and_then(|secret| secret.try_into().ok());
    let key = secret.and_then(|secret| SigningKey::from_secret(row.key.curve, &secret).ok());
    key.ok_or_else(|| answer::internal(&"the signing key of an account does not open"))
}

impl From<ServiceError> for Error {
    fn from(error: ServiceError) -> Self {
        let name = if error == ServiceError::Expired { Name::ExpiredToken } else { Name::InvalidToken };
        Self::new(name, error.to_string())
    }
}

impl Call {
    /// Whose request it is: by a session, or by a token of service auth that an account of this server signed for this method, as
    /// services that work for an account show it.
    /// # Errors
    /// As [`Call::access`].
    pub(crate) fn access_or_service(&self, method: &str) -> Result<Access> {
        let Ok(token) = parse_service(bearer(&self.head)?) else { return self.access() };
        let auth = self.auth()?;
        let row = self.context.host.state(|state| state.by_did(token.issuer()).cloned());
        let row = row.ok_or_else(|| Error::new(Name::InvalidToken, "the token is of no account of this server"))?;
        Authority::Key.judge(&row)?;
        let key = PublicKey::parse(&row.key.public).map_err(|error| answer::internal(&error))?;
        let now = self.context.clock.wall().0 / 1_000;
        token.judge(&key, &ServiceExpected { audience: auth.audience(), method, now })?;
        Ok(Access { account: row.id, scope: Scope::AppPassword, authority: Authority::Key })
    }
}
