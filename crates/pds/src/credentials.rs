//! What an account logs in with.

use highwater_base::codec::{DecodeError, Reader, Writer};

/// An account's credentials.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Credentials {
    /// The password's hash, in the PHC string format.
    pub password: Option<String>,
}

/// A change of an account's credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Another password, by its hash.
    Password(String),
}

impl Credentials {
    /// Does a change.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Password(hash) => self.password = Some(hash.clone()),
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.option(self.password.as_ref(), |out, hash| {
            out.bytes(hash.as_bytes());
        });
    }

    pub(crate) fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { password: input.option(Reader::string)? })
    }
}

impl Change {
    pub(crate) fn encode(&self, out: &mut Writer) {
        match self {
            Self::Password(hash) => out.u8(1).bytes(hash.as_bytes()),
        };
    }

    pub(crate) fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match input.u8()? {
            1 => Ok(Self::Password(input.string()?)),
            _ => Err(DecodeError::Invalid("change of credentials")),
        }
    }
}
