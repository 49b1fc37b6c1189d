//! The caches behind cores, up to memory.
//!
//! Input: requests of cores, in the order in which they reach the caches. Output: the level that served each, and lines that
//! cores must give up. Caches form a tree: each has at most one behind it, and cores before it.

use crate::cache::{Cache, Found, Key};
use crate::private::Request;

/// What a cache keeps of the lines that those before it hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inclusion {
    /// Lines are filled on their way and leave independently.
    #[default]
    NonInclusive,
    /// All of them: a line that leaves is taken from those before it too.
    Inclusive,
    /// None of them: only what they evict is filled, and a hit moves the line away.
    Exclusive,
}

impl Inclusion {
    pub const ALL: [(&'static str, Self); 3] = [
        ("non-inclusive", Self::NonInclusive),
        ("inclusive", Self::Inclusive),
        ("exclusive", Self::Exclusive),
    ];
}

/// Lines moved between the last caches and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub read: u64,
    pub written: u64,
}

#[derive(Clone, Debug)]
struct Node {
    cache: Cache,
    inclusion: Inclusion,
    parent: Option<usize>,
}

/// A line that cores before `cache` must give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recall {
    pub cache: usize,
    pub key: Key,
    /// Its copy behind the cores was dirty, and was written back.
    pub dirty: bool,
}

/// What served a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The cache with this number.
    Cache(usize),
    Memory,
}

/// Caches behind cores.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    nodes: Vec<Node>,
    /// By owner.
    traffic: Vec<Traffic>,
    written: u64,
    /// Lines that became too many for an inclusive cache since they were last taken.
    pub recalls: Vec<Recall>,
}

impl Shared {
    /// Adds a cache; `parent` is the number of the one behind it. Returns its number.
    pub fn add(&mut self, cache: Cache, inclusion: Inclusion, parent: Option<usize>) -> usize {
        let parent = parent.filter(|p| *p < self.nodes.len());
        self.nodes.push(Node {
            cache,
            inclusion,
            parent,
        });
        self.nodes.len() - 1
    }

    /// Caches that there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    #[must_use]
    pub fn cache(&self, at: usize) -> &Cache {
        &self.nodes[at].cache
    }

    pub fn cache_mut(&mut self, at: usize) -> &mut Cache {
        &mut self.nodes[at].cache
    }

    /// The cache behind a cache.
    #[must_use]
    pub fn parent(&self, at: usize) -> Option<usize> {
        self.nodes[at].parent
    }

    /// What an owner's accesses moved to and from memory.
    #[must_use]
    pub fn traffic(&self, owner: usize) -> Traffic {
        self.traffic.get(owner).copied().unwrap_or_default()
    }

    /// Lines of all owners that were written to memory.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    fn traffic_mut(&mut self, owner: usize) -> &mut Traffic {
        if self.traffic.len() <= owner {
            self.traffic.resize(owner + 1, Traffic::default());
        }
        &mut self.traffic[owner]
    }

    /// Handles a request that comes from before `first`, or from a core that has nothing behind it but memory.
    pub fn serve(&mut self, first: Option<usize>, request: Request) -> Depth {
        match request {
            Request::Demand { key, .. } => self.demand(first, key, true),
            Request::Prefetch(key) => self.demand(first, key, false),
            Request::Victim { key, dirty } => {
                self.take_victim(first, key, dirty);
                Depth::Memory
            }
            Request::Upgrade(_) => Depth::Memory,
        }
    }

    fn demand(&mut self, at: Option<usize>, key: Key, counts: bool) -> Depth {
        let Some(at) = at else {
            self.traffic_mut(key.owner()).read += 1;
            return Depth::Memory;
        };
        let node = &mut self.nodes[at];
        let hit = if counts {
            node.cache.touch(key, false) != Found::Miss
        } else {
            node.cache.contains(key)
        };
        if hit {
            if node.inclusion == Inclusion::Exclusive {
                let moved = node.cache.remove(key);
                if moved.is_some_and(|v| v.dirty) {
                    // The cache that has it now does not know that memory's copy is old; it is brought up to date on the way.
                    let parent = node.parent;
                    self.write_back(parent, key);
                }
            }
            return Depth::Cache(at);
        }
        let (inclusion, parent) = (node.inclusion, node.parent);
        let depth = self.demand(parent, key, counts);
        if inclusion != Inclusion::Exclusive {
            self.fill(at, key, false, !counts);
        }
        depth
    }

    fn fill(&mut self, at: usize, key: Key, dirty: bool, prefetched: bool) {
        let node = &mut self.nodes[at];
        let parent = node.parent;
        let inclusive = node.inclusion == Inclusion::Inclusive;
        let Some(victim) = node.cache.fill(key, dirty, prefetched) else {
            return;
        };
        let mut dirty = victim.dirty;
        if inclusive {
            dirty |= self.recall_below(at, victim.key);
            self.recalls.push(Recall {
                cache: at,
                key: victim.key,
                dirty,
            });
        }
        self.take_victim(parent, victim.key, dirty);
    }

    /// Takes a line out of the caches before an inclusive one; whether one of them was dirty.
    fn recall_below(&mut self, at: usize, key: Key) -> bool {
        let mut dirty = false;
        for below in 0..self.nodes.len() {
            if below != at && self.leads_to(below, at) {
                let removed = self.nodes[below].cache.remove(key);
                dirty |= removed.is_some_and(|v| v.dirty);
            }
        }
        dirty
    }

    /// Whether requests of `from` pass `to`.
    #[must_use]
    pub fn leads_to(&self, from: usize, to: usize) -> bool {
        from == to
            || self.nodes[from]
                .parent
                .is_some_and(|parent| self.leads_to(parent, to))
    }

    /// Takes what the caches before `at` gave up.
    pub fn take_victim(&mut self, at: Option<usize>, key: Key, dirty: bool) {
        match at {
            Some(at) if self.nodes[at].inclusion == Inclusion::Exclusive => {
                if self.nodes[at].cache.contains(key) {
                    if dirty {
                        self.nodes[at].cache.mark_dirty(key);
                    }
                } else {
                    self.fill(at, key, dirty, false);
                }
            }
            _ if dirty => self.write_back(at, key),
            _ => {}
        }
    }

    /// Marks the copy in the nearest cache that has one; otherwise the line goes to memory.
    fn write_back(&mut self, mut at: Option<usize>, key: Key) {
        while let Some(cache) = at {
            if self.nodes[cache].cache.mark_dirty(key) {
                return;
            }
            at = self.nodes[cache].parent;
        }
        self.traffic_mut(key.owner()).written += 1;
        self.written += 1;
    }
}
