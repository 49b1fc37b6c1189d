//! Where output goes: checked before hours of work, not after.

use std::path::Path;

use anyhow::Context;

use crate::error::{Kind, told};

/// Finds out whether a file can be written, without touching it.
pub fn check_writable(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    if path.is_dir() {
        return Err(told(
            Kind::Io,
            format!("cannot write {shown}: it is a folder; name a file in it"),
        ));
    }
    if path.exists() && !path.is_file() {
        return Ok(());
    }
    let parent = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let probe = parent.join(format!(".steer-probe-{}", std::process::id()));
    std::fs::File::create(&probe).with_context(|| format!("cannot write {shown}"))?;
    std::fs::remove_file(&probe).with_context(|| format!("cannot write {shown}"))
}
