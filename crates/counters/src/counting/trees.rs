//! Which tree each living thread belongs to, and which trees are over.
//!
//! Input: roots, forks, exits in the order of time. Output: trees without a living thread. Counters are inherited from thread to
//! thread and hang together, so those of a tree can be closed when its last thread has ended, and not before. Where forks may have
//! been missed nobody knows when that is; of trees that come later it is known again.

use rustc_hash::{FxHashMap, FxHashSet};

#[derive(Debug, Default)]
pub(super) struct Trees {
    of: FxHashMap<u32, u32>,
    living: FxHashMap<u32, u32>,
    over: Vec<u32>,
    /// Trees that may have threads that nobody knows.
    doubtful: FxHashSet<u32>,
}

impl Trees {
    /// A thread that was there first.
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

    /// Trees that are over since the last call.
    pub(super) fn take_over(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.over)
    }

    /// Forks may have been missed: of the trees that there are, nobody knows any more when they are over.
    pub(super) fn doubt(&mut self) {
        self.over.clear();
        self.doubtful.extend(self.living.keys());
    }

    /// The end of whoever had the number before was not told.
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
        let mut trees = Trees::default();
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
        // A number that comes back without its end having been told, and one that becomes a root of its own.
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
        let mut trees = Trees::default();
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
