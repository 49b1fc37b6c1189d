//! `steer` with a failing policy, to show that no program suffers from it: `run -P faulty:fault=panic -- ...`.
//!
//! It moves all threads to the last CPU. After some decisions it panics, takes too long, or never returns. With `twice` as the first
//! word, the command runs two times in this process, which survives both, as a program that embeds `steer` does.

use std::ffi::OsString;
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
    let mut words: Vec<OsString> = std::env::args_os().collect();
    if words.get(1).is_none_or(|word| word != "twice") {
        return countersteer_cli::steer(POLICIES);
    }
    words.remove(1);
    if let Err(error) = countersteer_policies::add(POLICIES) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    countersteer_cli::this_program::set_own();
    for _ in 0..2 {
        match countersteer_cli::call(&words) {
            Ok(_) => println!("ended"),
            Err(error) => println!("failed: {error:#}"),
        }
        if let Ok(state) = std::fs::read_to_string("/sys/kernel/sched_ext/state") {
            println!("sched_ext: {}", state.trim());
        }
    }
    ExitCode::SUCCESS
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
