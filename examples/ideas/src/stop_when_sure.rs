//! Pairs of measurements, looked at after each one: an interval that stays valid however often one looks.

use countersteer::model::evidence::{Evidence, GainDecision};

/// Rates under a policy and under Linux, in turn.
const PAIRS: [(f64, f64); 12] = [
    (104.0, 100.0),
    (107.0, 101.0),
    (103.0, 99.0),
    (108.0, 102.0),
    (105.0, 100.0),
    (104.0, 98.0),
    (106.0, 101.0),
    (103.0, 99.0),
    (107.0, 100.0),
    (105.0, 99.0),
    (106.0, 102.0),
    (104.0, 100.0),
];

pub fn main() -> anyhow::Result<()> {
    let mut evidence = Evidence::default();
    for (policy, linux) in PAIRS {
        evidence.push(f64::ln(policy / linux));
        let interval = evidence.interval(0.95).map_or_else(
            || "no interval yet".to_owned(),
            |(low, high)| format!("{:+.1} to {:+.1} %", 100.0 * low, 100.0 * high),
        );
        println!("{:>2} pairs: {:+.1} %, {interval}", evidence.pairs(), 100.0 * evidence.gain());
        if evidence.verdict(0.95, 0.01) == Some(GainDecision::Faster) {
            println!("faster: no more pairs are needed");
            break;
        }
    }
    Ok(())
}
