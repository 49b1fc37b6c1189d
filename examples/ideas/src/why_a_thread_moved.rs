//! The record of a run: what the policy decided, by which rule, on which values.

use std::collections::BTreeMap;

use countersteer::lab::Experiment;
use countersteer::report::record::Detail;

pub fn main() -> anyhow::Result<()> {
    let mut experiment = Experiment::named("quickia-2b-2s", "unequal-cores", "hsf")?;
    experiment.options.rounds = 1;
    experiment.detail = Some(Detail::NoSpans);
    let Some(record) = experiment.run()?.record else {
        anyhow::bail!("no record was kept");
    };
    let mut rules: BTreeMap<&str, usize> = BTreeMap::new();
    for decision in &record.decisions {
        *rules.entry(&decision.rule).or_default() += 1;
    }
    println!("{} observations", record.steps.len());
    for (rule, count) in rules {
        println!("{count:>4} x {rule}");
    }
    if let Some(last) = record.decisions.last() {
        println!("last: thread {} to {}", last.thread, last.target);
        for (metric, value) in &last.seen {
            println!("  {metric} = {value:.3}");
        }
    }
    Ok(())
}
