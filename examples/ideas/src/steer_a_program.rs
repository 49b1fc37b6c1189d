//! A program of this machine under a policy, and the record of the run.
//!
//! `steer` of this version, if it is there, undoes the policy's settings should this program be killed.

use std::path::Path;

use countersteer::report::record::Record;
use countersteer::session::live::{Live, Targets};
use countersteer::session::this_program;

pub fn main() -> anyhow::Result<()> {
    this_program::set_steer(Path::new("/usr/bin/steer"));
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("run.rec");
    let mut live = Live::new(Targets::Command(vec!["sleep".into(), "0.5".into()]));
    live.policy = "aarr".into();
    live.record = Some(file.clone());
    let done = live.run()?;
    println!("exit code {}", done.exit_code);
    let record = Record::load(&file)?;
    for program in &record.programs {
        println!("{} under {}", program.info.name, record.manifest.policy);
    }
    let time = record.end().as_secs_f64();
    println!("{} s at least: {}", 0.5, time >= 0.5);
    Ok(())
}
