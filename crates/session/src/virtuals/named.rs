//! Value of a virtual counter.

use countersteer_sysfs::sensors::SensorPlace;

/// Value of a virtual counter at a place, e.g. a CPU or a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    pub name: &'static str,
    pub unit: &'static str,
    pub place: SensorPlace,
    pub value: f64,
}
