//! Counters of all threads of a process, for measuring its miss curve.
//!
//! Input: the threads of a process. Output: instructions, cycles and misses of each interval, by core PMU.
use std::collections::BTreeMap;

use countersteer_counters::CounterError;
use countersteer_counters::region::{EventCount, Region, RegionOptions};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::{IntervalCounts, OnlineError, OnlineSource};

/// Events for a miss curve: instructions, cycles and misses, in this order.
pub const EVENTS: &str = "instructions,cycles,llc_misses";

/// Counters of all threads of a process and of its descendants.
#[derive(Debug)]
pub struct OfProcess(Vec<Region>);

impl OfProcess {
    /// Opens counters for these threads. `events` are [`EVENTS`], or their replacements in a test.
    ///
    /// # Errors
    /// Fails if the machine has no such counters or they may not be used; the error contains the remedy.
    pub fn open(tids: &[u32], events: &str) -> Result<Self, OnlineError> {
        make_room(tids.len() as u64);
        let mut regions = Vec::new();
        for tid in tids {
            match Region::open(
                events,
                RegionOptions {
                    thread: Some(*tid),
                    inherit: true,
                },
            ) {
                Ok(region) => regions.push(region),
                Err(error) if error.is_of_end(*tid) => {}
                Err(error @ CounterError::Forbidden { .. }) => return Err(error.into()),
                Err(error) => return Err(without(events, &error)),
            }
        }
        if regions.is_empty() {
            let why = "the process has ended".to_owned();
            return Err(OnlineError::Unable {
                why,
                remedy: "name one that runs".into(),
            });
        }
        Ok(Self(regions))
    }
}

/// Raises the limit on open files as far as permitted. Counters are files, and may exceed the usual limit.
fn make_room(threads: u64) {
    // Up to two core types times three events per thread, and other files that are open.
    let needed = threads * 3 * 2 + 64;
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && needed > soft
    {
        // If the permitted limit is too low, opening counters fails with the reason.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard);
    }
}

fn without(events: &str, error: &CounterError) -> OnlineError {
    let why = match error {
        // The user did not write the event string, so the error omits the column.
        CounterError::Spec(spec) => spec.message.clone(),
        other => other.to_string(),
    };
    let remedy = "a curve needs a processor's counters: give the virtual machine a PMU (`-cpu host` with KVM), run on the \
                machine itself, or profile without counters by `steer profile -- PROGRAM`";
    OnlineError::Unable {
        why: format!("{events} cannot be counted: {why}"),
        remedy: remedy.into(),
    }
}

impl OnlineSource for OfProcess {
    fn begin(&mut self) -> Result<(), CounterError> {
        for region in &mut self.0 {
            region.reset()?;
            region.start()?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<BTreeMap<String, IntervalCounts>, CounterError> {
        let mut all: BTreeMap<String, IntervalCounts> = BTreeMap::new();
        for region in &mut self.0 {
            region.stop()?;
            let counts = region.read()?;
            let names: Vec<String> = names(counts);
            for count in counts {
                let seen = all
                    .entry(count.core_type.clone().unwrap_or_default())
                    .or_default();
                add(seen, names.iter().position(|n| *n == count.name), count);
            }
        }
        Ok(all)
    }
}

/// Returns the names of the events in the order of the string, without duplicates.
fn names(counts: &[EventCount]) -> Vec<String> {
    let mut names: Vec<String> = counts.iter().map(|c| c.name.clone()).collect();
    let mut known = std::collections::HashSet::new();
    names.retain(|name| known.insert(name.clone()));
    names
}

fn add(seen: &mut IntervalCounts, place: Option<usize>, count: &EventCount) {
    let Some(value) = count.value.map(|v| v as f64) else {
        return;
    };
    match place {
        Some(0) => seen.instructions += value,
        Some(1) => {
            seen.cycles += value;
            seen.running_ns += count.running_ns as f64;
        }
        _ => seen.misses += value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_by_their_place_and_core_type() {
        let count = |name: &str, core_type: Option<&str>, value| EventCount {
            name: name.into(),
            unit: String::new(),
            core_type: core_type.map(str::to_owned),
            value: Some(value),
            enabled_ns: 9,
            running_ns: 5,
        };
        let counts = [
            count("i", Some("p"), 1),
            count("i", Some("e"), 2),
            count("c", Some("p"), 3),
            count("m", Some("p"), 4),
        ];
        assert_eq!(names(&counts), ["i", "c", "m"]);
        let mut seen = IntervalCounts::default();
        for (place, count) in [(0, &counts[0]), (1, &counts[2]), (2, &counts[3])] {
            add(&mut seen, Some(place), count);
        }
        assert_eq!(
            seen,
            IntervalCounts {
                instructions: 1.0,
                cycles: 3.0,
                misses: 4.0,
                running_ns: 5.0
            }
        );
    }

    #[test]
    fn what_cannot_be_counted_comes_with_its_remedy() {
        let Err(error) = OfProcess::open(&[std::process::id()], EVENTS) else {
            countersteer_fuzz::skipped("this machine has the counters");
            return;
        };
        let text = error.to_string();
        assert!(
            text.contains("perf_event_paranoid")
                || text.contains("without counters by `steer profile"),
            "{text}"
        );
    }
}
