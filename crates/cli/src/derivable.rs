//! Metrics of the core's table that can be computed from PMU counts alone.

use countersteer_model::metric::{self, MetricDef};

/// Looks up a metric by name; `None` if it is unknown or needs more than PMU counts.
pub fn derivable(name: &str) -> Option<&'static MetricDef> {
    metric::by_name(name).filter(|m| counted(m))
}

/// Names of all metrics that can be computed from PMU counts alone.
pub fn names() -> impl Iterator<Item = &'static str> {
    metric::all()
        .into_iter()
        .filter(|m| counted(m))
        .map(|m| m.name)
}

fn counted(metric: &MetricDef) -> bool {
    let counted = metric.needs.iter().all(|event| event.def().is_counted());
    counted && !metric.is_trained_only()
}
