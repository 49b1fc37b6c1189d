//! Metrics of the core's table that come of nothing but counts.

use countersteer_model::metric::{self, MetricDef};

/// The metric of a name, if it comes of nothing but what PMUs count.
pub fn derivable(name: &str) -> Option<&'static MetricDef> {
    metric::by_name(name).filter(|m| counted(m))
}

/// The names of all such metrics.
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
