//! Checks whether this machine can run the scheduler.

use std::path::Path;

use countersteer_sysfs::sched_ext;

/// Reason for which it cannot, in one line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoScx {
    /// The kernel was built without sched_ext.
    #[error(
        "this kernel has no sched_ext (CONFIG_SCHED_CLASS_EXT): there is no /sys/kernel/sched_ext"
    )]
    NoKernel,
    /// The kernel has no type information (BTF).
    #[error(
        "this kernel does not describe its types (CONFIG_DEBUG_INFO_BTF): there is no /sys/kernel/btf/vmlinux"
    )]
    NoBtf,
    #[error("the sched_ext scheduler `{0}` is loaded; end it first")]
    Occupied(String),
    #[error("loading a scheduler needs root (CAP_SYS_ADMIN)")]
    NoPrivilege,
}

/// Checks that the scheduler could be loaded on this machine.
///
/// # Errors
/// Returns the first missing requirement.
pub fn probe() -> Result<(), NoScx> {
    probe_under(Path::new("/"), is_root())
}

fn is_root() -> bool {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

fn probe_under(root: &Path, privileged: bool) -> Result<(), NoScx> {
    if !root.join("sys/kernel/sched_ext").is_dir() {
        return Err(NoScx::NoKernel);
    }
    if !root.join("sys/kernel/btf/vmlinux").exists() {
        return Err(NoScx::NoBtf);
    }
    if let Some(name) = sched_ext::loaded(root) {
        return Err(NoScx::Occupied(name));
    }
    if privileged {
        Ok(())
    } else {
        Err(NoScx::NoPrivilege)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_thing_that_is_missing_is_named() {
        let root = tempfile::tempdir().unwrap();
        let look = |privileged| probe_under(root.path(), privileged);
        assert_eq!(look(true), Err(NoScx::NoKernel));
        std::fs::create_dir_all(root.path().join("sys/kernel/sched_ext/root")).unwrap();
        assert_eq!(look(true), Err(NoScx::NoBtf));
        std::fs::create_dir_all(root.path().join("sys/kernel/btf")).unwrap();
        std::fs::write(root.path().join("sys/kernel/btf/vmlinux"), "").unwrap();
        assert_eq!(look(false), Err(NoScx::NoPrivilege));
        assert_eq!(look(true), Ok(()));
        std::fs::write(root.path().join("sys/kernel/sched_ext/root/ops"), "other\n").unwrap();
        assert_eq!(look(true), Err(NoScx::Occupied("other".into())));
    }
}
