//! Miss ratios of all cache sizes from one pass over the addresses, exact and from a sample of the lines.

use countersteer::cache::stack::Stack;

pub fn main() -> anyhow::Result<()> {
    let mut exact = Stack::new(1.0);
    let mut sampled = Stack::new(0.1);
    // A loop over 20,000 lines, in which each second access goes to a small set of 500 lines.
    for _ in 0..20 {
        for line in 0..20_000 {
            for line in [line, 1_000_000 + line % 500] {
                exact.touch(line);
                sampled.touch(line);
            }
        }
    }
    println!("{} accesses to {} lines", exact.accesses(), exact.footprint_lines());
    println!("lines   exact  1 of 10 lines");
    for lines in [256, 1_024, 4_096, 65_536] {
        println!(
            "{lines:>6}  {:.3}  {:.3}",
            exact.miss_ratio(lines),
            sampled.miss_ratio(lines)
        );
    }
    Ok(())
}
