//! Two programs in one cache of 64 KiB: one sweeps, the other comes back to its lines. A mask of ways protects it.

use countersteer::cache::cache::Lookup;
use countersteer::cache::{Cache, Geometry, LineKey, Replacement};

/// Lines that the second program needs: half the cache.
const NEEDED: u64 = 512;

fn misses(masks: Option<[u64; 2]>) -> anyhow::Result<u64> {
    let mut cache = Cache::new(Geometry::of_bytes(65536.0, 16), Replacement::Lru)?;
    for (owner, mask) in (0..).zip(masks.into_iter().flatten()) {
        cache.set_mask(owner, mask);
    }
    let mut misses = 0;
    for round in 0..64 {
        for line in 0..NEEDED {
            let sweep = LineKey::new(0, round * 2 * NEEDED + 2 * line);
            let again = LineKey::new(1, line);
            // The sweep touches two lines for each line of the other program.
            for (key, counted) in [(sweep, false), (sweep.offset(1), false), (again, true)] {
                if cache.touch(key, false) == Lookup::Miss {
                    misses += u64::from(counted);
                    cache.fill(key, false, false);
                }
            }
        }
    }
    Ok(misses)
}

pub fn main() -> anyhow::Result<()> {
    let accesses = 64 * NEEDED;
    println!("{} of {accesses} accesses miss in the shared cache", misses(None)?);
    let divided = misses(Some([0x000f, 0xfff0]))?;
    println!("{divided} of {accesses} if the sweep has 4 of 16 ways");
    Ok(())
}
