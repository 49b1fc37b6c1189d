//! The policy on a small simulated machine.

use countersteer_policy::synthetic::{self, chase, compute};
use countersteer_policy::{Machine, Tryout};

/// Two fast and two slow cores, two programs that compute, and two that wait for memory.
fn tryout() -> Tryout {
    let text = include_str!("../../../machines/quickia-2b-2s.toml");
    let machine = Machine::parse("quickia-2b-2s.toml", text).unwrap();
    (0..2).fold(Tryout::on(&machine), |tryout, nth| {
        let computes = [(compute(), 1_000_000_000)];
        let waits = [(chase(4_000_000), 100_000_000)];
        tryout
            .program(synthetic::profile(&format!("computes-{nth}"), &computes))
            .program(synthetic::profile(&format!("waits-{nth}"), &waits))
    })
}

#[test]
fn it_gains_over_linux_where_programs_differ() {
    let tryout = tryout();
    let score = tryout.run(&cpi_first::POLICIES[0], "").unwrap();
    let linux = tryout.linux().unwrap();
    assert!(score.stp > 1.02 * linux.stp, "{} {}", score.stp, linux.stp);
}

#[test]
fn with_an_absurd_threshold_all_threads_share_the_slow_cores() {
    let tryout = tryout();
    let score = tryout.run(&cpi_first::POLICIES[0], "most=0.01").unwrap();
    let linux = tryout.linux().unwrap();
    assert!(score.stp < linux.stp, "{} {}", score.stp, linux.stp);
}
