//! `steer` with a policy that learns of each context switch: `run -P short-runs --engine scx -- ...`.
//!
//! Threads that give up their CPU after a short time, such as those that answer requests, go to the slowest core type. Threads
//! that compute for long go to the fastest one. Counters cannot tell them apart within a period, but the lengths of their runs can:
//! [`Policy::switched`] receives one [`Span`] for each switch away from a thread.
//!
//! The simulator and the sched_ext scheduler report switches. Under the affinity engine none is reported, and no thread is placed.

use std::collections::BTreeMap;
use std::process::ExitCode;

use countersteer_policy::engine::Span;
use countersteer_policy::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_policy::policy::{Needs, ParamDef, Policy, PolicyDef, PolicyRng, View};
use countersteer_policy::topology::GroupBy;
use countersteer_policy::units::{Nanos, ThreadId};

static POLICIES: &[PolicyDef] = &[PolicyDef {
    name: "short-runs",
    summary: "the slowest cores for threads that run for a short time at once",
    source: "an example",
    params: &[
        ParamDef {
            key: "short_ms",
            default: "2",
            prose: "geometric mean of the lengths of a thread's runs, in ms, below which it gets the slowest cores",
        },
        ParamDef {
            key: "least",
            default: "5",
            prose: "number of runs of a thread before it is placed",
        },
        ParamDef {
            key: "listen",
            default: "on",
            prose: "off: it learns of no switch and places no thread, to measure what the hook costs",
        },
    ],
    make: |params, _| {
        Ok(Box::new(ShortRuns {
            needs: Needs {
                switches: params.choice("listen", &[("on", true), ("off", false)])?,
                ..Needs::NOTHING
            },
            short: Nanos::from_secs_f64(params.number("short_ms", 0.0)? * 1e-3),
            least: params.number("least", 1.0)? as u32,
            runs: BTreeMap::new(),
        }))
    },
}];

fn main() -> ExitCode {
    countersteer_cli::steer(POLICIES)
}

struct ShortRuns {
    needs: Needs,
    short: Nanos,
    least: u32,
    runs: BTreeMap<ThreadId, Runs>,
}

/// Runs of a thread so far.
#[derive(Default)]
struct Runs {
    count: u32,
    /// Running average of the logarithms of their lengths in ns. One long run among short ones, such as when a hypervisor takes the
    /// CPU away meanwhile, hardly moves it.
    mean_ln_ns: f64,
}

/// Weight of the newest run in the average.
const NEWEST: f64 = 0.1;

impl Policy for ShortRuns {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn switched(&mut self, ended: &[Span]) {
        for span in ended {
            let ran_ns = span.end.since(span.start).0 as f64;
            let runs = self.runs.entry(span.thread).or_default();
            runs.count += 1;
            let weight = NEWEST.max(1.0 / f64::from(runs.count));
            runs.mean_ln_ns += weight * (ran_ns.max(1.0).ln() - runs.mean_ln_ns);
        }
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        self.runs.retain(|thread, _| view.lives(*thread));
        let types = view.topology.groups_by(GroupBy::CoreType);
        let place = |(thread, runs): (&ThreadId, &Runs)| {
            if runs.count < self.least {
                return None;
            }
            let mean_ns = runs.mean_ln_ns.exp();
            let is_short = mean_ns < self.short.0 as f64;
            let group = if is_short {
                types.last()
            } else {
                types.first()
            }?;
            let rule = if is_short { "short runs" } else { "long runs" };
            let reason = Reason::rule(rule).saw("run_ms", Some(mean_ns * 1e-6));
            Some(ThreadPlacement::new(
                *thread,
                Target::Group(group.id),
                reason,
            ))
        };
        Placement {
            threads: self.runs.iter().filter_map(place).collect(),
            ..Placement::default()
        }
    }
}
