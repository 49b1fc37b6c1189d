//! A policy in twenty lines: threads that miss the caches most run on the slowest cores.

use std::sync::Arc;

use countersteer::lab::Experiment;
use countersteer::model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer::model::policy::{Needs, Policy, PolicyDef, PolicyRng, View};
use countersteer::model::topology::GroupBy;

static POLICIES: &[PolicyDef] = &[PolicyDef {
    name: "memory-last",
    summary: "slow cores for threads that wait for memory",
    source: "an example",
    params: &[],
    make: |_, _| {
        Ok(Box::new(MemoryLast {
            needs: Needs::metrics(&["llc_mpki"]),
        }))
    },
}];

struct MemoryLast {
    needs: Needs,
}

impl Policy for MemoryLast {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        let topology = Arc::clone(view.topology);
        let types = topology.groups_by(GroupBy::CoreType);
        let mut threads: Vec<_> = view
            .threads
            .iter()
            .filter_map(|thread| Some((view.metric(thread.id, "llc_mpki")?, thread.id)))
            .collect();
        threads.sort_by(|a, b| a.0.total_cmp(&b.0));
        let fast = types[0].cpus.len();
        let place = |(rank, (mpki, id)): (usize, &(f64, _))| {
            let group = if rank < fast { &types[0] } else { &types[types.len() - 1] };
            let reason = Reason::rule("order by misses").saw("llc_mpki", Some(*mpki));
            ThreadPlacement::new(*id, Target::Group(group.id), reason)
        };
        Placement {
            threads: threads.iter().enumerate().map(place).collect(),
            ..Placement::default()
        }
    }
}

pub fn main() -> anyhow::Result<()> {
    countersteer::policies::add(POLICIES)?;
    for policy in ["linux", "memory-last"] {
        let mut experiment = Experiment::named("quickia-2b-2s", "unequal-cores", policy)?;
        experiment.options.rounds = 1;
        println!("{policy:<11} STP {:.2}", experiment.run()?.score.stp);
    }
    Ok(())
}
