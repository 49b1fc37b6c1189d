//! Metrics of the core's table that can be computed from PMU counts alone, and the trained models of this machine for them.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use countersteer_counters::{EventProbe, probe_event};
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::metric::{self, MetricDef};
use countersteer_model::models::FixedPointModel;
use countersteer_model::sample::Event;
use countersteer_model::topology::Topology;

use crate::library;

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
    metric.needs.iter().all(|event| event.def().is_counted())
}

/// This machine, as metrics need it.
pub struct MetricMachine {
    /// Cores of the machine, with the trained models whose events can all be counted.
    pub topology: Arc<Topology>,
    pub cpus: CpuNumbers,
}

impl MetricMachine {
    fn detect() -> anyhow::Result<Self> {
        let machine = countersteer_sysfs::topology::detect(Path::new("/"))?;
        let pmus = library::pmus(Path::new("/"), None)?;
        let counts = |event: &Event| {
            let probe = probe_event(event.def(), &pmus);
            matches!(probe, EventProbe::Counts | EventProbe::UserOnly)
        };
        let cpus = CpuNumbers::new(machine.os_cpu_numbers());
        let loaded = countersteer_lab::LoadedMachine::with_models(machine, None)?;
        let mut topology = Topology::new(&loaded.machine);
        keep(&mut topology, counts);
        Ok(Self {
            topology: Arc::new(topology),
            cpus,
        })
    }
}

/// Drops the models that need events which are not counted.
fn keep(topology: &mut Topology, counts: impl Fn(&Event) -> bool) {
    let usable = |model: &FixedPointModel| model.events().iter().all(&counts);
    for models in &mut topology.models {
        models.sf = models.sf.take().filter(usable);
        models.ef = models.ef.take().filter(usable);
    }
}

static HERE: LazyLock<Result<MetricMachine, String>> =
    LazyLock::new(|| MetricMachine::detect().map_err(|why| format!("{why:#}")));

/// Returns this machine, which is detected at the first call.
pub fn here() -> anyhow::Result<&'static MetricMachine> {
    HERE.as_ref().map_err(|why| anyhow::anyhow!("{why}"))
}

/// Returns the optional events of a metric on this machine: those of its trained models, or else the metric's own.
pub fn helps(metric: &MetricDef) -> Vec<Event> {
    let all = match (metric.target(), here()) {
        (Some(_), Ok(here)) => metric::events_on_any(&here.topology, &[metric.name]),
        _ => metric.helps.to_vec(),
    };
    let needed = |event: &Event| metric.needs.contains(event);
    all.into_iter().filter(|event| !needed(event)).collect()
}

/// Returns the reason if a metric needs a trained model and this machine has none whose events are counted.
pub(crate) fn without_model(metric: &MetricDef, topology: &Topology) -> Option<String> {
    let target = metric.target().filter(|_| metric.is_trained_only())?;
    let has = topology
        .models
        .iter()
        .any(|models| models.of(target).is_some());
    let remedy = "`steer model list` lists models, `steer model train` makes one";
    (!has).then(|| {
        format!(
            "`{}` needs a trained model for a core type of this machine, with events that are counted here; {remedy}",
            metric.name
        )
    })
}
