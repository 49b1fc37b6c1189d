//! Private caches of a core: L1 instruction and data caches, and an L2 if the core has one.
//!
//! Input: accesses of the thread that runs on the core. Output: the level that served each access, and [`CoreRequest`]s to the
//! caches behind. The caches belong to the core, not to a program: a program that returns to the core finds its remaining
//! lines.
//!
//! The L2 is not inclusive of the L1. A dirty victim marks the copy in the next level that has one as dirty, without
//! allocating. Only a victim without a copy in any level goes to memory. Demand misses therefore do not depend on write-backs.

use crate::cache::{Cache, LineKey, Lookup};
use crate::prefetch::{Prefetch, Prefetcher};

/// Kind of memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    Fetch,
    Load,
    Store,
}

/// Level that served an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServingLevel {
    First,
    Second,
    /// No cache of the core served the access; a [`CoreRequest::Demand`] goes to the caches behind.
    Beyond,
}

/// Request of a core to the caches behind it. Requests are in program order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreRequest {
    /// A demand access needs the line.
    Demand { key: LineKey, write: bool },
    /// A prefetcher predicts a use of the line.
    Prefetch(LineKey),
    /// The core's last private level evicted the line.
    Victim { key: LineKey, dirty: bool },
    /// A store hit a clean line: copies in other cores become invalid.
    Upgrade(LineKey),
}

/// Private caches of a core.
#[derive(Clone, Debug)]
pub struct Private {
    pub instructions: Cache,
    pub data: Cache,
    pub second: Option<Cache>,
    /// Prefetcher of the L2, or of the L1 data cache if there is no L2.
    prefetcher: Prefetcher,
    /// Buffer for the lines to prefetch.
    bring: Vec<LineKey>,
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

    /// Makes an access to a line, and appends the resulting requests. Returns the level that served the access.
    #[inline]
    pub fn access(
        &mut self,
        access: AccessKind,
        key: LineKey,
        requests: &mut Vec<CoreRequest>,
    ) -> ServingLevel {
        let write = access == AccessKind::Store;
        let first = match access {
            AccessKind::Fetch => &mut self.instructions,
            AccessKind::Load | AccessKind::Store => &mut self.data,
        };
        match first.touch(key, write) {
            Lookup::Hit => ServingLevel::First,
            Lookup::Upgrade => {
                requests.push(CoreRequest::Upgrade(key));
                ServingLevel::First
            }
            Lookup::Miss => self.miss(access, key, requests),
        }
    }

    #[inline(never)]
    fn miss(
        &mut self,
        access: AccessKind,
        key: LineKey,
        requests: &mut Vec<CoreRequest>,
    ) -> ServingLevel {
        let write = access == AccessKind::Store;
        // The copy in the L1 becomes dirty, so the one in the L2 stays as it is.
        let in_second = self
            .second
            .as_mut()
            .is_some_and(|second| second.touch(key, false) != Lookup::Miss);
        if in_second && write {
            requests.push(CoreRequest::Upgrade(key));
        } else if !in_second {
            requests.push(CoreRequest::Demand { key, write });
            self.fill_last(key, false, requests);
        }
        self.fill_first(access, key, write, requests);
        if access != AccessKind::Fetch {
            self.prefetch(key, requests);
        }
        if in_second {
            ServingLevel::Second
        } else {
            ServingLevel::Beyond
        }
    }

    /// Fills the L2 with a line, if there is an L2. Its victim becomes a request.
    fn fill_last(&mut self, key: LineKey, prefetched: bool, requests: &mut Vec<CoreRequest>) {
        let victim = self
            .second
            .as_mut()
            .and_then(|second| second.fill(key, false, prefetched));
        if let Some(victim) = victim {
            let (key, dirty) = (victim.key, victim.dirty);
            requests.push(CoreRequest::Victim { key, dirty });
        }
    }

    fn fill_first(
        &mut self,
        access: AccessKind,
        key: LineKey,
        write: bool,
        requests: &mut Vec<CoreRequest>,
    ) {
        let first = match access {
            AccessKind::Fetch => &mut self.instructions,
            AccessKind::Load | AccessKind::Store => &mut self.data,
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
            requests.push(CoreRequest::Victim { key, dirty });
        }
    }

    fn prefetch(&mut self, key: LineKey, requests: &mut Vec<CoreRequest>) {
        let mut bring = std::mem::take(&mut self.bring);
        self.prefetcher.on_miss(key, &mut bring);
        for key in bring.drain(..) {
            if self.holds(key) {
                continue;
            }
            requests.push(CoreRequest::Prefetch(key));
            match self.second {
                Some(_) => self.fill_last(key, true, requests),
                None => {
                    if let Some(victim) = self.data.fill(key, false, true) {
                        let (key, dirty) = (victim.key, victim.dirty);
                        requests.push(CoreRequest::Victim { key, dirty });
                    }
                }
            }
        }
        self.bring = bring;
    }

    /// True if at least one of the caches has the line.
    #[must_use]
    pub fn holds(&self, key: LineKey) -> bool {
        self.data.contains(key)
            || self
                .second
                .as_ref()
                .is_some_and(|second| second.contains(key))
            || self.instructions.contains(key)
    }

    /// Makes a line clean in all of the caches. Returns true if it was dirty in one of them.
    pub fn clean(&mut self, key: LineKey) -> bool {
        let second = self.second.as_mut().is_some_and(|second| second.clean(key));
        self.data.clean(key) || second
    }

    /// Removes a line from all of the caches. Returns true if it was dirty in one of them; `None` if it was absent.
    pub fn invalidate(&mut self, key: LineKey) -> Option<bool> {
        let first = [self.data.remove(key), self.instructions.remove(key)];
        let second = self.second.as_mut().and_then(|second| second.remove(key));
        let found = first.into_iter().chain([second]).flatten();
        found.map(|victim| victim.dirty).reduce(|a, b| a || b)
    }
}
