//! Parameters of a method, as its query carries them.

use crate::error::{Error, Result};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Parameters, in the order in which they came. Those that a method does not know are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query.
    /// # Errors
    /// `InvalidRequest` if it is not text in UTF-8 once its percent signs are resolved.
    pub fn parse(query: Option<&str>) -> Result<Self> {
        let parts = query.unwrap_or_default().split('&').filter(|part| !part.is_empty());
        let pairs = parts.map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Ok((decode(name)?, decode(value)?))
        });
        pairs.collect::<Result<_>>().map(Self)
    }

    /// All values of a parameter, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A parameter that may be absent.
    /// # Errors
    /// `InvalidRequest` if it stands twice.
    pub fn optional(&self, name: &str) -> Result<Option<&str>> {
        let mut values = self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let first = values.next();
        match values.next() {
            None => Ok(first),
            Some(_) => Err(Error::invalid(format!("the parameter {name} stands twice"))),
        }
    }

    /// A parameter that must be there.
    /// # Errors
    /// `InvalidRequest` if it is absent or stands twice.
    pub fn required(&self, name: &str) -> Result<&str> {
        self.optional(name)?.ok_or_else(|| Error::invalid(format!("the parameter {name} is missing")))
    }

    /// A parameter of a kind with a text of its own.
    /// # Errors
    /// `InvalidRequest` if it is absent, stands twice, or is none.
    pub fn parsed<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<T> {
        parsed(name, self.required(name)?)
    }

    /// As [`Self::parsed`], for one that may be absent.
    /// # Errors
    /// `InvalidRequest` if it stands twice or is none.
    pub fn parsed_optional<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<Option<T>> {
        self.optional(name)?.map(|text| parsed(name, text)).transpose()
    }

    /// A whole number within bounds.
    /// # Errors
    /// `InvalidRequest` if it stands twice, is none, or lies outside.
    pub fn integer(&self, name: &str, bounds: RangeInclusive<u64>, default: u64) -> Result<u64> {
        let Some(text) = self.optional(name)? else { return Ok(default) };
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| digits && bounds.contains(number));
        let (low, high) = (bounds.start(), bounds.end());
        number.ok_or_else(|| Error::invalid(format!("the parameter {name} is a whole number from {low} to {high}")))
    }

    /// True or false.
    /// # Errors
    /// `InvalidRequest` if it stands twice or is something else.
    pub fn boolean(&self, name: &str) -> Result<bool> {
        match self.optional(name)? {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Error::invalid(format!("the parameter {name} is true or false"))),
        }
    }
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(name: &str, text: &str) -> Result<T> {
    text.parse().map_err(|error| Error::invalid(format!("the parameter {name}: {error}")))
}

/// Resolves percent signs and plus signs.
fn decode(text: &str) -> Result<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
                match (digit(), digit()) {
                    (Some(high), Some(low)) => (high << 4 | low) as u8,
                    _ => return Err(Error::invalid("a percent sign in the query is not followed by two digits")),
                }
            }
            byte => byte,
        });
    }
    String::from_utf8(out).map_err(|_| Error::invalid("the query is not text in UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_repo::Cid;

    #[test]
    fn parameters_are_read_as_forms_write_them() {
        let query =
            Query::parse(Some("did=did%3Aweb%3Aa.example&cids=a&cids=b&&text=a+b%C3%A9&flag=true")).expect("fine");
        assert_eq!(query.required("did").expect("there"), "did:web:a.example");
        assert_eq!(query.all("cids").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(query.optional("text").expect("once"), Some("a bé"));
        assert!(query.boolean("flag").expect("a boolean") && !query.boolean("other").expect("absent"));
        assert!(query.optional("cids").is_err(), "it stands twice");
        assert!(query.required("other").is_err() && query.parsed::<Cid>("text").is_err());
        for bad in ["a=%", "a=%4", "a=%zz", "a=%ff"] {
            assert!(Query::parse(Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_number_is_whole_and_within_its_bounds() {
        let limit =
            |text: &str| Query::parse(Some(&format!("limit={text}"))).expect("fine").integer("limit", 1..=100, 50);
        assert_eq!(limit("7").expect("fine"), 7);
        for bad in ["0", "101", "-1", "+1", "1.5", "", "x", "99999999999999999999"] {
            let encoded = bad.replace('+', "%2B");
            assert!(limit(&encoded).is_err(), "{bad}");
        }
        assert_eq!(Query::default().integer("limit", 1..=100, 50).expect("absent"), 50);
    }
}
