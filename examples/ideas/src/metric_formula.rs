//! A metric as a formula over counted events. Its unit is checked before anything is counted.

use countersteer::model::counters::{Dimension, Formula};

pub fn main() -> anyhow::Result<()> {
    let mpki = Formula::parse("1000 * llc_misses / instructions")?;
    let mut stack = Vec::new();
    // Values are in the order in which the formula names its variables.
    for (misses, instructions) in [(Some(1.2e6), Some(4e8)), (None, Some(4e8))] {
        match mpki.evaluate(&[misses, instructions], &mut stack) {
            Some(value) => println!("{} = {value}", mpki.text()),
            None => println!("{}: not counted", mpki.text()),
        }
    }
    let wrong = Formula::parse("instructions + seconds")?;
    match wrong.dimension(&[Dimension::EVENTS, Dimension::SECONDS]) {
        Ok(dimension) => println!("{dimension}"),
        Err(error) => println!("{}: {error}", wrong.text()),
    }
    Ok(())
}
