//! Sources of speed-up factors: the metrics that the parameters `sf` and `history` select.

use countersteer_model::models::abstains;
use countersteer_model::policy::{Params, PolicyError};

/// Condition under which a thread gets a factor from a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Learns {
    /// The factor is known on every core type.
    Nothing,
    /// The factor needs runs on both core types.
    ByMeasuring,
    /// The factor of a phase is learnt while the thread runs on a big core.
    OnBigCores,
}

#[derive(Clone, Copy)]
pub(super) struct SpeedupSource {
    pub metric: &'static str,
    /// Name of a second metric that states the quality of the factor; `None` if the source has
    /// none.
    pub beside: Option<&'static str>,
    /// Condition under which a thread gets a factor.
    pub learns: Learns,
}

const fn source(
    metric: &'static str,
    beside: Option<&'static str>,
    learns: Learns,
) -> SpeedupSource {
    SpeedupSource {
        metric,
        beside,
        learns,
    }
}

impl SpeedupSource {
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

    /// True if a thread has to be measured on both core types, given its value of the second
    /// metric.
    pub(super) fn is_measured(&self, beside: Option<f64>) -> bool {
        match self.learns {
            Learns::ByMeasuring if self.beside.is_some() => beside.is_some_and(abstains),
            learns => learns == Learns::ByMeasuring,
        }
    }
}
