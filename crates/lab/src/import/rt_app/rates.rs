//! Rates at which tasks repeat their phases, given that tasks wait until others resume them.
//!
//! Input: for each task, the length of a pass, its waits and its resumes. Output: passes per second.

use std::collections::BTreeMap;

/// Contents of one pass through a task's phases: CPU time, sleeps, and numbers of waits and resumes by name.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskPass {
    pub(super) run_s: f64,
    pub(super) sleeps: f64,
    pub(super) slept_s: f64,
    pub(super) waits: BTreeMap<String, f64>,
    pub(super) resumes: BTreeMap<String, f64>,
}

/// Minimum length of a pass in seconds; rt-app cannot measure shorter ones.
const SHORTEST_S: f64 = 1e-6;

impl TaskPass {
    pub(super) fn add(&mut self, other: &Self, times: f64) {
        self.run_s += other.run_s * times;
        self.sleeps += other.sleeps * times;
        self.slept_s += other.slept_s * times;
        for (own, others) in [
            (&mut self.waits, &other.waits),
            (&mut self.resumes, &other.resumes),
        ] {
            for (name, count) in others {
                *own.entry(name.clone()).or_default() += count * times;
            }
        }
    }

    /// Returns the length of the pass without waits, in seconds.
    pub(super) fn length_s(&self) -> f64 {
        (self.run_s + self.slept_s).max(SHORTEST_S)
    }

    /// Returns the pass with its waits as sleeps of the time that is left at this rate; without them if no time is left.
    pub(super) fn paced(&self, passes_per_s: f64) -> Self {
        let waits: f64 = self.waits.values().sum();
        let slack_s = 1.0 / passes_per_s - self.length_s();
        let mut paced = self.clone();
        if waits > 0.0 && slack_s > SHORTEST_S {
            paced.sleeps += waits;
            paced.slept_s += slack_s;
        }
        paced
    }
}

/// Returns the passes per second of each task; 0 for a task that waits although no other task resumes it.
///
/// Each pass needs one resume for each of its waits with the same name; a resume wakes all waiting tasks at once. Rates start
/// with the speed of each task alone and are reduced until all are consistent.
pub(super) fn rates(passes: &[TaskPass]) -> Vec<f64> {
    let mut rates: Vec<f64> = passes.iter().map(|pass| 1.0 / pass.length_s()).collect();
    for _ in 0..=passes.len() {
        let mut resumed: BTreeMap<&str, f64> = BTreeMap::new();
        for (pass, rate) in passes.iter().zip(&rates) {
            for (name, count) in &pass.resumes {
                *resumed.entry(name).or_default() += count * rate;
            }
        }
        for (pass, rate) in passes.iter().zip(&mut rates) {
            for (name, count) in &pass.waits {
                let own = pass.resumes.get(name).map_or(0.0, |own| own * *rate);
                let others = resumed.get(name.as_str()).copied().unwrap_or(0.0) - own;
                *rate = rate.min(others.max(0.0) / count);
            }
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(run_s: f64, slept_s: f64, waits: &str, resumes: &str) -> TaskPass {
        let named = |name: &str| {
            let once = (name.to_owned(), 1.0);
            (!name.is_empty()).then_some(once).into_iter().collect()
        };
        TaskPass {
            run_s,
            sleeps: f64::from(u8::from(slept_s > 0.0)),
            slept_s,
            waits: named(waits),
            resumes: named(resumes),
        }
    }

    #[test]
    fn who_waits_goes_as_often_as_it_is_resumed() {
        let passes = [
            pass(0.002, 0.008, "", "a"),
            pass(0.001, 0.0, "a", "b"),
            pass(0.001, 0.0, "b", ""),
            pass(0.001, 0.0, "nobody", ""),
        ];
        let rates = rates(&passes);
        assert_eq!(rates[3], 0.0);
        for rate in &rates[..3] {
            assert!((rate - 100.0).abs() < 1e-9, "{rates:?}");
        }
        let paced = passes[1].paced(rates[1]);
        assert_eq!(paced.sleeps, 1.0);
        assert!((paced.slept_s - 0.009).abs() < 1e-9, "{paced:?}");
    }
}
