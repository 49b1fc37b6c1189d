//! CPU lists in the kernel's notation.

use countersteer::model::cpuset::CpuSet;
use countersteer::model::units::CpuId;

pub fn main() -> anyhow::Result<()> {
    let mut allowed: CpuSet = "0-3,8".parse()?;
    let fast: CpuSet = "0-1,4-5".parse()?;
    println!("{} of {allowed} are fast", allowed.intersection(&fast));
    allowed.remove(CpuId(2));
    println!("without CPU 2: {allowed}, {} CPUs", allowed.len());
    match "3-1".parse::<CpuSet>() {
        Ok(set) => println!("{set}"),
        Err(error) => println!("{error}"),
    }
    Ok(())
}
