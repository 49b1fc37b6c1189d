//! Sources of speed-up factors: the metrics behind `sf` and `history`.

use countersteer_model::models::abstains;
use countersteer_model::policy::{Params, PolicyError};

/// Requirement for a thread's factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Learns {
    /// Known on every core type.
    Nothing,
    /// Needs runs on both core types.
    ByMeasuring,
    /// Learnt on big cores, by phase.
    OnBigCores,
}

#[derive(Clone, Copy)]
pub(super) struct Source {
    pub metric: &'static str,
    /// Second metric, which tells how good the first is.
    pub beside: Option<&'static str>,
    pub learns: Learns,
}

const fn source(metric: &'static str, beside: Option<&'static str>, learns: Learns) -> Source {
    Source {
        metric,
        beside,
        learns,
    }
}

impl Source {
    pub(super) fn new(params: &Params) -> Result<Self, PolicyError> {
        let on_big_cores = |metric, misses| source(metric, Some(misses), Learns::OnBigCores);
        let history = params.choice(
            "history",
            &[
                ("model", on_big_cores("sf_history", "sf_history_misses")),
                ("td", on_big_cores("sf_td_history", "sf_td_history_misses")),
            ],
        )?;
        let choices = [
            ("model", source("sf", Some("sf_doubt"), Learns::ByMeasuring)),
            ("steps", source("sf_steps", None, Learns::Nothing)),
            ("sampled", source("sf_sampled", None, Learns::ByMeasuring)),
            ("td", source("sf_td", None, Learns::Nothing)),
            ("history", history),
            ("work", source("sf_work", None, Learns::ByMeasuring)),
            ("oracle", source("sf_oracle", None, Learns::Nothing)),
        ];
        params.choice("sf", &choices)
    }

    /// True if a thread has to be measured, given the value of the second metric.
    pub(super) fn is_measured(&self, beside: Option<f64>) -> bool {
        match self.learns {
            Learns::ByMeasuring if self.beside.is_some() => beside.is_some_and(abstains),
            learns => learns == Learns::ByMeasuring,
        }
    }
}
