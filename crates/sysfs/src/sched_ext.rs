//! The sched_ext class of the kernel (BPF schedulers), as sysfs shows it.
//!
//! Input: a root directory. Output: the state of the class, and the loaded scheduler.

use std::path::Path;

use crate::files;

/// Returns `enabled`, `disabled`, or a transitional state; `None` if the kernel has no such class.
#[must_use]
pub fn state(root: &Path) -> Option<String> {
    files::text(&root.join("sys/kernel/sched_ext/state"))
}

/// True if a scheduler is enabled.
#[must_use]
pub fn is_enabled(root: &Path) -> bool {
    state(root).is_some_and(|state| state == "enabled")
}

/// Returns the name of the loaded scheduler.
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
