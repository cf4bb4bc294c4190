//! Every place at which a server of accounts can die, in short lives.

use highwater_sim::pds::stories::{crowded, life, restore};
use highwater_sim::server::Death;

const DEATHS: [Death; 2] = [Death::Process, Death::Power];

/// What was seen and what was acknowledged is there, and everybody agrees.
#[test]
fn a_server_may_die_at_any_operation() {
    for death in DEATHS {
        let operations = life(None, death).unwrap_or_else(|broken| panic!("{broken}"));
        assert!(operations > 80, "{operations} operations");
        // A process that dies leaves more to its successor than the power does: every second place is enough.
        let step = if death == Death::Power { 1 } else { 2 };
        for last in (1..=operations).step_by(step) {
            life(Some(last), death).unwrap_or_else(|broken| panic!("{death:?} at operation {last}: {broken}"));
        }
    }
}

/// Operations that the blocks of an account take at the most to be written together.
const TOGETHER: u64 = 24;

/// What an account holds is written anew, and what lay there before goes: neither is lost at any place in between.
#[test]
fn a_server_may_die_while_it_writes_blocks_together() {
    let operations = crowded(None, Death::Power).unwrap_or_else(|broken| panic!("{broken}"));
    for last in operations - TOGETHER..=operations + 2 {
        crowded(Some(last), Death::Power).unwrap_or_else(|broken| panic!("at operation {last}: {broken}"));
    }
}

/// Each account is told of once, above everything of the lost run; the marker is gone; whoever followed the lost run ends with what the
/// copy has; and a further start sends nothing, although nobody has read a frame yet.
#[test]
fn a_restore_may_die_at_any_operation() {
    for death in DEATHS {
        let operations = restore(3, &[], death).unwrap_or_else(|broken| panic!("{broken}"));
        assert!(operations > 20, "{operations} operations");
        for last in 1..=operations {
            restore(3, &[last], death).unwrap_or_else(|broken| panic!("{death:?} at operation {last}: {broken}"));
        }
    }
}

/// Between two of the places at which a start dies that goes on with a restore. Each place comes up with every such part of the places
/// at which the first start died: all pairs together take too long for every push.
const STRIDE: usize = 4;

/// The same with a start that goes on with the restore, and dies in turn at an operation of its own.
#[test]
fn a_restore_that_is_gone_on_with_may_die_at_any_operation() {
    let operations = restore(1, &[], Death::Power).unwrap_or_else(|broken| panic!("{broken}"));
    let mut pairs = 0;
    for first in 1..=operations {
        let left = restore(1, &[first], Death::Power).unwrap_or_else(|broken| panic!("died at {first}: {broken}"));
        for second in (1 + first % STRIDE as u64..=left).step_by(STRIDE) {
            let ended = restore(1, &[first, second], Death::Power);
            ended.unwrap_or_else(|broken| panic!("died at {first}, then at {second}: {broken}"));
            pairs += 1;
        }
    }
    assert!(pairs > 300, "{pairs} pairs of deaths");
}
