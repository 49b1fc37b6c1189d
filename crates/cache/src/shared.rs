//! Shared caches behind the cores, up to memory.
//!
//! Input: requests of cores, in the order in which they reach the caches. Output: the level that served each request, and the
//! lines that cores must give up. The caches form a tree: each has at most one parent behind it, and children in front of it.

use crate::cache::{Cache, Found, Key};
use crate::private::Request;

/// Inclusion policy: relation of a cache's lines to those of the caches in front of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inclusion {
    /// Lines are filled on their way to the core and are evicted independently.
    #[default]
    NonInclusive,
    /// Holds every line of the caches in front of it: an evicted line is removed from them too.
    Inclusive,
    /// Holds none of their lines: only their victims are filled, and a hit moves the line to them.
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

/// Line that the cores in front of `cache` must give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recall {
    pub cache: usize,
    pub key: Key,
    /// True if the copy behind the cores was dirty; it has been written back.
    pub dirty: bool,
}

/// Component that served a request.
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
    /// Traffic by owner.
    traffic: Vec<Traffic>,
    written: u64,
    /// Lines evicted from inclusive caches since the caller last took the list.
    pub recalls: Vec<Recall>,
}

impl Shared {
    /// Adds a cache behind which `parent` lies. Returns its number.
    pub fn add(&mut self, cache: Cache, inclusion: Inclusion, parent: Option<usize>) -> usize {
        let parent = parent.filter(|p| *p < self.nodes.len());
        self.nodes.push(Node {
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

    /// Returns the number of the cache behind `at`; `None` if memory is behind it.
    #[must_use]
    pub fn parent(&self, at: usize) -> Option<usize> {
        self.nodes[at].parent
    }

    /// Returns the lines that an owner's accesses moved to and from memory.
    #[must_use]
    pub fn traffic(&self, owner: usize) -> Traffic {
        self.traffic.get(owner).copied().unwrap_or_default()
    }

    /// Returns the lines of all owners that were written to memory.
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

    /// Serves a request from a cache in front of `first`, or from a core with only memory behind it.
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
                    // The cache that receives the line does not know that memory's copy is old. The write-back updates memory on
                    // the way.
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

    /// Removes a line from the caches in front of an inclusive one. Returns true if one of them was dirty.
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

    /// True if requests of `from` pass through `to`.
    #[must_use]
    pub fn leads_to(&self, from: usize, to: usize) -> bool {
        from == to
            || self.nodes[from]
                .parent
                .is_some_and(|parent| self.leads_to(parent, to))
    }

    /// Handles a victim of the caches in front of `at`.
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

    /// Marks the copy in the nearest cache that has one as dirty. Without a copy, the line goes to memory.
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
