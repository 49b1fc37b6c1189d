//! `scx`: a scheduler written for sched_ext schedules all threads of a simulation, in place of Linux's fair class.
//!
//! Idea: authors of sched_ext schedulers test on the machines that they have. Here the BPF sources of a scheduler run unchanged on
//! every simulated machine. `path` names the sources: a file `NAME.bpf.c`, a folder of such files, or a crate with `src/bpf`. Any
//! other parameter sets a global variable of the scheduler, for example `slice_ns=500000`.
//!
//! Source: Linux, kernel/sched/ext.c, which defines when the functions of a scheduler are called. Decided here: a scheduler's
//! user-space half does not run. What it would set from the machine (number of CPUs, SMT, capacities) is set; other variables keep
//! the values of the sources.
//!
//! Assumes: a C compiler, and a scheduler that needs no threads of other classes, no control groups and no user-space decisions.
//! [scheduler-authors.md](scheduler-authors.md) has examples.
//!
//! Loses: wherever the scheduler does. On a real machine, the scheduler itself is loaded instead.

use countersteer_model::placement::Placement;
use countersteer_model::policy::{ParamDef, Policy, PolicyDef, PolicyRng, View};

/// Name of the policy.
pub const NAME: &str = "scx";
/// Parameter that names the sources of the scheduler.
pub const PATH: &str = "path";

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: NAME,
    summary: "runs the sources of a sched_ext scheduler in place of Linux's own (simulations)",
    source: "Linux, kernel/sched/ext.c",
    params: &[
        ParamDef {
            key: PATH,
            default: "",
            prose: "BPF sources of the scheduler: a file, a folder of files, or a crate",
        },
        ParamDef {
            key: "*",
            default: "",
            prose: "value of the scheduler's variable of that name, an integer, true or false",
        },
    ],
    make: |_, _| Ok(Box::new(Scx)),
};

/// Policy that leaves every decision to the scheduler.
struct Scx;

impl Policy for Scx {
    fn decide(&mut self, _: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        Placement::default()
    }
}
