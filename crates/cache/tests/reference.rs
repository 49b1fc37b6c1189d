//! Comparison of the caches with a second, independent simulator. Its sets are maps, its recency is a time stamp; it has no keys
//! and no flags.

#![allow(clippy::unwrap_used)] // a helper that fails has failed its test

use std::collections::BTreeMap;

use countersteer_cache::private::{AccessKind, CoreRequest, Private, ServingLevel};
use countersteer_cache::shared::{Inclusion, SharedTree};
use countersteer_cache::{Cache, Geometry, LineKey, Replacement};
use proptest::prelude::*;

#[derive(Default)]
struct Simple {
    sets: u64,
    ways: usize,
    /// By set and line: time of the last use, and true if dirty.
    lines: BTreeMap<u64, BTreeMap<u64, (u64, bool)>>,
    clock: u64,
    hits: u64,
    misses: u64,
}

impl Simple {
    fn new(shape: Geometry) -> Self {
        Self {
            sets: u64::from(shape.sets),
            ways: shape.ways as usize,
            ..Self::default()
        }
    }

    fn get(&mut self, line: u64) -> Option<&mut (u64, bool)> {
        self.lines
            .entry(line % self.sets)
            .or_default()
            .get_mut(&line)
    }

    fn access(&mut self, line: u64, write: bool) -> bool {
        self.clock += 1;
        let now = self.clock;
        let hit = self
            .get(line)
            .map(|entry| *entry = (now, entry.1 || write))
            .is_some();
        self.hits += u64::from(hit);
        self.misses += u64::from(!hit);
        hit
    }

    fn insert(&mut self, line: u64, dirty: bool) -> Option<(u64, bool)> {
        self.clock += 1;
        let (now, ways) = (self.clock, self.ways);
        let set = self.lines.entry(line % self.sets).or_default();
        let victim = if set.len() == ways {
            let oldest = set
                .iter()
                .min_by_key(|(_, (used, _))| *used)
                .map(|(l, (_, d))| (*l, *d));
            oldest.inspect(|(line, _)| {
                set.remove(line);
            })
        } else {
            None
        };
        set.insert(line, (now, dirty));
        victim
    }

    fn take(&mut self, line: u64) -> Option<bool> {
        self.lines
            .entry(line % self.sets)
            .or_default()
            .remove(&line)
            .map(|(_, dirty)| dirty)
    }
}

struct Core {
    i: Simple,
    d: Simple,
    l2: Option<Simple>,
}

/// Two cores in front of one shared cache and memory.
struct World {
    cores: Vec<Core>,
    last: Simple,
    inclusion: Inclusion,
    read: u64,
    written: u64,
}

impl World {
    fn access(&mut self, core: usize, access: AccessKind, line: u64) {
        let write = access == AccessKind::Store;
        let own = &mut self.cores[core];
        let first = if access == AccessKind::Fetch {
            &mut own.i
        } else {
            &mut own.d
        };
        if first.access(line, write) {
            return;
        }
        // The core's own accesses come first, its requests to others after them.
        let in_second = own.l2.as_mut().is_some_and(|l2| l2.access(line, false));
        let mut left = Vec::new();
        if let Some(l2) = own.l2.as_mut().filter(|_| !in_second) {
            left.extend(l2.insert(line, false));
        }
        if let Some((line, dirty)) = first.insert(line, write) {
            match own.l2.as_mut().map(|l2| (dirty, l2.get(line))) {
                Some((false, _)) => {}
                Some((true, Some(entry))) => entry.1 = true,
                _ => left.push((line, dirty)),
            }
        }
        if !in_second {
            self.bring(line);
        }
        left.into_iter()
            .for_each(|(line, dirty)| self.leave(line, dirty));
    }

    fn bring(&mut self, line: u64) {
        if self.last.access(line, false) {
            if self.inclusion == Inclusion::Exclusive && self.last.take(line) == Some(true) {
                self.written += 1;
            }
            return;
        }
        self.read += 1;
        if self.inclusion != Inclusion::Exclusive {
            self.keep(line, false);
        }
    }

    fn keep(&mut self, line: u64, dirty: bool) {
        let Some((victim, mut dirty)) = self.last.insert(line, dirty) else {
            return;
        };
        if self.inclusion == Inclusion::Inclusive {
            for core in &mut self.cores {
                let second = core.l2.as_mut().and_then(|l2| l2.take(victim));
                for found in [core.i.take(victim), core.d.take(victim), second]
                    .into_iter()
                    .flatten()
                {
                    dirty |= found;
                }
            }
        }
        self.written += u64::from(dirty);
    }

    fn leave(&mut self, line: u64, dirty: bool) {
        match self.last.get(line) {
            Some(entry) => entry.1 |= dirty,
            None if self.inclusion == Inclusion::Exclusive => self.keep(line, dirty),
            None => self.written += u64::from(dirty),
        }
    }
}

fn cache(shape: Geometry) -> Cache {
    Cache::new(shape, Replacement::Lru).unwrap()
}

fn shape() -> impl Strategy<Value = Geometry> {
    (1..40_u32, 1..20_u32).prop_map(|(sets, ways)| Geometry { sets, ways })
}

/// Steps of core, access and line. Lines repeat, with strides and at random.
fn steps() -> impl Strategy<Value = Vec<(usize, AccessKind, u64)>> {
    let access = prop_oneof![
        Just(AccessKind::Fetch),
        Just(AccessKind::Load),
        Just(AccessKind::Store)
    ];
    let line = prop_oneof![
        0..40_u64,
        0..400_u64,
        (0..400_u64).prop_map(|l| l * 32),
        0..5000_u64
    ];
    prop::collection::vec((0..2_usize, access, line), 1..1000)
}

fn counted(cache: &Cache) -> (u64, u64) {
    (cache.tally(0).hits, cache.tally(0).misses)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn hits_and_misses_are_those_of_an_independent_simulator(
        i in shape(), d in shape(), l2 in prop::option::of(shape()), last in shape(),
        inclusion in prop_oneof![Just(Inclusion::NonInclusive), Just(Inclusion::Inclusive), Just(Inclusion::Exclusive)],
        steps in steps(),
    ) {
        let core = |_| Core { i: Simple::new(i), d: Simple::new(d), l2: l2.map(Simple::new) };
        let mut world = World {
            cores: (0..2).map(core).collect(),
            last: Simple::new(last),
            inclusion,
            read: 0,
            written: 0,
        };
        let mut cores = vec![Private::new(cache(i), cache(d), l2.map(cache), Default::default()); 2];
        let mut behind = SharedTree::default();
        let llc = behind.add(cache(last), inclusion, None);
        let mut requests = Vec::new();
        for (core, access, line) in steps {
            world.access(core, access, line);
            let served = cores[core].access(access, LineKey::new(0, line), &mut requests);
            prop_assert_eq!(
                served == ServingLevel::Beyond,
                requests.iter().any(|r| matches!(r, CoreRequest::Demand { .. }))
            );
            for request in requests.drain(..) {
                behind.serve(Some(llc), request);
                for recall in std::mem::take(&mut behind.recalls) {
                    let found: Vec<_> = cores.iter_mut().filter_map(|c| c.invalidate(recall.key)).collect();
                    if !recall.dirty && found.contains(&true) {
                        behind.take_victim(None, recall.key, true);
                    }
                }
            }
        }
        for (ours, theirs) in cores.iter().zip(&world.cores) {
            prop_assert_eq!(counted(&ours.instructions), (theirs.i.hits, theirs.i.misses));
            prop_assert_eq!(counted(&ours.data), (theirs.d.hits, theirs.d.misses));
            if let (Some(ours), Some(theirs)) = (&ours.second, &theirs.l2) {
                prop_assert_eq!(counted(ours), (theirs.hits, theirs.misses));
            }
        }
        prop_assert_eq!(counted(behind.cache(llc)), (world.last.hits, world.last.misses));
        prop_assert_eq!(behind.traffic(0).read, world.read);
        prop_assert_eq!(behind.traffic(0).written, world.written);
    }
}
