//! The behaviours of a recorded program and their order in time.

use countersteer::lab::library;
use countersteer::model::profile::Profile;

pub fn main() -> anyhow::Result<()> {
    let text = library::shipped_profile("xz").ok_or_else(|| library::no_profile("xz"))?;
    let Profile::Recorded(recorded) = Profile::parse(&text.path, &text.text)? else {
        anyhow::bail!("xz is no recording");
    };
    let all = recorded.instructions as f64;
    println!("{} million instructions", recorded.instructions / 1_000_000);
    for (row, behaviour) in recorded.behaviours.iter().enumerate() {
        let of = recorded
            .timeline
            .iter()
            .filter(|segment| segment.behaviour as usize == row);
        let share: f64 = of.map(|segment| segment.instructions as f64 / all).sum();
        println!(
            "behaviour {row}: {:.0} % of the run, {:.1} mispredicted branches per 1,000 instructions",
            100.0 * share,
            behaviour.branch_mpki
        );
    }
    println!("{} segments", recorded.timeline.len());
    Ok(())
}
