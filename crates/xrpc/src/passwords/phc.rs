//! A hash in the PHC string format: Argon2id, version 19, with parameters that are checked before they cost anything.

use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use std::fmt;
use subtle::ConstantTimeEq as _;

const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

/// Memory that a kept hash may ask for, in KiB: a damaged or forged one must not take all there is.
const MEMORY_KIB_MAX: u32 = 64 << 10;
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 4;

/// What computing a hash takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Memory, in KiB.
    pub memory_kib: u32,
    /// Passes over it.
    pub passes: u32,
    /// Lanes, which are computed one after another here.
    pub lanes: u32,
}

impl Default for Cost {
    /// 19 MiB, two passes, one lane: about 30 ms.
    fn default() -> Self {
        Self { memory_kib: 19 << 10, passes: 2, lanes: 1 }
    }
}

impl Cost {
    fn params(self) -> Option<Params> {
        let bounded = self.memory_kib <= MEMORY_KIB_MAX && self.passes <= PASSES_MAX && self.lanes <= LANES_MAX;
        Params::new(self.memory_kib, self.passes, self.lanes, Some(HASH_BYTES)).ok().filter(|_| bounded)
    }
}

/// A hash and what it was made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hash {
    cost: Cost,
    salt: [u8; SALT_BYTES],
    hash: [u8; HASH_BYTES],
}

/// What a hash is computed in, to be used again: an allocator would keep it for each thread that ever computed one.
#[derive(Default)]
pub struct Memory(Vec<Block>);

impl Hash {
    /// That of a password.
    #[must_use]
    pub fn of(password: &[u8], salt: [u8; SALT_BYTES], cost: Cost, memory: &mut Memory) -> Self {
        let mut made = Self { cost, salt, hash: [0; HASH_BYTES] };
        made.hash = made.compute(password, memory).unwrap_or_default();
        made
    }

    /// One that no password has, to be compared with where there is none.
    #[must_use]
    pub fn nobodys(cost: Cost) -> Self {
        Self { cost, salt: [0; SALT_BYTES], hash: [0; HASH_BYTES] }
    }

    /// What computing it takes.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }

    fn compute(&self, password: &[u8], memory: &mut Memory) -> Option<[u8; HASH_BYTES]> {
        let (params, mut hash) = (self.cost.params()?, [0; HASH_BYTES]);
        memory.0.resize(params.block_count(), Block::default());
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        argon2.hash_password_into_with_memory(password, &self.salt, &mut hash, &mut memory.0).ok()?;
        Some(hash)
    }

    /// Whether it is that of a password; the comparison takes the same time for all.
    #[must_use]
    pub fn fits(&self, password: &[u8], memory: &mut Memory) -> bool {
        self.compute(password, memory).is_some_and(|hash| hash.ct_eq(&self.hash).into())
    }

    /// Reads one, if it is one that this program would make, with a bounded cost.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.strip_prefix("$argon2id$v=19$")?.split('$');
        let (cost, salt, hash) = (fields.next()?, fields.next()?, fields.next()?);
        if fields.next().is_some() {
            return None;
        }
        let mut numbers = cost.split(',');
        let mut number = |name: &str| numbers.next()?.strip_prefix(name)?.parse().ok();
        let cost = Cost { memory_kib: number("m=")?, passes: number("t=")?, lanes: number("p=")? };
        if numbers.next().is_some() {
            return None;
        }
        cost.params()?;
        let salt = STANDARD_NO_PAD.decode(salt).ok()?.try_into().ok()?;
        let hash = STANDARD_NO_PAD.decode(hash).ok()?.try_into().ok()?;
        Some(Self { cost, salt, hash })
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cost { memory_kib, passes, lanes } = self.cost;
        let (salt, hash) = (STANDARD_NO_PAD.encode(self.salt), STANDARD_NO_PAD.encode(self.hash));
        write!(f, "$argon2id$v=19$m={memory_kib},t={passes},p={lanes}${salt}${hash}")
    }
}
