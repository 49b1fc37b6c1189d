//! Private caches of a core: first-level instruction and data caches, and a second level if the core has one.
//!
//! Input: accesses of the thread that runs on the core. Output: the level that served each access, and [`Request`]s to the
//! caches behind. The caches belong to the core, not to a program: a program that returns finds its remaining lines.
//!
//! The second level is not inclusive of the first. A dirty victim marks the copy in the next level that has one, without
//! allocating. Only a victim without a copy in any level goes to memory. Demand misses therefore do not depend on write-backs.

use crate::cache::{Cache, Found, Key};
use crate::prefetch::{Prefetch, Prefetcher};

/// Kind of access.
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
    /// No cache of the core; a [`Request::Demand`] goes to the caches behind.
    Beyond,
}

/// Request of a core to the caches behind it, in program order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A demand access needs the line.
    Demand { key: Key, write: bool },
    /// A prefetcher predicts a use of the line.
    Prefetch(Key),
    /// The core's last private level evicted the line.
    Victim { key: Key, dirty: bool },
    /// A store hit a clean line: copies in other cores become invalid.
    Upgrade(Key),
}

/// The private caches of a core.
#[derive(Clone, Debug)]
pub struct Private {
    pub instructions: Cache,
    pub data: Cache,
    pub second: Option<Cache>,
    /// At the second level, or at the first-level data cache if there is no second level.
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

    /// Makes an access and appends the requests that follow from it.
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
        // The copy in the first level becomes the dirty one.
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

    /// Fills the second level, if there is one.
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

    /// True if any of the caches holds the line.
    #[must_use]
    pub fn holds(&self, key: Key) -> bool {
        self.data.contains(key)
            || self
                .second
                .as_ref()
                .is_some_and(|second| second.contains(key))
            || self.instructions.contains(key)
    }

    /// Makes a line clean in all of the caches. Returns true if it was dirty.
    pub fn clean(&mut self, key: Key) -> bool {
        let second = self.second.as_mut().is_some_and(|second| second.clean(key));
        self.data.clean(key) || second
    }

    /// Removes a line from all of the caches. Returns true if it was dirty; `None` if it was absent.
    pub fn invalidate(&mut self, key: Key) -> Option<bool> {
        let first = [self.data.remove(key), self.instructions.remove(key)];
        let second = self.second.as_mut().and_then(|second| second.remove(key));
        let found = first.into_iter().chain([second]).flatten();
        found.map(|victim| victim.dirty).reduce(|a, b| a || b)
    }
}
