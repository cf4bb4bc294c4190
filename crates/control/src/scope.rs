//! What a key may do.

use std::fmt;

macro_rules! scopes {
    ($($variant:ident $bit:literal $name:literal $what:literal;)+) => {
        /// One thing that a key may do; its number is part of the stored formats.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Scope {
            $(#[doc = $what] $variant = $bit,)+
        }

        impl Scope {
            /// Every scope, in the order in which they are listed.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// As requests and answers spell it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What it allows, in a sentence.
            #[must_use]
            pub fn what(self) -> &'static str {
                match self { $(Self::$variant => $what,)+ }
            }
        }
    };
}

scopes! {
    Read 0 "read" "Read streams and their snapshots, live too, and ask for their heads.";
    Append 1 "append" "Append to streams, claim them and close them, and ask for their heads.";
    Create 2 "create" "Create streams, or find them with the same settings.";
    Snapshot 3 "snapshot" "Publish snapshots and move the retention up to them.";
    Delete 4 "delete" "Delete streams.";
    Metrics 5 "metrics" "Read the status page and the metrics.";
    Admin 6 "admin" "Everything, keys, accounts and plans included, on every path.";
}

/// A set of scopes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Scopes(u16);

impl Scopes {
    /// Whether `scope` is among them, or `admin`, which includes every other.
    #[must_use]
    pub fn allow(self, scope: Scope) -> bool {
        self.contains(scope) || self.contains(Scope::Admin)
    }

    /// Whether `scope` itself is among them.
    #[must_use]
    pub fn contains(self, scope: Scope) -> bool {
        self.0 & bit(scope) != 0
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Reads names, separated by commas or spaces.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let names = text.split([',', ' ']).filter(|name| !name.is_empty());
        names.map(|name| Scope::ALL.iter().find(|scope| scope.name() == name).copied()).collect()
    }

    /// Its stored number.
    #[must_use]
    pub fn bits(self) -> u16 {
        self.0
    }

    /// The set of a stored number; `None` if it has a scope that this program does not know.
    #[must_use]
    pub fn from_bits(bits: u16) -> Option<Self> {
        let known = Scope::ALL.iter().fold(0, |bits, scope| bits | bit(*scope));
        (bits & !known == 0).then_some(Self(bits))
    }

    /// Its members, in their order.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.iter().copied().filter(move |scope| self.contains(*scope))
    }
}

fn bit(scope: Scope) -> u16 {
    1 << scope as u16
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | bit(scope)))
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Scope::name).collect();
        f.write_str(&names.join(","))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scopes({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_read_back_what_they_spell() {
        let some = Scopes::parse("append, read").expect("known");
        assert_eq!(some.to_string(), "read,append");
        assert_eq!(Scopes::parse(&some.to_string()), Some(some));
        assert_eq!(Scopes::from_bits(some.bits()), Some(some));
        assert_eq!(Scopes::parse("read,write"), None);
        assert_eq!(Scopes::from_bits(1 << 12), None);
        assert!(Scopes::parse(" , ").expect("nothing unknown").is_empty());
    }

    #[test]
    fn admin_allows_everything_and_nothing_else_does() {
        let admin = Scopes::from_iter([Scope::Admin]);
        assert!(Scope::ALL.iter().all(|scope| admin.allow(*scope)));
        let rest: Scopes = Scope::ALL.iter().copied().filter(|scope| *scope != Scope::Admin).collect();
        assert!(!rest.allow(Scope::Admin));
        assert!(!Scopes::from_iter([Scope::Append]).allow(Scope::Read));
    }
}
