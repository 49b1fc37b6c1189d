//! Allowed ranges of the numbers in input files, with units and reasons.
//!
//! A value outside its range is a wrong unit, an extra zero, or a machine that cannot exist. A simulation with such a value
//! would never end, or would divide by zero.

/// Allowed range of a number in an input file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Smallest allowed value.
    pub least: f64,
    /// Largest allowed value.
    pub most: f64,
    /// Unit of the value; empty for a plain number.
    pub unit: &'static str,
    /// Reason for the range, for the error message.
    pub reason: &'static str,
}

impl Bounds {
    /// Checks that `value`, the value of `key` in an input file, is in the range. NaN is outside of it.
    ///
    /// # Errors
    /// Returns a sentence with the value and the allowed range if the value is outside.
    pub fn check(&self, key: &str, value: f64) -> Result<(), String> {
        if (self.least..=self.most).contains(&value) {
            return Ok(());
        }
        let brief = |x: f64| format!("{x:?}").trim_end_matches(".0").to_owned();
        let unit = if self.unit.is_empty() { "" } else { " " };
        Err(format!(
            "`{key}` is {}; it must be {} to {}{unit}{} ({})",
            brief(value),
            brief(self.least),
            brief(self.most),
            self.unit,
            self.reason
        ))
    }
}

/// Checks the values of several keys, in order.
///
/// # Errors
/// Returns the key of the first value outside its range, and a sentence with the value and the range.
pub fn check_all<'a>(
    rows: impl IntoIterator<Item = (&'a str, Bounds, f64)>,
) -> Result<(), (&'a str, String)> {
    rows.into_iter()
        .try_for_each(|(key, bounds, value)| bounds.check(key, value).map_err(|why| (key, why)))
}

macro_rules! table {
    ($($name:ident: $least:expr, $most:expr, $unit:literal, $reason:literal;)*) => {
        $(
            #[doc = concat!("`", stringify!($least), "` to `", stringify!($most), "` ", $unit, ": ", $reason, ".")]
            pub const $name: Bounds =
                Bounds { least: $least, most: $most, unit: $unit, reason: $reason };
        )*
    };
}

table! {
    // Numbers of machine files.
    CPUS: 1.0, 8192.0, "CPUs", "the most that Linux is built for";
    HZ: 1.0, 10_000.0, "Hz", "Linux is built for 100 to 1,000";
    DISPATCH_WIDTH: 0.1, 64.0, "instructions per cycle", "the widest cores dispatch about 10";
    WINDOW: 1.0, 65_536.0, "instructions", "the largest reorder buffers hold fewer than 1,000";
    SMT: 1.0, 8.0, "threads", "the most of any processor";
    FREQUENCY: 0.001, 100.0, "GHz", "from microcontrollers to beyond any transistor";
    CAPACITY: 1.0, 1024.0, "", "the kernel's scale, on which the fastest type has 1024";
    CORE_LATENCY: 0.0, 10_000.0, "cycles", "even memory is nearer";
    COUNTERS: 0.0, 64.0, "", "the kernel numbers them so";
    FIXED_COUNTERS: 0.0, 2.0, "", "one of cycles, one of instructions";
    CACHE_SIZE: 1.0, 16_777_216.0, "KiB", "16 lines to 16 GiB";
    WAYS: 1.0, 65_536.0, "ways", "a cache has one at least";
    CACHE_LEVEL: 2.0, 4.0, "", "level 1 is private to a core, 4 is the system's";
    CACHE_LATENCY: 0.0, 10_000.0, "ns", "memory is nearer";
    MEMORY_LATENCY: 1.0, 100_000.0, "ns", "from on-package to pooled memory";
    BANDWIDTH: 0.001, 100_000.0, "GB/s", "from microcontrollers to stacked memory";
    QUEUEING: 0.01, 10.0, "", "every memory has queues, and half busy it is not six times as slow";
    REMOTE: 1.0, 20.0, "", "memory of another node is not nearer than one's own";
    POWER: 0.0, 10_000.0, "W", "no package takes more";
    POINT_POWER: 1e-6, 10_000.0, "W", "a busy core takes some, and no package more";
    VOLTAGE: 0.01, 10.0, "V", "transistors switch at 0.3 to 1.5";
    RESIDENCY: 0.0, 1e7, "us", "no core waits 10 s for its deep idle state";
    POWER_WINDOW: 1e-3, 10_000.0, "s", "firmware averages over 1 ms to minutes";
    ENERGY: 0.0, 1e6, "nJ", "1 mJ each would be kilowatts";
    SOCKET: 0.0, 1023.0, "", "Linux has no more memory nodes";
    SIBLING_STEP: 1.0, 8192.0, "CPUs", "siblings are CPUs of the machine";
    FACTOR: -1000.0, 1000.0, "", "a speed-up factor, or what is added to one";
    RATIO: 0.0, 1e9, "", "of two counters";
    // Numbers of workload files.
    THREADS: 1.0, 100_000.0, "threads", "more take too long to simulate";
    NICE: -20.0, 19.0, "", "the kernel's range";
    GROUP_WEIGHT: 1.0, 10_000.0, "", "the kernel's range of cpu.weight";
    QUOTA_US: 1000.0, 1e12, "microseconds", "the kernel takes no less than a millisecond";
    PERIOD_US: 1000.0, 1e6, "microseconds", "the kernel's range";
    UCLAMP: 0.0, 1024.0, "", "the kernel's scale, on which the fastest CPU has 1024";
    START: 0.0, 1e6, "s", "simulations end by then";
    SCALE: 1e-6, 1e6, "", "shorter runs consist of restarts only";
    BURST: 1e-3, 1e9, "million instructions", "shorter ones consist of sleeps only";
    BARRIERS: 1.0, 1e6, "", "shorter pieces consist of barriers only";
    SLEEP: 1e-3, 1e9, "ms", "a timer's resolution is a microsecond";
    // Numbers of recorded and tabulated profiles.
    INSTRUCTIONS: 1.0, 1e18, "instructions", "years of a fast core";
    GIGA_INSTRUCTIONS: 1e-6, 1e9, "billion instructions", "years of a fast core";
    SHARE: 0.0, 1.0, "", "a share of the whole";
    PER_INSTRUCTION: 0.0, 64.0, "per instruction", "vector instructions gather 16 elements";
    PER_KILO_INSTRUCTION: 0.0, 64_000.0, "per kilo-instruction", "64 for each instruction";
    IPC: 1e-3, 1000.0, "instructions per cycle", "an endless window finds a few hundred";
    CHAIN: 0.0, 64.0, "cycles per instruction", "the longest operations take that, one after the other";
    RESOLUTION: 0.0, 1e6, "cycles", "a window of the longest operations, one after the other";
    OVERLAP: 1.0, 65_536.0, "misses", "each overlaps with itself, and a window has no more";
    CACHE_LINES: 1.0, 268_435_456.0, "lines", "16 GiB";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_belong_to_the_range_and_what_is_no_number_does_not() {
        for value in [1.0, 8192.0] {
            assert_eq!(CPUS.check("cpus", value), Ok(()));
        }
        for value in [0.0, 8193.0, f64::NAN, f64::INFINITY, -1.0, 1e308] {
            assert!(CPUS.check("cpus", value).is_err(), "{value}");
        }
        assert_eq!(
            CACHE_SIZE.check("size_kib", 1e308).unwrap_err(),
            "`size_kib` is 1e308; it must be 1 to 16777216 KiB (16 lines to 16 GiB)"
        );
    }
}
