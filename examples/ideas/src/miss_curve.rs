//! Misses of shipped programs by the size of a cache, and the class that follows (CMPSched$im, section 3).

use countersteer::lab::library;
use countersteer::model::profile::Profile;
use countersteer::model::units::LINE_BYTES;

pub fn main() -> anyhow::Result<()> {
    println!("misses per 1,000 instructions by cache size");
    println!("program   256 KiB    1 MiB    4 MiB   16 MiB  class");
    for name in ["chase", "matmul", "stream", "gzip"] {
        let text = library::shipped_profile(name).ok_or_else(|| library::no_profile(name))?;
        let profile = Profile::parse(&text.path, &text.text)?;
        let Some(curve) = profile.miss_curve() else {
            continue;
        };
        print!("{name:<8}");
        for kib in [256, 1024, 4096, 16384] {
            let lines = (kib * 1024 / LINE_BYTES) as f64;
            print!(" {:>8.2}", curve.mpki(lines));
        }
        println!("  {:?}", curve.class());
    }
    Ok(())
}
