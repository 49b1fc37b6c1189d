//! Table of the predefined columns of `steer top`, in display order.

use super::ColumnSource;
use crate::top::tails::LatencyPercentile;

/// Definition of a predefined column.
pub(super) struct ColumnDef {
    pub(super) name: &'static str,
    pub(super) width: u16,
    pub(super) of: Of,
    pub(super) shown: bool,
    pub(super) prose: &'static str,
}

pub(super) enum Of {
    /// Value that is known without counting, e.g. the PID.
    Known(ColumnSource),
    /// Count of this metric per second of the interval.
    Rate(&'static str),
    /// Value of this metric, as computed by its formula.
    Value(&'static str),
    /// Virtual counter with this name: a rate per second if the counter is cumulative, else its value.
    Virtual(&'static str),
    /// Percentile of run-queue or wakeup latency, from individually measured waits.
    Tail(LatencyPercentile),
}

const fn def(
    name: &'static str,
    width: u16,
    of: Of,
    shown: bool,
    prose: &'static str,
) -> ColumnDef {
    ColumnDef {
        name,
        width,
        of,
        shown,
        prose,
    }
}

/// All predefined columns, in display order. Their metrics are counted together.
pub(super) static COLUMNS: &[ColumnDef] = &[
    def("pid", 7, Of::Known(ColumnSource::Pid), true, "the process"),
    def("tid", 7, Of::Known(ColumnSource::Tid), true, "the thread"),
    def(
        "name",
        16,
        Of::Known(ColumnSource::Name),
        true,
        "name of the thread",
    ),
    def("cpu", 4, Of::Known(ColumnSource::Cpu), true, "last CPU"),
    def(
        "type",
        9,
        Of::Known(ColumnSource::CoreType),
        true,
        "most used core type",
    ),
    def(
        "cpu%",
        6,
        Of::Known(ColumnSource::Share),
        true,
        "time on a CPU, in percent of one",
    ),
    def("ipc", 6, Of::Value("ipc"), true, "instructions per cycle"),
    def(
        "llc_mpki",
        8,
        Of::Value("llc_mpki"),
        true,
        "misses of the last-level cache per kilo-instruction",
    ),
    def(
        "cs/s",
        7,
        Of::Rate("context_switches"),
        true,
        "context switches per second",
    ),
    def(
        "faults/s",
        8,
        Of::Rate("page_faults"),
        true,
        "page faults per second",
    ),
    def(
        "wait_ms",
        9,
        Of::Virtual("runqueue_wait_ms"),
        true,
        "milliseconds per second on a run queue without running",
    ),
    def(
        "wait50_ms",
        9,
        Of::Tail(LatencyPercentile::Wait50),
        false,
        "median run-queue latency, in ms",
    ),
    def(
        "wait99_ms",
        9,
        Of::Tail(LatencyPercentile::Wait99),
        false,
        "99th percentile of run-queue latency, in ms",
    ),
    def(
        "wake50_ms",
        9,
        Of::Tail(LatencyPercentile::Wake50),
        false,
        "median wakeup latency, in ms",
    ),
    def(
        "wake99_ms",
        9,
        Of::Tail(LatencyPercentile::Wake99),
        false,
        "99th percentile of wakeup latency, in ms",
    ),
    def(
        "migr/s",
        7,
        Of::Rate("cpu_migrations"),
        false,
        "migrations per second",
    ),
    def(
        "sf",
        6,
        Of::Value("sf"),
        true,
        "speed-up factor: speed on the fastest core type over speed on the slowest",
    ),
    def(
        "energy%",
        7,
        Of::Virtual("energy_share_percent"),
        true,
        "share of the packages' energy, by time on their CPUs",
    ),
    def(
        "watts",
        7,
        Of::Virtual("thread_energy_j"),
        false,
        "share of the packages' power, in watts",
    ),
    def(
        "history",
        20,
        Of::Known(ColumnSource::History),
        true,
        "cpu% over the last intervals, the newest at the right",
    ),
];

impl Of {
    pub(super) const fn metric(&self) -> Option<&'static str> {
        match self {
            Self::Known(_) | Self::Virtual(_) | Self::Tail(_) => None,
            Self::Rate(name) | Self::Value(name) => Some(name),
        }
    }
}
