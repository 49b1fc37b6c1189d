//! Trees of threads: an initial thread (the root), and its descendants. Counters are inherited along a tree, so they can be
//! closed only after the last thread of the tree has exited.
//!
//! Input: roots, forks and exits in the order of time. Output: trees whose threads have all exited. If fork reports were lost,
//! a tree may have unknown threads, and its counters stay open. Trees that are added later are not affected.

use rustc_hash::{FxHashMap, FxHashSet};

#[derive(Debug, Default)]
pub(super) struct CounterTrees {
    of: FxHashMap<u32, u32>,
    living: FxHashMap<u32, u32>,
    over: Vec<u32>,
    /// Trees that may have unknown threads, because fork reports were lost.
    doubtful: FxHashSet<u32>,
}

impl CounterTrees {
    /// Adds an initial thread as the root of the tree `tree`.
    pub(super) fn root(&mut self, tid: u32, tree: u32) {
        self.enter(tid, tree);
    }

    pub(super) fn forked(&mut self, tid: u32, parent: u32) {
        if let Some(tree) = self.of.get(&parent).copied() {
            self.enter(tid, tree);
        }
    }

    pub(super) fn ended(&mut self, tid: u32) {
        let Some(tree) = self.of.remove(&tid) else {
            return;
        };
        let Some(living) = self.living.get_mut(&tree) else {
            return;
        };
        *living -= 1;
        if *living == 0 {
            self.living.remove(&tree);
            if !self.doubtful.remove(&tree) {
                self.over.push(tree);
            }
        }
    }

    /// Returns the trees whose last thread has exited since the last call.
    pub(super) fn take_over(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.over)
    }

    /// Stores that fork reports were lost: trees that exist now are never returned as ended.
    pub(super) fn doubt(&mut self) {
        self.over.clear();
        self.doubtful.extend(self.living.keys());
    }

    /// Adds a thread to a tree. If another thread had this TID, its exit was not reported, and it is removed.
    fn enter(&mut self, tid: u32, tree: u32) {
        *self.living.entry(tree).or_default() += 1;
        self.ended(tid);
        self.of.insert(tid, tree);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_over_with_its_last_thread() {
        let mut trees = CounterTrees::default();
        trees.root(1, 0);
        trees.root(10, 1);
        trees.forked(2, 1);
        trees.forked(3, 2);
        trees.ended(1);
        trees.ended(2);
        assert!(trees.take_over().is_empty());
        trees.ended(3);
        trees.ended(99);
        assert_eq!(trees.take_over(), [0]);
        assert!(trees.take_over().is_empty());
        // A TID that is used again without a reported exit, and a TID that becomes a root.
        trees.forked(11, 10);
        trees.forked(11, 10);
        trees.root(11, 2);
        trees.ended(10);
        trees.ended(11);
        assert_eq!(trees.take_over(), [1, 2]);
        assert!(trees.of.is_empty() && trees.living.is_empty());
    }

    #[test]
    fn where_forks_may_have_been_missed_only_trees_that_come_later_are_over() {
        let mut trees = CounterTrees::default();
        trees.root(1, 0);
        trees.root(2, 1);
        trees.ended(2);
        trees.doubt();
        trees.root(3, 2);
        trees.ended(1);
        trees.ended(3);
        assert_eq!(trees.take_over(), [2]);
        assert!(trees.doubtful.is_empty());
    }
}
