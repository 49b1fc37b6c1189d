//! What a core has to itself: first-level caches for instructions and data, and a second level if it has one.
//!
//! Input: accesses of whatever runs on the core. Output: the level that served each, and [`Request`]s to what lies behind.
//! The caches belong to the core, not to a program: what a program left is found again when it comes back.
//!
//! The second level is not inclusive of the first. A dirty victim marks the copy in the next level that has one, without
//! allocating; only what no level has goes to memory. So demand misses do not depend on what is written back.

use crate::cache::{Cache, Found, Key};
use crate::prefetch::{Prefetch, Prefetcher};

/// What an access is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Fetch,
    Load,
    Store,
}

/// The level that served an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    First,
    Second,
    /// Nothing of the core: a [`Request::Demand`] says what for.
    Beyond,
}

/// What a core asks of the caches behind it, in the order in which it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A line is needed.
    Demand { key: Key, write: bool },
    /// A line may be needed.
    Prefetch(Key),
    /// A line left the core's last level.
    Victim { key: Key, dirty: bool },
    /// A clean line was written: copies of other cores become invalid.
    Upgrade(Key),
}

/// The private caches of a core.
#[derive(Clone, Debug)]
pub struct Private {
    pub instructions: Cache,
    pub data: Cache,
    pub second: Option<Cache>,
    /// At the second level, or at the data side of the first where there is no second.
    prefetcher: Prefetcher,
    bring: Vec<Key>,
}

impl Private {
    #[must_use]
    pub fn new(
        instructions: Cache,
        data: Cache,
        second: Option<Cache>,
        prefetch: Prefetch,
    ) -> Self {
        Self {
            instructions,
            data,
            second,
            prefetcher: Prefetcher::new(prefetch),
            bring: Vec::new(),
        }
    }

    /// Makes an access; requests that it leads to are appended.
    #[inline]
    pub fn access(&mut self, access: Access, key: Key, requests: &mut Vec<Request>) -> Served {
        let write = access == Access::Store;
        let first = match access {
            Access::Fetch => &mut self.instructions,
            Access::Load | Access::Store => &mut self.data,
        };
        match first.touch(key, write) {
            Found::Hit => Served::First,
            Found::Upgrade => {
                requests.push(Request::Upgrade(key));
                Served::First
            }
            Found::Miss => self.miss(access, key, requests),
        }
    }

    #[inline(never)]
    fn miss(&mut self, access: Access, key: Key, requests: &mut Vec<Request>) -> Served {
        let write = access == Access::Store;
        // The copy in the first level is the one that gets dirty.
        let in_second = self
            .second
            .as_mut()
            .is_some_and(|second| second.touch(key, false) != Found::Miss);
        if in_second && write {
            requests.push(Request::Upgrade(key));
        } else if !in_second {
            requests.push(Request::Demand { key, write });
            self.fill_last(key, false, requests);
        }
        self.fill_first(access, key, write, requests);
        if access != Access::Fetch {
            self.prefetch(key, requests);
        }
        if in_second {
            Served::Second
        } else {
            Served::Beyond
        }
    }

    /// Fills the second level, where there is one.
    fn fill_last(&mut self, key: Key, prefetched: bool, requests: &mut Vec<Request>) {
        let victim = self
            .second
            .as_mut()
            .and_then(|second| second.fill(key, false, prefetched));
        if let Some(victim) = victim {
            let (key, dirty) = (victim.key, victim.dirty);
            requests.push(Request::Victim { key, dirty });
        }
    }

    fn fill_first(&mut self, access: Access, key: Key, write: bool, requests: &mut Vec<Request>) {
        let first = match access {
            Access::Fetch => &mut self.instructions,
            Access::Load | Access::Store => &mut self.data,
        };
        let Some(victim) = first.fill(key, write, false) else {
            return;
        };
        let (key, dirty) = (victim.key, victim.dirty);
        let kept = self
            .second
            .as_mut()
            .is_some_and(|second| !dirty || second.mark_dirty(key));
        if !kept {
            requests.push(Request::Victim { key, dirty });
        }
    }

    fn prefetch(&mut self, key: Key, requests: &mut Vec<Request>) {
        let mut bring = std::mem::take(&mut self.bring);
        self.prefetcher.on_miss(key, &mut bring);
        for key in bring.drain(..) {
            if self.holds(key) {
                continue;
            }
            requests.push(Request::Prefetch(key));
            match self.second {
                Some(_) => self.fill_last(key, true, requests),
                None => {
                    if let Some(victim) = self.data.fill(key, false, true) {
                        let (key, dirty) = (victim.key, victim.dirty);
                        requests.push(Request::Victim { key, dirty });
                    }
                }
            }
        }
        self.bring = bring;
    }

    /// Whether a line is in any of the caches.
    #[must_use]
    pub fn holds(&self, key: Key) -> bool {
        self.data.contains(key)
            || self
                .second
                .as_ref()
                .is_some_and(|second| second.contains(key))
            || self.instructions.contains(key)
    }

    /// Makes a line clean in all of them; whether it was dirty.
    pub fn clean(&mut self, key: Key) -> bool {
        let second = self.second.as_mut().is_some_and(|second| second.clean(key));
        self.data.clean(key) || second
    }

    /// Takes a line out of all of them; whether it was dirty, if it was there.
    pub fn invalidate(&mut self, key: Key) -> Option<bool> {
        let first = [self.data.remove(key), self.instructions.remove(key)];
        let second = self.second.as_mut().and_then(|second| second.remove(key));
        let found = first.into_iter().chain([second]).flatten();
        found.map(|victim| victim.dirty).reduce(|a, b| a || b)
    }
}
