//! The kernel's class of BPF schedulers, as sysfs shows it.
//!
//! Input: a root directory. Output: whether the kernel has it, and which scheduler is loaded.

use std::path::Path;

use crate::files;

/// `enabled`, `disabled`, or what the kernel does in between; nothing where it has no such class.
#[must_use]
pub fn state(root: &Path) -> Option<String> {
    files::text(&root.join("sys/kernel/sched_ext/state"))
}

/// Whether a scheduler has taken over.
#[must_use]
pub fn is_enabled(root: &Path) -> bool {
    state(root).is_some_and(|state| state == "enabled")
}

/// The name of the scheduler that is loaded.
#[must_use]
pub fn loaded(root: &Path) -> Option<String> {
    files::text(&root.join("sys/kernel/sched_ext/root/ops"))
}

#[cfg(test)]
mod tests {
    use countersteer_fuzz::fake_root::write;

    use super::*;

    #[test]
    fn a_scheduler_that_is_loaded_has_a_name() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!((state(root.path()), loaded(root.path())), (None, None));
        write(root.path(), &[("sys/kernel/sched_ext/state", "disabled\n")]);
        assert!(!is_enabled(root.path()));
        write(
            root.path(),
            &[
                ("sys/kernel/sched_ext/state", "enabled\n"),
                ("sys/kernel/sched_ext/root/ops", "scx_rusty\n"),
            ],
        );
        assert!(is_enabled(root.path()));
        assert_eq!(loaded(root.path()).as_deref(), Some("scx_rusty"));
    }
}
