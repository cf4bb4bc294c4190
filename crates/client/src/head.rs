//! A stream's head: who serves it, which history it has, and where it ends.

use crate::headers::{Headers, canonical_decimal};
use crate::stream::Expiry;
use highwater_base::{Incarnation, Offset};

/// The release line that this client speaks: 0.11, as major x 1000 + minor.
pub const PROTOCOL: u32 = 11;

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The release line.
    pub protocol: u32,
    /// The cluster, compared byte for byte.
    pub cluster_id: String,
}

/// Reads the identity of a HEAD's answer, a 404 included; `None` if it carries none, or half of one.
#[must_use]
pub fn identity(headers: &Headers) -> Option<Identity> {
    let protocol = headers.parsed("ursula-protocol", canonical_decimal).ok().flatten()?;
    let cluster_id = headers.text("ursula-cluster-id").ok().flatten()?;
    let fits = (1..=64).contains(&cluster_id.len())
        && cluster_id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    fits.then_some(Identity { protocol: u32::try_from(protocol).ok()?, cluster_id: cluster_id.to_owned() })
}

/// A stream's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The token of its history.
    pub incarnation: Incarnation,
    /// The offset behind its last byte.
    pub next: Offset,
    /// The first byte that is still there.
    pub retained: Offset,
    /// Whether it is closed.
    pub closed: bool,
    /// Its content type, as the server spells it; empty if it names none.
    pub content_type: String,
    /// The history before this one, and the offset below which both hold the same bytes.
    pub previous: Option<(Incarnation, Offset)>,
    /// When the stream ends by itself.
    pub expiry: Option<Expiry>,
    /// The largest request that the server, or a layer before it, takes, in bytes.
    pub request_bytes_max: Option<u64>,
}

/// Reads a successful HEAD; `None` if a field is missing or malformed.
#[must_use]
pub fn head(headers: &Headers) -> Option<Head> {
    let next = headers.offset("stream-next-offset").ok()??;
    let retained = headers.offset("stream-retained-offset").ok()?.unwrap_or_default();
    let incarnation = headers.incarnation("stream-incarnation").ok()??;
    let previous = headers.incarnation("stream-previous-incarnation").ok()?;
    let inherited = headers.offset("stream-inherited-offset").ok()?;
    let previous = match (previous, inherited) {
        (None, None) => None,
        (Some(previous), Some(inherited)) if previous != incarnation && inherited <= next => {
            Some((previous, inherited))
        }
        _ => return None,
    };
    (retained <= next).then_some(Head {
        incarnation,
        next,
        retained,
        closed: headers.flag("stream-closed").ok()?,
        content_type: headers.text("content-type").ok()?.unwrap_or_default().to_owned(),
        previous,
        expiry: expiry(headers)?,
        request_bytes_max: headers.parsed("ursula-max-request-bytes", canonical_decimal).ok()?,
    })
}

/// When a stream ends by itself; `None` if that is malformed, or told twice.
fn expiry(headers: &Headers) -> Option<Option<Expiry>> {
    let ttl_s = headers.parsed("stream-ttl", canonical_decimal).ok()?;
    let at = headers.text("stream-expires-at").ok()?;
    match (ttl_s, at) {
        (Some(_), Some(_)) => None,
        (ttl_s, at) => Some(ttl_s.map(Expiry::Ttl).or(at.map(|at| Expiry::At(at.to_owned())))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: [(&str, &str); 5] = [
        ("Stream-Incarnation", "4503599627370497"),
        ("Stream-Next-Offset", "00000000000000000007"),
        ("Stream-Retained-Offset", "00000000000000000003"),
        ("Stream-Previous-Incarnation", "4503599627370498"),
        ("Stream-Inherited-Offset", "00000000000000000005"),
    ];

    #[test]
    fn a_head_is_whole_or_nothing() {
        let head_of = |fields: &[(&str, &str)]| head(&Headers::new(fields.iter().map(|&(n, v)| (n, v))));
        let whole = head_of(&FULL).expect("a whole head");
        assert_eq!((whole.next, whole.retained), (Offset(7), Offset(3)));
        assert_eq!(whole.previous.map(|(_, inherited)| inherited), Some(Offset(5)));
        assert!(head_of(&FULL[..3]).is_some_and(|head| head.previous.is_none()));
        assert_eq!(head_of(&FULL[..4]), None, "half of a history event");
        assert_eq!(head_of(&FULL[1..3]), None, "no token");
    }

    #[test]
    fn half_an_identity_is_none() {
        let identity_of = |fields: &[(&str, &str)]| identity(&Headers::new(fields.iter().map(|&(n, v)| (n, v))));
        let both = [("Ursula-Protocol", "11"), ("Ursula-Cluster-Id", "a.b_c-1")];
        assert_eq!(identity_of(&both), Some(Identity { protocol: 11, cluster_id: "a.b_c-1".to_owned() }));
        assert_eq!(identity_of(&both[..1]), None);
        assert_eq!(identity_of(&both[1..]), None);
        assert_eq!(identity_of(&[("Ursula-Protocol", "11"), ("Ursula-Cluster-Id", "a b")]), None);
    }
}
