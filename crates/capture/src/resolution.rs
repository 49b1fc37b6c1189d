//! Resolution times of mispredicted branches in a captured sequence.
//!
//! Input: the dependencies of the sequence, and the positions of its mispredicted branches. Output: cycles from dispatch to
//! resolution, summed over these branches. Instructions are dispatched at a fixed width into a window with in-order retirement.
//! A mispredicted branch empties the front end. Dispatch continues after the resolution and the refill of the front end, so a
//! branch soon after another finds a short window.
//!
//! Source: Eyerman, Smith and Eeckhout, Characterizing the branch misprediction penalty, ISPASS 2006.

use crate::flow::{InsnLatency, MemoryWaits};

/// Instructions dispatched per cycle.
const WIDTH: u32 = 5;
/// Instructions in flight.
const WINDOW: usize = 128;
/// Cycles to refill the front end.
const REFILL: u32 = 15;

/// Returns the cycles of the branches at the positions `wrong` (ascending).
pub fn resolution(
    waits: &MemoryWaits,
    wrong: &[u32],
    latency: impl Fn(usize) -> InsnLatency,
) -> u64 {
    let mut done: Vec<u32> = Vec::with_capacity(waits.len());
    let mut retired: Vec<u32> = Vec::with_capacity(waits.len());
    let mut wrong = wrong.iter().copied().peekable();
    let mut begin = 0;
    let mut first = 0;
    let mut sum = 0;
    for at in 0..waits.len() {
        let mut dispatch = begin + (at - first) as u32 / WIDTH;
        if let Some(leaves) = at.checked_sub(WINDOW).map(|before| retired[before]) {
            dispatch = dispatch.max(leaves);
        }
        let latest = |from: u32, waits: &[u32]| {
            let ends = waits.iter().map(|earlier| done[*earlier as usize]);
            ends.fold(from, u32::max)
        };
        let latency = latency(at);
        let loaded = latest(dispatch, waits.access(at)) + latency.access;
        let end = latest(loaded, waits.rest(at)) + latency.operation;
        done.push(end);
        retired.push(retired.last().map_or(end, |before| end.max(*before)));
        if wrong.next_if_eq(&(at as u32)).is_some() {
            sum += u64::from(end - dispatch);
            (begin, first) = (end + REFILL, at + 1);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_waits_for_the_chain_it_depends_on() {
        let mut chain = MemoryWaits::default();
        (0..21u32)
            .for_each(|at| chain.push(&[], &[], &[at.saturating_sub(1)][..at.min(1) as usize]));
        // Dispatched in cycle 4, done in cycle 21.
        assert_eq!(resolution(&chain, &[20], |_| InsnLatency::UNIT), 17);
        let mut free = MemoryWaits::default();
        (0..21).for_each(|_| free.push(&[], &[], &[]));
        assert_eq!(resolution(&free, &[20], |_| InsnLatency::UNIT), 1);
        assert_eq!(resolution(&free, &[], |_| InsnLatency::UNIT), 0);
    }

    #[test]
    fn a_branch_soon_after_another_waits_for_little() {
        let mut chain = MemoryWaits::default();
        (0..20u32)
            .for_each(|at| chain.push(&[], &[], &[at.saturating_sub(1)][..at.min(1) as usize]));
        let both = resolution(&chain, &[9, 10], |_| InsnLatency::UNIT);
        assert_eq!(both, 9 + 1, "the second begins when the first is resolved");
    }
}
