//! Registry of metrics by name: formulas from the files in `metrics/`, metric sources of this crate, and additions of other
//! packages.
//!
//! A formula without a name is identified by its text. Each text is compiled once, however often it is requested.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError, RwLock};

use super::formula::Computed;
use super::{MetricDef, ReadBy, director, history, phases, sf, steps, trained, work};
use crate::counters::{Metric, MetricGroup};

/// Paths of the shipped metric files, with their texts.
pub const FILES: [(&str, &str); 4] = [
    (
        "metrics/caches.toml",
        include_str!("../../../../metrics/caches.toml"),
    ),
    (
        "metrics/core.toml",
        include_str!("../../../../metrics/core.toml"),
    ),
    (
        "metrics/energy.toml",
        include_str!("../../../../metrics/energy.toml"),
    ),
    (
        "metrics/kernel.toml",
        include_str!("../../../../metrics/kernel.toml"),
    ),
];

/// Metrics that have state or are computed from more than one sample.
static SOURCES: &[MetricDef] = &[
    trained::SF_MODEL,
    trained::SF_DOUBT,
    trained::SF_ERROR,
    trained::EF_MODEL,
    trained::EF_ERROR,
    phases::PHASE,
    sf::SF_SAMPLED,
    work::SF_WORK,
    sf::SF_ORACLE,
    sf::EF_ORACLE,
    steps::SF_STEPS,
    director::SF_TD,
    history::SF_HISTORY,
    history::SF_HISTORY_MISSES,
    history::SF_TD_HISTORY,
    history::SF_TD_HISTORY_MISSES,
];

/// Metrics from the shipped files.
static SHIPPED: LazyLock<Vec<Metric>> = LazyLock::new(|| {
    let parsed = FILES
        .iter()
        .map(|(path, text)| MetricGroup::parse(path, text));
    // A test of this crate checks that every file can be parsed.
    parsed.flat_map(Result::unwrap_or_default).collect()
});

static KNOWN: LazyLock<RwLock<Vec<&'static MetricDef>>> = LazyLock::new(|| {
    let formulas = SHIPPED.iter().filter_map(compiled);
    RwLock::new(formulas.chain(SOURCES).collect())
});

/// Metrics of formulas without a name, by text; `None` for a text that is no formula over events.
static INLINE: Mutex<BTreeMap<String, Option<&'static MetricDef>>> = Mutex::new(BTreeMap::new());

/// Error: another metric already has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is a metric `{0}` already; rename the one that is added")]
pub struct NameTaken(pub &'static str);

/// Returns the metrics from the shipped files.
#[must_use]
pub fn shipped() -> &'static [Metric] {
    &SHIPPED
}

/// Returns all metrics that have a name.
#[must_use]
pub fn all() -> Vec<&'static MetricDef> {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Adds metrics of another package. Policies, records and command lines can then use them.
///
/// # Errors
/// Fails if another metric already has one of the names.
pub fn add(metrics: &'static [MetricDef]) -> Result<(), NameTaken> {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    for metric in metrics {
        if known.iter().any(|k| k.name == metric.name) {
            return Err(NameTaken(metric.name));
        }
        known.push(metric);
    }
    Ok(())
}

/// Returns the metric with a name; `None` if there is none.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static MetricDef> {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    known.iter().find(|m| m.name == name).copied()
}

/// Returns the metric with a name, or the metric of a formula over events such as `1000 * l2_misses / instructions`. `None`
/// if the text is neither.
#[must_use]
pub fn resolve(text: &str) -> Option<&'static MetricDef> {
    by_name(text).or_else(|| {
        let mut inline = INLINE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = inline.get(text) {
            return *known;
        }
        let metric = Metric::choose(text, &[]).ok();
        let compiled = metric.and_then(|chosen| match chosen.as_slice() {
            [only] => compiled(only),
            _ => None,
        });
        inline.insert(text.to_owned(), compiled);
        compiled
    })
}

/// Compiles a formula to a row of the metric table. Like all rows, it is never freed; the number of rows is limited by that
/// of the formulas requested.
fn compiled(metric: &Metric) -> Option<&'static MetricDef> {
    let computed: &'static Computed = Box::leak(Box::new(Computed::new(metric)?));
    let row = MetricDef {
        name: metric.name.clone().leak(),
        unit: metric.unit.clone().leak(),
        prose: metric.prose.clone().leak(),
        needs: computed.events(),
        helps: &[],
        read_by: ReadBy::Formula(computed),
    };
    Some(Box::leak(Box::new(row)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{MetricSource, Round};
    use crate::sample::Event;

    #[test]
    fn files_parse_and_names_are_unique() {
        for (path, text) in FILES {
            MetricGroup::parse(path, text).unwrap();
        }
        let mut names: Vec<&str> = all().iter().map(|m| m.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(
            ["ipc", "llc_mpki", "power", "sf"]
                .iter()
                .all(|n| names.contains(n))
        );
    }

    #[test]
    fn every_file_of_the_folder_is_in_the_table() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../metrics");
        let files = std::fs::read_dir(folder).unwrap();
        let mut files: Vec<String> = files
            .map(|f| format!("metrics/{}", f.unwrap().file_name().to_string_lossy()))
            .collect();
        files.sort();
        assert_eq!(files, FILES.map(|f| f.0));
    }

    #[test]
    fn formulas_are_metrics_by_their_text_and_compiled_once() {
        let text = "1000 * l1d_misses / instructions";
        let metric = resolve(text).unwrap();
        assert_eq!(metric.needs, [Event::L1dMisses, Event::Instructions]);
        assert!(std::ptr::eq(metric, resolve(text).unwrap()));
        assert_eq!(
            resolve("llc_misses / seconds").unwrap().needs,
            [Event::LlcMisses]
        );
        let own = resolve("1000 * r01c2 / instructions").unwrap().needs;
        assert_eq!((own[0].def().name, own[1]), ("r01c2", Event::Instructions));
        for unknown in ["sf_modle", "instructions + seconds", "(", "a,b"] {
            assert!(resolve(unknown).is_none(), "{unknown}");
        }
    }

    struct Constant;

    impl MetricSource for Constant {
        fn read(&mut self, _: &Round<'_>) -> Option<f64> {
            Some(1.0)
        }
    }

    static OWN: [MetricDef; 1] = [MetricDef {
        name: "of_a_test",
        unit: "",
        prose: "",
        needs: &[Event::Cycles],
        helps: &[],
        read_by: ReadBy::Source(|_| Box::new(Constant)),
    }];

    #[test]
    fn packages_add_metrics_under_names_of_their_own() {
        assert_eq!(add(&OWN), Ok(()));
        assert_eq!(
            by_name("of_a_test").map(|m| m.needs),
            Some(&[Event::Cycles][..])
        );
        assert_eq!(add(&OWN), Err(NameTaken("of_a_test")));
    }
}
