//! The body of every refusal: `{"error":{"code":"CODE","message":"text"}}`.

use serde::Deserialize;

/// Bytes of a refusal's body that are read; a longer body names no code.
///
/// A code and a sentence take a few hundred bytes; a proxy's page of HTML is not worth more memory.
pub const ERROR_BODY_BYTES_MAX: usize = 16 << 10;

/// Bytes of a code that are believed.
const CODE_BYTES_MAX: usize = 64;

/// What a refusal says in its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorBody {
    /// What a program switches on.
    pub code: String,
    /// What a person reads; may be empty.
    pub message: String,
}

#[derive(Deserialize)]
struct Envelope {
    error: Inner,
}

#[derive(Deserialize)]
struct Inner {
    code: String,
    #[serde(default)]
    message: Option<String>,
}

impl ErrorBody {
    /// Reads a body; `None` if it has another shape. Unknown members and unknown codes are taken.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        if body.len() > ERROR_BODY_BYTES_MAX {
            return None;
        }
        let Envelope { error } = serde_json::from_slice(body).ok()?;
        let visible = error.code.bytes().all(|byte| byte.is_ascii_graphic());
        (visible && (1..=CODE_BYTES_MAX).contains(&error.code.len()))
            .then(|| Self { code: error.code, message: error.message.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(body: &str) -> Option<String> {
        ErrorBody::parse(body.as_bytes()).map(|body| body.code)
    }

    #[test]
    fn only_the_shape_of_the_contract_names_a_code() {
        assert_eq!(code(r#"{"error":{"code":"NO_LEADER"}}"#).as_deref(), Some("NO_LEADER"));
        assert_eq!(code(r#"{"v":1,"error":{"code":"NEW_ONE","message":"m","more":[]}}"#).as_deref(), Some("NEW_ONE"));
        for other in
            ["", "{}", "null", r#"{"error":"NO_LEADER"}"#, r#"{"error":{"code":""}}"#, r#"{"error":{"code":"A B"}}"#]
        {
            assert_eq!(code(other), None, "{other}");
        }
        assert_eq!(ErrorBody::parse(&vec![b' '; ERROR_BODY_BYTES_MAX + 1]), None);
    }
}
