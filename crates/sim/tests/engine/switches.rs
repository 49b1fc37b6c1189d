//! Context switches: a policy that asks for them receives each, and another one receives none.

use std::collections::BTreeMap;

use countersteer_model::engine::Span;
use countersteer_model::placement::Placement;
use countersteer_model::policy::{Needs, Policy, View};
use countersteer_model::units::ThreadId;

use super::*;

struct Listener {
    needs: Needs,
    /// Sum of run intervals by thread, and the CPU time that the driver counted.
    ran: BTreeMap<ThreadId, Nanos>,
    used: BTreeMap<ThreadId, f64>,
    latest: Nanos,
    calls: u32,
}

impl Policy for Listener {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn switched(&mut self, ended: &[Span]) {
        self.calls += 1;
        for span in ended {
            assert!(span.start < span.end && self.latest <= span.end);
            self.latest = span.end;
            *self.ran.entry(span.thread).or_default() += span.end.since(span.start);
        }
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        assert!(self.latest <= view.now, "switches come before decisions");
        for thread in view.threads {
            let usage = view.usage(thread.id).map(|usage| usage.total_cpu_s());
            self.used.insert(thread.id, usage.unwrap_or(0.0));
        }
        Placement::default()
    }
}

/// Runs two threads for each CPU; the policy asks for switches or does not.
fn listen(switches: bool) -> Listener {
    let topology = machine("i9-12900k-8p8e");
    let profile = spec("502.gcc_r");
    let programs = (0..48).map(|n| program(&format!("p{n}"), &profile, 1, 1.0));
    let plan = Plan {
        programs: programs.collect(),
        ..Plan::default()
    };
    let mut simulation = Simulation::new(Arc::clone(&topology), &plan, config(false, 1)).unwrap();
    let mut listener = Listener {
        needs: Needs {
            switches,
            ..Needs::NOTHING
        },
        ran: BTreeMap::new(),
        used: BTreeMap::new(),
        latest: Nanos::ZERO,
        calls: 0,
    };
    let limits = DriverConfig {
        period: Nanos::from_millis(100),
        until: Nanos::from_millis(2_000),
    };
    let mut rng = policy::policy_rng(1);
    drive(&mut simulation, &mut listener, &mut [], limits, &mut rng).unwrap();
    listener
}

#[test]
fn a_policy_that_asks_receives_each_switch() {
    let listener = listen(true);
    assert_eq!(listener.ran.len(), 48);
    for (thread, ran) in &listener.ran {
        // A run that has not ended is not reported: at most a few time slices are missing.
        let missing = listener.used[thread] - ran.as_secs_f64();
        assert!((-1e-6..0.1).contains(&missing), "{thread:?} {missing}");
    }
}

#[test]
fn a_policy_that_does_not_ask_receives_none() {
    assert_eq!(listen(false).calls, 0);
}
