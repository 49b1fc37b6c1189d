//! Shared caches behind the cores, up to memory.
//!
//! Input: requests of cores, in the order in which they reach the caches. Output: the level that served each request, and the
//! lines that must be removed from the cores' caches. The caches form a tree: each has at most one parent behind it, and
//! children in front of it.

use crate::cache::{Cache, LineKey, Lookup};
use crate::private::CoreRequest;

/// Inclusion policy: the relation of a cache's lines to those of the caches in front of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inclusion {
    /// Lines are filled on their way to the core, and are evicted independently.
    #[default]
    NonInclusive,
    /// The cache holds every line of the caches in front of it. If it evicts a line, the line is removed from them, too.
    Inclusive,
    /// The cache holds no line of the caches in front of it. It is filled only by their victims, and a hit moves the line to
    /// them.
    Exclusive,
}

impl Inclusion {
    pub const ALL: [(&'static str, Self); 3] = [
        ("non-inclusive", Self::NonInclusive),
        ("inclusive", Self::Inclusive),
        ("exclusive", Self::Exclusive),
    ];
}

/// Numbers of lines moved between the last caches and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub read: u64,
    pub written: u64,
}

#[derive(Clone, Debug)]
struct CacheNode {
    cache: Cache,
    inclusion: Inclusion,
    parent: Option<usize>,
}

/// Line that must be removed from the private caches of the cores in front of `cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recall {
    pub cache: usize,
    pub key: LineKey,
    /// True if a copy in the shared caches was dirty; it has been written back.
    pub dirty: bool,
}

/// Component that served a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Cache with this index.
    Cache(usize),
    /// Memory.
    Memory,
}

/// Tree of the caches behind the cores.
#[derive(Clone, Debug, Default)]
pub struct SharedTree {
    nodes: Vec<CacheNode>,
    /// Traffic of each owner.
    traffic: Vec<Traffic>,
    /// Number of lines of all owners written to memory.
    written: u64,
    /// Lines evicted from inclusive caches. The caller takes them from this list.
    pub recalls: Vec<Recall>,
}

impl SharedTree {
    /// Adds a cache in front of the cache `parent`, or in front of memory. Returns its index.
    pub fn add(&mut self, cache: Cache, inclusion: Inclusion, parent: Option<usize>) -> usize {
        let parent = parent.filter(|p| *p < self.nodes.len());
        self.nodes.push(CacheNode {
            cache,
            inclusion,
            parent,
        });
        self.nodes.len() - 1
    }

    /// Returns the number of caches.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if there are no caches.
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

    /// Returns the index of the cache behind the cache `at`; `None` if memory is behind it.
    #[must_use]
    pub fn parent(&self, at: usize) -> Option<usize> {
        self.nodes[at].parent
    }

    /// Returns the numbers of lines that an owner's accesses moved from and to memory.
    #[must_use]
    pub fn traffic(&self, owner: usize) -> Traffic {
        self.traffic.get(owner).copied().unwrap_or_default()
    }

    /// Returns the number of lines of all owners that were written to memory.
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

    /// Serves a request that arrives at the cache `first`, or at memory if it is `None`. Returns the component that served it.
    pub fn serve(&mut self, first: Option<usize>, request: CoreRequest) -> Depth {
        match request {
            CoreRequest::Demand { key, .. } => self.demand(first, key, true),
            CoreRequest::Prefetch(key) => self.demand(first, key, false),
            CoreRequest::Victim { key, dirty } => {
                self.take_victim(first, key, dirty);
                Depth::Memory
            }
            CoreRequest::Upgrade(_) => Depth::Memory,
        }
    }

    fn demand(&mut self, at: Option<usize>, key: LineKey, counts: bool) -> Depth {
        let Some(at) = at else {
            self.traffic_mut(key.owner()).read += 1;
            return Depth::Memory;
        };
        let node = &mut self.nodes[at];
        let hit = if counts {
            node.cache.touch(key, false) != Lookup::Miss
        } else {
            node.cache.contains(key)
        };
        if hit {
            if node.inclusion == Inclusion::Exclusive {
                let moved = node.cache.remove(key);
                if moved.is_some_and(|v| v.dirty) {
                    // The cache that gets the line does not store that memory's copy is outdated, so memory is updated at once.
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

    fn fill(&mut self, at: usize, key: LineKey, dirty: bool, prefetched: bool) {
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

    /// Removes a line from the caches in front of an inclusive cache. Returns true if one of the copies was dirty.
    fn recall_below(&mut self, at: usize, key: LineKey) -> bool {
        let mut dirty = false;
        for below in 0..self.nodes.len() {
            if below != at && self.leads_to(below, at) {
                let removed = self.nodes[below].cache.remove(key);
                dirty |= removed.is_some_and(|v| v.dirty);
            }
        }
        dirty
    }

    /// True if requests that arrive at the cache `from` may continue to the cache `to`.
    #[must_use]
    pub fn leads_to(&self, from: usize, to: usize) -> bool {
        from == to
            || self.nodes[from]
                .parent
                .is_some_and(|parent| self.leads_to(parent, to))
    }

    /// Handles a line that was evicted from a cache in front of the cache `at`, or of memory.
    pub fn take_victim(&mut self, at: Option<usize>, key: LineKey, dirty: bool) {
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

    /// Marks the copy in the nearest cache that has one as dirty. If no cache has a copy, the line is written to memory.
    fn write_back(&mut self, mut at: Option<usize>, key: LineKey) {
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
