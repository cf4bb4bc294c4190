//! The network between everyone and the server: it loses, delays, reorders, repeats and cuts.

use crate::message::{Ask, Party};
use crate::swarm::{Swarm, chance};
use highwater_base::Random;
use highwater_base::random::SplitMix;
use std::collections::BTreeMap;

/// Milliseconds after which a party gives a request up.
pub const PATIENCE_MS: u64 = 10_000;
/// Milliseconds that a slow message takes at the most: past the patience of whoever waits for it.
const SLOW_MS: u64 = 25_000;

/// How the answer to one copy of a request comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// As it is.
    Plain,
    /// Not at all: the layer that sent it has given it up.
    Never,
    /// Only a success, as the contract lets a layer forward it that has sent the request before; else a timeout.
    SuccessOnly,
}

/// One copy of a request on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy {
    /// Milliseconds until it arrives.
    pub delay_ms: u64,
    /// How its answer comes back.
    pub returns: Return,
}

/// The network's state.
#[derive(Debug, Default)]
pub struct Network {
    cut_until: BTreeMap<Party, u64>,
    healed: bool,
}

impl Network {
    /// Cuts a party off until then.
    pub fn cut(&mut self, party: Party, until_ms: u64) {
        self.cut_until.insert(party, until_ms);
    }

    /// From now on everything arrives, and soon.
    pub fn heal(&mut self) {
        self.cut_until.clear();
        self.healed = true;
    }

    fn is_cut(&self, party: Party, now_ms: u64) -> bool {
        self.cut_until.get(&party).is_some_and(|until| now_ms < *until)
    }

    fn delay(&self, swarm: &Swarm, random: &mut SplitMix) -> u64 {
        if !self.healed && chance(random, swarm.slow) {
            return random.below(SLOW_MS);
        }
        random.below(swarm.latency_ms + 1)
    }

    /// What becomes of a request.
    pub fn request(&self, ask: &Ask, from: Party, now_ms: u64, swarm: &Swarm, random: &mut SplitMix) -> Vec<Copy> {
        let delay_ms = self.delay(swarm, random);
        if self.healed {
            return vec![Copy { delay_ms, returns: Return::Plain }];
        }
        if self.is_cut(from, now_ms) || chance(random, swarm.lose_request) {
            return Vec::new();
        }
        if ask.repeatable() && chance(random, swarm.duplicate) {
            let again_ms = self.delay(swarm, random);
            return vec![
                Copy { delay_ms, returns: Return::Never },
                Copy { delay_ms: again_ms, returns: Return::SuccessOnly },
            ];
        }
        vec![Copy { delay_ms, returns: Return::Plain }]
    }

    /// Milliseconds until an answer arrives; nothing if it is lost.
    pub fn answer(&self, to: Party, now_ms: u64, swarm: &Swarm, random: &mut SplitMix) -> Option<u64> {
        let delay_ms = self.delay(swarm, random);
        let lost = !self.healed && (self.is_cut(to, now_ms) || chance(random, swarm.lose_answer));
        (!lost).then_some(delay_ms)
    }
}
