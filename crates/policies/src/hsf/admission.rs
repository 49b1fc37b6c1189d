//! Admission table: thresholds by which threads that start or wake between decisions get a core type.

use countersteer_model::placement::AdmissionTable;
use countersteer_model::policy::HintClass;
use countersteer_model::units::GroupId;

use super::Hsf;
use super::candidate::HsfCandidate;

impl Hsf {
    /// Returns the admission table of a decision, without rows if there are sleepers. `None` if it did not change.
    pub(super) fn admission(
        &mut self,
        all: &[HsfCandidate<'_>],
        ranks: &[usize],
        sleepers: bool,
    ) -> Option<AdmissionTable> {
        if all.iter().any(|c| c.sent.is_some()) {
            return None;
        }
        let rows = if sleepers {
            Vec::new()
        } else {
            self.rows(all, ranks)
        };
        let table = AdmissionTable {
            metric: self.source.metric.into(),
            rows,
        };
        let close = |a: &(f64, GroupId), b: &(f64, GroupId)| {
            a.1 == b.1 && (a.0 - b.0).abs() <= self.margin.max(0.01) * b.0
        };
        let same = self.table.as_ref().is_some_and(|old| {
            old.rows.len() == table.rows.len()
                && old.rows.iter().zip(&table.rows).all(|(a, b)| close(a, b))
        });
        if same {
            return None;
        }
        self.table = Some(table.clone());
        Some(table)
    }

    fn rows(&self, all: &[HsfCandidate<'_>], ranks: &[usize]) -> Vec<(f64, GroupId)> {
        let types = self.slots.ranks();
        // While a core is free, new threads go to the core type of the fastest free core.
        let free = types
            .iter()
            .enumerate()
            .position(|(rank, r)| ranks.iter().filter(|own| **own == rank).count() < r.cores.len());
        let last = free.unwrap_or(types.len() - 1);
        let mut rows: Vec<(f64, GroupId)> = Vec::with_capacity(last + 1);
        for (rank, core_type) in types.iter().enumerate().take(last) {
            let (mut inside, mut outside) = (f64::INFINITY, 0.0f64);
            // The table is compared with factors of single threads, so only threads ranked by their own factor determine it.
            let counts = |c: &HsfCandidate<'_>| {
                c.sf.is_some() && !c.young && c.class == HintClass::Full && c.alone
            };
            for (c, own) in all.iter().zip(ranks).filter(|(c, _)| counts(c)) {
                if *own == rank {
                    inside = inside.min(c.key);
                } else if *own > rank {
                    outside = outside.max(c.key);
                }
            }
            if inside.is_finite() {
                // The threshold is halfway between the lowest factor inside and the highest outside, so that noise in either
                // has no effect.
                let least = if inside > outside {
                    (inside + outside) / 2.0
                } else {
                    inside * (1.0 - self.margin)
                };
                let least = rows.last().map_or(least, |above| least.min(above.0));
                rows.push((least.max(0.0), core_type.group));
            }
        }
        rows.push((0.0, types[last].group));
        if !self.lives.is_off() {
            // A thread without a factor counts as young, and the kernel places it.
            rows.push((0.0, self.everywhere));
        }
        rows
    }
}
