//! Data that the threads of a behaviour share, computed from its windows.
//!
//! Input: a record. Output: a behaviour's [`Sharing`].

use countersteer_model::profile::{LogHistogram, Sharing};

use super::figures::round;
use super::layout::{STACK_BUCKETS, record};

/// Returns the sharing of `own`; `None` if no two threads ran.
pub fn sharing(own: &[u64]) -> Option<Sharing> {
    let part = |of: usize, all: usize| round(own[of] as f64 / own[all].max(1) as f64);
    let pki = |touches: &u64| round(*touches as f64 * 1000.0 / own[record::INSTRUCTIONS] as f64);
    let touches = &own[record::INVALIDATED..record::INVALIDATED + STACK_BUCKETS];
    let some = touches.iter().rposition(|n| *n > 0).map_or(0, |n| n + 1);
    let sharing = Sharing {
        shared: part(record::SHARED, record::SHARABLE),
        touched_before: part(record::TOUCHED_BEFORE, record::FIRST),
        invalidated_pki: LogHistogram {
            rates: touches[..some].iter().map(pki).collect(),
        },
    };
    let observed = own[record::OBSERVED] > 0;
    observed.then_some(sharing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_sampled_touches_and_rates_per_instruction() {
        let mut window = vec![0; record::WORDS];
        window[record::INSTRUCTIONS] = 1_000_000;
        assert_eq!(sharing(&window), None);
        window[record::OBSERVED] = 900;
        window[record::SHARABLE] = 400;
        window[record::SHARED] = 100;
        window[record::FIRST] = 50;
        window[record::TOUCHED_BEFORE] = 40;
        window[record::INVALIDATED + LogHistogram::bucket(1000)] = 2000;
        let sharing = sharing(&window).unwrap();
        assert_eq!((sharing.shared, sharing.touched_before), (0.25, 0.8));
        assert_eq!(sharing.invalidated_pki.at_least(512.0), 2.0);
        assert_eq!(sharing.invalidated_pki.at_least(2048.0), 0.0);
    }
}
