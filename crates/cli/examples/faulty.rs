//! `steer` with a failing policy, to show that no program suffers from it: `run -P faulty:fault=panic -- ...`.
//!
//! It moves all threads to the last CPU. After some decisions it panics, takes too long, or never returns.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use countersteer_policy::cpuset::CpuSet;
use countersteer_policy::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_policy::policy::{ParamDef, Policy, PolicyDef, PolicyRng, View};

static POLICIES: &[PolicyDef] = &[PolicyDef {
    name: "faulty",
    summary: "fails",
    source: "an example",
    params: &[
        ParamDef {
            key: "fault",
            default: "panic",
            prose: "panic, slow, or stuck",
        },
        ParamDef {
            key: "after",
            default: "5",
            prose: "decisions before",
        },
        ParamDef {
            key: "slow_ms",
            default: "250",
            prose: "fault=slow: how long a decision takes then",
        },
    ],
    make: |params, _| {
        let slow = Duration::from_secs_f64(params.number("slow_ms", 0.0)? * 1e-3);
        let faults = [
            ("panic", Fault::Panic),
            ("slow", Fault::Slow(slow)),
            ("stuck", Fault::Stuck),
        ];
        let fault = params.choice("fault", &faults)?;
        Ok(Box::new(Faulty {
            fault,
            left: params.number("after", 0.0)? as u32,
        }))
    },
}];

fn main() -> ExitCode {
    countersteer_cli::steer(POLICIES)
}

#[derive(Clone, Copy)]
enum Fault {
    Panic,
    Slow(Duration),
    Stuck,
}

struct Faulty {
    fault: Fault,
    left: u32,
}

impl Policy for Faulty {
    #[allow(clippy::panic, reason = "this is what it is for")]
    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        match self.fault {
            _ if self.left > 0 => self.left -= 1,
            Fault::Panic => panic!("as it was asked to"),
            Fault::Slow(time) => std::thread::sleep(time),
            Fault::Stuck => loop {
                std::thread::sleep(Duration::from_secs(1));
            },
        }
        let last: Arc<CpuSet> = Arc::new(
            view.topology
                .cpus
                .iter()
                .last()
                .map(|cpu| cpu.id)
                .into_iter()
                .collect(),
        );
        let place = |id| {
            ThreadPlacement::new(
                id,
                Target::Cpus(Arc::clone(&last)),
                Reason::rule("all on one CPU"),
            )
        };
        Placement {
            threads: view.threads.iter().map(|t| place(t.id)).collect(),
            ..Placement::default()
        }
    }
}
