//! Counters around a region of Python code.

use std::sync::{Mutex, PoisonError};

use countersteer_counters::CounterError;
use countersteer_counters::region::{EventCount, Region, RegionOptions};
use pyo3::prelude::*;

use crate::error::raised;

/// Count of an event: name, core type, value, time enabled and time running in nanoseconds. The value is None if nothing
/// counted.
type Counted = (String, Option<String>, Option<u64>, u64, u64);

/// Open counters of the calling thread, and with `inherit` of the threads that it starts.
#[pyclass(frozen, module = "countersteer")]
pub struct Counters {
    region: Mutex<Region>,
}

impl Counters {
    fn with<T>(&self, run: impl FnOnce(&mut Region) -> Result<T, CounterError>) -> PyResult<T> {
        let mut region = self.region.lock().unwrap_or_else(PoisonError::into_inner);
        run(&mut region).map_err(raised)
    }
}

#[pymethods]
impl Counters {
    #[new]
    #[pyo3(signature = (events, inherit = true))]
    fn new(events: &str, inherit: bool) -> PyResult<Self> {
        let options = RegionOptions {
            inherit,
            ..RegionOptions::default()
        };
        let region = Region::open(events, options).map_err(raised)?;
        Ok(Self {
            region: Mutex::new(region),
        })
    }

    /// Begins an interval.
    fn start(&self) -> PyResult<()> {
        self.with(Region::start)
    }

    /// Ends the interval and adds its counts to the sums.
    fn stop(&self) -> PyResult<()> {
        self.with(Region::stop)
    }

    /// Sums of all intervals.
    fn read(&self) -> PyResult<Vec<Counted>> {
        self.with(|region| {
            let counts = region.read()?.iter();
            let row = |count: &EventCount| {
                (
                    count.name.clone(),
                    count.core_type.clone(),
                    count.value,
                    count.enabled_ns,
                    count.running_ns,
                )
            };
            Ok(counts.map(row).collect())
        })
    }
}
