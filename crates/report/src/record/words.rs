//! Interned texts and CPU sets: rows of a record share one copy of each.
//!
//! Input: texts, CPU lists. Output: shared copies of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;

/// Limit on the number of interned texts; at this limit, all are dropped, so that runs without an
/// end need limited memory.
pub(super) const MOST_WORDS: usize = 1 << 14;

/// Interned texts and CPU sets. A few of them recur at every decision.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    texts: BTreeSet<Arc<str>>,
    sets: BTreeMap<String, Arc<CpuSet>>,
    /// True while frequencies have limits.
    pub(super) limited: bool,
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

    /// Returns the number of interned texts.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Returns the set for a CPU list such as `0-3,8`; `None` if the text is no CPU list.
    pub(super) fn set(&mut self, list: &str) -> Option<Arc<CpuSet>> {
        if let Some(known) = self.sets.get(list) {
            return Some(Arc::clone(known));
        }
        let new = Arc::new(list.parse::<CpuSet>().ok()?);
        self.sets.insert(list.to_owned(), Arc::clone(&new));
        Some(new)
    }
}
