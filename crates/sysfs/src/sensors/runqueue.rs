//! Run-queue latency: time that threads were runnable without a CPU.
//!
//! Input: `/proc/TID/schedstat`, which needs no privilege. Output: for each thread, milliseconds waited since the last sample,
//! and the mean per wait. The kernel keeps only sums, so no percentiles follow (`steer stat --latency` measures each wait, as
//! root).

use std::path::Path;

use super::{Provider, ProviderDef, SensorColumn, SensorPlace, SensorValue, ValueKind};
use crate::procfs::{ProcError, Procfs};
use crate::unavailable::Unavailable;
use crate::waits::ThreadSums;

pub(super) const DEF: ProviderDef = ProviderDef {
    name: "runqueue",
    by_thread: true,
    prose: "time that threads could have run and waited for a CPU (schedstat)",
    columns: &[WAIT, MEAN],
    open: |root| Runqueue::open(root).map(|p| Box::new(p) as Box<dyn Provider>),
};

const WAIT: SensorColumn = SensorColumn {
    name: "runqueue_wait_ms",
    unit: "ms",
    kind: ValueKind::Since,
    prose: "time that a thread could have run and waited for a CPU",
};

const MEAN: SensorColumn = SensorColumn {
    name: "runqueue_wait_mean_us",
    unit: "us",
    kind: ValueKind::Level,
    prose: "such a wait, on average over the interval",
};

struct Runqueue(ThreadSums);

impl Runqueue {
    fn open(root: &Path) -> Result<Self, Unavailable> {
        let proc = Procfs::below(root);
        let missing = |error: ProcError| {
            let remedy = "a kernel with CONFIG_SCHED_INFO has it, as those of distributions are";
            Unavailable::new(error.why, remedy)
        };
        proc.own_sums().map_err(missing)?;
        Ok(Self(ThreadSums::new(proc)))
    }
}

impl Provider for Runqueue {
    fn read(&mut self, into: &mut Vec<SensorValue>) {
        self.0.read(|tid, waits| {
            let value = |column, value| SensorValue {
                column,
                place: SensorPlace::Thread(tid),
                value,
            };
            into.push(value(WAIT, waits.total_ns as f64 * 1e-6));
            into.extend(waits.mean_ns().map(|ns| value(MEAN, ns * 1e-3)));
        });
    }

    fn follow(&mut self, tid: u32) {
        self.0.follow(tid, false);
    }

    fn leave(&mut self, tid: u32) {
        self.0.leave(tid);
    }
}

#[cfg(test)]
mod tests {
    use countersteer_fuzz::fake_root::write;

    use super::*;

    #[test]
    fn a_thread_has_what_it_waited_since_the_last_reading() {
        let root = tempfile::tempdir().unwrap();
        let now = |text| write(root.path(), &[("proc/7/schedstat", text)]);
        write(root.path(), &[("proc/self/schedstat", "1 1 1")]);
        now("0 1000000 10");
        let mut runqueue = Runqueue::open(root.path()).unwrap();
        runqueue.follow(7);
        now("0 5000000 14");
        let mut values = Vec::new();
        runqueue.read(&mut values);
        let seen: Vec<_> = values.iter().map(|v| (v.column.name, v.value)).collect();
        assert_eq!(
            seen,
            [("runqueue_wait_ms", 4.0), ("runqueue_wait_mean_us", 1000.0)]
        );
        values.clear();
        runqueue.read(&mut values);
        assert_eq!(values.len(), 1, "no mean of no waits");
        runqueue.leave(7);
        values.clear();
        runqueue.read(&mut values);
        assert!(values.is_empty());
    }
}
