//! Speed-up factors from Intel's Thread Director. The processor assigns a thread to one of four classes, and a table holds the
//! performance of each core type for each class.
//!
//! Source: PMCSched, section 4 (classes 0 to 3; none is valid on a small core). Registers, after Intel's manual: the class of
//! the thread on a CPU is MSR 17D2h (bits 7 to 0, valid with bit 63), and MSR 17D4h enables classification. The table of
//! performances (a byte for each CPU and class) is in memory that only the kernel can read.
//!
//! Simulated only. Linux reads the table for class 0 and sends its changes over the thermal netlink family, but gives no program
//! the class of a thread. Patches for it were posted in 2022 and 2023 and not merged. So [`Event::TdClass`] has no counter here,
//! and a live run with it is refused. The simulator draws a class for each phase of each program, independently of the phase's
//! behaviour.
//!
//! With the ratios below, the mean absolute error on the SPEC CPU2017 programs of a 12900KS is .38, without correlation. Both
//! are the published values of Thread Director on a 12900K (Saez and Prieto-Matias, APSys 2022). The ratios themselves are not
//! published; these are spread evenly around the median SF of those programs, and are used on every machine.
//!
//! A kernel would read the class at every tick and accept it after several equal readings. That is much faster than the sampling
//! interval, so the class of a sample is accepted as it is.

use super::{MetricDef, MetricSource, ReadBy, Round};
use crate::sample::Event;
use crate::topology::Topology;
use crate::units::CoreTypeId;

pub(super) const SF_TD: MetricDef = MetricDef {
    name: "sf_td",
    unit: "ratio",
    prose: "speed-up factor of the thread's Thread Director class, 2.5 where no class is valid; only in the simulator",
    needs: &[Event::TdClass],
    helps: &[],
    read_by: ReadBy::Source(|topology| Box::new(Literal(Director::new(topology)))),
};

/// Performance of each class on the big and the small core, in the unitless bytes of the table.
pub const TABLE: [(u8, u8); 4] = [(175, 100), (195, 100), (214, 100), (156, 100)];

/// Speed-up factor of a thread without a class (constant of PMCTrack's public code).
const NO_CLASS: f64 = 2.5;

/// Returns the speed-up factor of a class; 1 if the table has no value for small cores. `None` for an unknown class.
#[must_use]
pub fn factor_of_class(class: usize) -> Option<f64> {
    let (big, small) = *TABLE.get(class)?;
    Some(match small {
        0 => 1.0,
        small => f64::from(big) / f64::from(small),
    })
}

/// Reader of the classes of threads on the fastest core type.
pub(super) struct Director {
    fast: CoreTypeId,
}

impl Director {
    pub(super) fn new(topology: &Topology) -> Self {
        Self {
            fast: topology.extremes().0,
        }
    }

    /// Returns the speed-up factor of the thread's class. `None` if the thread has no class or runs on another core type.
    pub(super) fn factor(&self, round: &Round<'_>) -> Option<f64> {
        let sample = round.sample;
        let class = sample.counts.get(Event::TdClass)?;
        (sample.core_type == self.fast).then(|| factor_of_class(class as usize))?
    }
}

/// Metric source whose only input is Thread Director's class.
struct Literal(Director);

impl MetricSource for Literal {
    fn read(&mut self, round: &Round<'_>) -> Option<f64> {
        Some(self.0.factor(round).unwrap_or(NO_CLASS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, Samples};
    use crate::testing;
    use crate::units::{CpuId, Nanos, ThreadId};

    fn sample(core_type: u32, class: Option<f64>) -> Samples {
        let counts = class.map(|class| (Event::TdClass, class));
        let ran = Nanos::from_millis(100);
        Samples::of(
            Sample::of_thread(ThreadId(3), CpuId(0), CoreTypeId(core_type), ran, ran),
            1,
            counts.as_slice(),
        )
    }

    #[test]
    fn a_class_is_valid_on_a_big_core_only() {
        let mut source = Literal(Director::new(&testing::topology(testing::SMT)));
        let mut read =
            |core_type, class| source.read(&Round::of(&sample(core_type, class)).unwrap());
        assert_eq!(read(0, Some(1.0)), Some(1.95));
        assert_eq!(read(0, Some(3.0)), Some(1.56));
        assert_eq!(read(0, Some(4.0)), Some(2.5), "there is no such class");
        assert_eq!(read(0, None), Some(2.5));
        assert_eq!(read(1, Some(1.0)), Some(2.5));
    }

    #[test]
    fn the_table_errs_by_what_was_published() {
        // SF of the SPEC CPU2017 programs on a 12900KS.
        let measured = [
            1.36, 1.40, 1.41, 1.47, 1.48, 1.54, 1.71, 1.71, 1.79, 1.80, 1.84, 1.85, 1.86, 1.88,
            1.88, 1.89, 1.89, 1.94, 1.98, 1.99, 2.24, 2.81, 4.03,
        ];
        let errors = measured.iter().flat_map(|sf: &f64| {
            (0..TABLE.len()).filter_map(move |class| Some((factor_of_class(class)? - sf).abs()))
        });
        let errors: Vec<f64> = errors.collect();
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        assert!((mean - 0.38).abs() < 0.01, "{mean}");
    }
}
