//! Data that the threads of a program share.
//!
//! Input: the recorded [`Sharing`](countersteer_model::profile::Sharing) of a behaviour, and the other threads of the program.
//! Output: a thread's additional misses, those that it is spared, and the part of its lines that count for it in a shared cache.
//!
//! - A store of another thread invalidates a copy in a private cache. The next access misses there, and hits in the shared cache if the
//!   writer is behind the same one.
//! - A first access hits in the shared cache if another thread touched the line before.
//! - In a shared cache, the shared lines are those that all threads together touched within the eviction age. Each of them counts once,
//!   divided among the threads by their speeds.

use super::Analytic;
use super::class::NONE;
use super::shared::Resident;
use super::table::{OccupancyRate, RateTable};

/// Smallest part of a thread's lines that counts for it.
const CHARGE_LEAST: f64 = 1e-3;

/// Other threads of a thread's program, relative to their number in the recording.
#[derive(Clone, Copy, Debug, Default)]
struct ProgramPeers {
    /// Threads on other cores behind the same last-level cache, and on other cores behind another one.
    near: f64,
    far: f64,
    /// Threads behind the same last-level cache, those on the same core included.
    pool: f64,
}

impl ProgramPeers {
    /// Adds the misses of shared data to the rate of a thread.
    fn add_to(&self, rate: &mut OccupancyRate, table: &RateTable) {
        let sharing = &table.sharing;
        let near = sharing.invalidated * self.near;
        let far = sharing.invalidated_outside * self.far;
        // Of these, the others hit the last-level cache.
        let private = sharing.invalidated * self.far;
        rate.invalidated = near + private;
        rate.modified = near + far;
        let spared = sharing.touched_before * self.pool;
        if let Some(last) = table.depth.checked_sub(1) {
            let spared = spared.min(rate.miss[last]);
            if spared > 0.0 {
                rate.b *= 1.0 - spared / rate.miss[last];
                rate.a += spared * table.near_cycles;
            }
            for miss in &mut rate.miss[..=last] {
                *miss = (*miss - spared).max(0.0) + far;
            }
        }
        rate.a += (near + private - far) * table.near_cycles;
        rate.b += far * table.far_cycles;
    }
}

impl Analytic {
    /// Adds to a thread's rate the effects of data that it shares with other threads of its program.
    pub(super) fn share(&self, thread: u32, table: &RateTable, rate: &mut OccupancyRate) {
        if !table.sharing.is_none() && self.config.contention {
            self.company(thread).add_to(rate, table);
        }
    }

    /// Recomputes the rates of the other running threads of a thread's program, if they share data: the thread has come to another CPU,
    /// or its work has begun or ended.
    pub(super) fn update_companions(&mut self, thread: u32) {
        let copy = self.threads[thread as usize].copy as usize;
        let members = self.copies.get(copy).map_or(0, Vec::len);
        for row in 0..members {
            let other = self.copies[copy][row];
            let t = &self.threads[other as usize];
            let shares = t.cpu != NONE && !self.tables[t.table as usize].sharing.is_none();
            if other != thread && shares && self.config.contention {
                self.rerate(other);
            }
        }
    }

    fn company(&self, thread: u32) -> ProgramPeers {
        let own = &self.threads[thread as usize];
        let Some(members) = self.copies.get(own.copy as usize) else {
            return ProgramPeers::default();
        };
        let here = &self.cpus[own.cpu as usize];
        let mut company = ProgramPeers::default();
        for other in members.iter().filter(|other| **other != thread) {
            let other = &self.threads[*other as usize];
            if !other.has_work() {
                continue;
            }
            let row = if other.cpu == NONE {
                other.last_cpu
            } else {
                other.cpu
            };
            let Some(cpu) = self.cpus.get(row as usize) else {
                continue;
            };
            let same_pool = cpu.pool == here.pool;
            company.pool += f64::from(u8::from(same_pool));
            if cpu.core != here.core && same_pool {
                company.near += 1.0;
            } else if cpu.core != here.core {
                company.far += 1.0;
            }
        }
        // More threads than recorded are as likely to invalidate a line as those recorded.
        let recorded = self.models[own.model as usize].companions();
        let scale = 1.0 / (company.near + company.far).max(recorded);
        company.near *= scale;
        company.far *= scale;
        company.pool = (company.pool / recorded).min(1.0);
        company
    }
}

/// Footprint of a thread, and its derivative with respect to the eviction age.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatedFootprint {
    pub lines: f64,
    pub slope: f64,
}

impl Resident {
    /// Returns the thread's lines after `instructions` instructions, at `pace` instructions per nanosecond of age. `together` has both
    /// figures for all threads of its copy in this cache. Sets the part of the lines that count for the thread.
    #[inline]
    pub fn footprint(
        &mut self,
        tables: &[RateTable],
        instructions: f64,
        pace: f64,
        together: Option<(f64, f64)>,
    ) -> DatedFootprint {
        let table = &tables[self.table as usize];
        let level = &table.levels[self.level as usize];
        let (own, each) = level.filled(instructions, &mut self.hint);
        self.charge = 1.0;
        let mut footprint = DatedFootprint {
            lines: own,
            slope: each * pace,
        };
        if let Some((all, all_pace)) = together.filter(|(all, _)| *all > instructions) {
            let shared = table.sharing.shared;
            let (common, common_each) = level.filled(all, &mut self.common_hint);
            let counted = (1.0 - shared) * own + shared * common * instructions / all;
            footprint.lines = (1.0 - shared) * own + shared * common;
            footprint.slope = (1.0 - shared) * each * pace + shared * common_each * all_pace;
            self.charge = (counted / footprint.lines.max(1e-9)).clamp(CHARGE_LEAST, 1.0);
        }
        footprint
    }
}
