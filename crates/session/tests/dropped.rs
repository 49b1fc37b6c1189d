//! A trial whose policy is dropped has no result. The test is alone in its process, because it adds a policy.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use countersteer_model::placement::Placement;
use countersteer_model::policy::{Policy, PolicyDef, PolicyRng, View};
use countersteer_session::error::{FaultKind, kind_of};
use countersteer_session::steering::whole_runs::{RunsTrial, TrialSide};

struct Failing;

impl Policy for Failing {
    fn decide(&mut self, _: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        unreachable!("on purpose")
    }
}

static POLICIES: &[PolicyDef] = &[PolicyDef {
    name: "failing",
    summary: "panics",
    source: "a test",
    params: &[],
    make: |_, _| Ok(Box::new(Failing)),
}];

#[test]
fn a_trial_of_a_policy_that_is_dropped_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    // SAFETY: no other thread exists yet.
    unsafe { std::env::set_var("RUNTIME_DIRECTORY", folder.path()) };
    countersteer_policies::add(POLICIES).unwrap();
    let mut trial = RunsTrial::new(
        vec![vec!["sleep".into(), "0.3".into()]],
        TrialSide::parse("failing").unwrap(),
    );
    trial.pairs = Some(2);
    let error = trial.run().unwrap_err();
    assert_eq!(kind_of(&error), FaultKind::Internal, "{error}");
    let said = error.to_string();
    assert!(
        said.contains("a run under failing failed: the policy was dropped"),
        "{said}"
    );
    assert!(said.contains("on purpose"), "{said}");
}
