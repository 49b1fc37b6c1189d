//! Interned words: one copy of each text and CPU set that rows of a record contain.
//!
//! Input: texts, CPU lists. Output: shared ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;

/// Number of distinct names after which all are forgotten, for runs without an end.
pub(super) const MOST_WORDS: usize = 1 << 14;

/// One copy of each word and CPU set, because a few of them recur at every decision.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    texts: BTreeSet<Arc<str>>,
    sets: BTreeMap<String, Arc<CpuSet>>,
}

impl Words {
    pub(super) fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&new));
        new
    }

    /// Returns the number of words.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Returns the set of a CPU list; `None` if it is no list.
    pub(super) fn set(&mut self, list: &str) -> Option<Arc<CpuSet>> {
        if let Some(known) = self.sets.get(list) {
            return Some(Arc::clone(known));
        }
        let new = Arc::new(list.parse::<CpuSet>().ok()?);
        self.sets.insert(list.to_owned(), Arc::clone(&new));
        Some(new)
    }
}
