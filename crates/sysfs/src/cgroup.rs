//! Control groups.
//!
//! Input: a control group's folder. Output: the processes in it, and the remedy if the kernel does not count its events.

use std::path::Path;

/// Returns the command that makes the kernel keep counters for a control group.
///
/// No file does this directly. The kernel's `perf_event` controller is enabled everywhere without being named in
/// `cgroup.subtree_control`. It is handed down from the root group only after the first write to the root's file. From then on,
/// all groups below have it, including new ones, even if the write is reverted.
pub fn remedy_without_counters(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.into());
    let is_group = |folder: &&Path| folder.join("cgroup.controllers").is_file();
    let top = path
        .ancestors()
        .take_while(is_group)
        .last()
        .unwrap_or(&path);
    let file = top.join("cgroup.subtree_control");
    let controllers = controllers(top).unwrap_or_default();
    let known = || controllers.split_whitespace();
    // The cheapest controller.
    match known()
        .find(|name| *name == "pids")
        .or_else(|| known().next())
    {
        Some(name) => format!(
            "that begins for all groups when the first controller is switched on at the top, and stays when it is switched off \
             again; as root: `echo +{name} > {}`",
            file.display()
        ),
        None => format!(
            "that begins when the first controller is switched on in {}, and there is none, since all are taken by version 1 of \
             control groups; boot with `cgroup_no_v1=all`, or count with -p",
            file.display()
        ),
    }
}

/// Returns the controllers of a control group, separated by blanks; `None` if the folder is no cgroup v2 group.
#[must_use]
pub fn controllers(folder: &Path) -> Option<String> {
    let text = std::fs::read_to_string(folder.join("cgroup.controllers")).ok()?;
    Some(text.trim().to_owned())
}

/// Returns the processes in a control group and in its descendants.
#[must_use]
pub fn members(folder: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let mut pids: Vec<u32> = text.lines().filter_map(|l| l.parse().ok()).collect();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            pids.extend(members(&entry.path()));
        }
    }
    pids
}

#[cfg(test)]
mod tests {
    use countersteer_fuzz::fake_root::write;

    use super::*;

    #[test]
    fn processes_are_those_of_the_groups_below_too() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[("cgroup.procs", "7\n8\n"), ("a/b/cgroup.procs", "9\n")],
        );
        assert_eq!(members(root.path()), [7, 8, 9]);
        assert!(members(&root.path().join("c")).is_empty());
        assert_eq!(controllers(root.path()), None);
        write(root.path(), &[("cgroup.controllers", "cpu io\n")]);
        assert_eq!(controllers(root.path()).as_deref(), Some("cpu io"));
    }

    #[test]
    fn a_control_group_without_counters_is_reported_with_what_to_write_at_the_top() {
        let root = tempfile::tempdir().unwrap();
        let top = root.path().canonicalize().unwrap().join("cgroup");
        let group = top.join("outer/inner");
        std::fs::create_dir_all(&group).unwrap();
        for (folder, controllers) in [
            (&top, "cpu io pids\n"),
            (&top.join("outer"), ""),
            (&group, ""),
        ] {
            std::fs::write(folder.join("cgroup.controllers"), controllers).unwrap();
        }
        let remedy = remedy_without_counters(&group);
        assert!(
            remedy.ends_with(&format!(
                "`echo +pids > {}/cgroup.subtree_control`",
                top.display()
            )),
            "{remedy}"
        );
        std::fs::write(top.join("cgroup.controllers"), "hugetlb\n").unwrap();
        assert!(remedy_without_counters(&group).contains("`echo +hugetlb > "));
        std::fs::write(top.join("cgroup.controllers"), "\n").unwrap();
        assert!(remedy_without_counters(&group).contains("cgroup_no_v1=all"));
    }
}
