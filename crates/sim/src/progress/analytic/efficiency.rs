//! Efficiency factors of programs alone: energy-delay product on the slowest core type divided by that on the fastest.
//!
//! Input: the rate tables of a program's behaviour. Output: EF = SF * e_slow / e_fast (PMCTrack, section 4.2.2). The energy is
//! the part attributed to a thread: its core while it runs, and its cache and memory accesses. Idle cores and the rest of the
//! package are excluded, as the paper excludes the idle power of the board.

use super::class::ClassCpu;
use super::siblings::Beside;
use super::{Analytic, ModelId};

impl Analytic {
    /// Returns the efficiency factor of a behaviour; [`super::model::ProgramModel::average`] is the index of the whole run.
    pub(in crate::progress) fn efficiency_factor(&self, model: ModelId, behaviour: u32) -> f64 {
        let (fast, slow) = self.topology.extremes();
        let model_of = &self.models[model.0 as usize];
        let edp = |core_type: usize| {
            let ips = model_of.alone_ips(behaviour, core_type);
            self.alone_nj(model, behaviour, core_type, ips * 1e-9) / ips
        };
        edp(slow.index()) / edp(fast.index())
    }

    /// Returns the energy of an instruction alone on a core type, in nanojoules; `speed` is in instructions per nanosecond.
    fn alone_nj(&self, model: ModelId, behaviour: u32, core_type: usize, speed: f64) -> f64 {
        let class = self.best[core_type];
        let row = self.models[model.0 as usize].table(behaviour, class);
        let table = &self.tables[row as usize];
        let lines = |class: u32, k: usize| {
            let levels = &self.classes[class as usize].levels;
            levels.get(k).map_or(0.0, |l| l.lines)
        };
        let whole = std::array::from_fn(|k| lines(class, k));
        let rate = table.rate(&whole, &Beside::default());
        let mut nj = table.active_w / speed + table.instruction_nj;
        // The present frequency of the CPU does not matter for this comparison.
        let same = |c: &&ClassCpu| {
            c.core_type as usize == core_type
                && (0..whole.len()).all(|k| lines(c.class, k) == whole[k])
        };
        let Some(cpu) = self.cpus.iter().find(same) else {
            return nj;
        };
        let mut misses = table.private_misses;
        for k in 0..cpu.levels {
            nj += cpu.access_nj[k] * misses;
            misses = rate.miss[k];
        }
        nj + misses * table.lines_per_miss * cpu.memory_nj
    }
}
