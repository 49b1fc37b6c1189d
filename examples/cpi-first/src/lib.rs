//! A policy: fast cores for the threads that wait least for memory. The package `steer` beside it is `steer` with this policy.
//!
//! A thread that takes many cycles per instruction waits; a faster core would wait as well. Threads below `most` cycles per
//! instruction run on the fastest core type, the others on the slowest. A thread without a value stays where it is.

use std::sync::Arc;

use countersteer_policy::engine::ThreadInfo;
use countersteer_policy::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_policy::policy::{
    Needs, ParamDef, Params, Policy, PolicyDef, PolicyError, PolicyRng, View,
};
use countersteer_policy::topology::{GroupBy, Topology};

/// Metric of the policy: a formula of two events, which no table names.
const CPI: &str = "cycles/instructions";

/// The package's policies.
pub static POLICIES: &[PolicyDef] = &[PolicyDef {
    name: "cpi-first",
    summary: "fastest cores for threads with few cycles per instruction",
    source: "an example",
    params: &[ParamDef {
        key: "most",
        default: "1.5",
        prose: "cycles per instruction from which on a thread runs on the slowest cores",
    }],
    make: |params, _| {
        Ok(Box::new(CpiFirst {
            needs: Needs::metrics(&[CPI]),
            most: params.number("most", 0.0)?,
        }))
    },
}];

struct CpiFirst {
    needs: Needs,
    most: f64,
}

impl CpiFirst {
    fn place(&self, view: &View<'_>, thread: &ThreadInfo) -> Option<ThreadPlacement> {
        let cpi = view.metric(thread.id, CPI)?;
        let types = view.topology.groups_by(GroupBy::CoreType);
        let (group, rule) = if cpi < self.most {
            (types.first()?, "few cycles per instruction")
        } else {
            (types.last()?, "waits for memory")
        };
        let reason = Reason::rule(rule).saw(CPI, Some(cpi));
        Some(ThreadPlacement::new(
            thread.id,
            Target::Group(group.id),
            reason,
        ))
    }
}

impl Policy for CpiFirst {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn tune(&mut self, params: &Params, _: &Arc<Topology>) -> Result<(), PolicyError> {
        self.most = params.number("most", 0.0)?;
        Ok(())
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        let placed = view.threads.iter().filter_map(|t| self.place(view, t));
        Placement {
            threads: placed.collect(),
            ..Placement::default()
        }
    }
}
