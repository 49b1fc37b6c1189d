//! Findings and remedies on synthetic machines.

use super::*;

fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    root
}

#[test]
fn everything_that_does_not_work_has_a_remedy() {
    let empty = tempfile::tempdir().unwrap();
    for root in [Path::new("/"), empty.path()] {
        for (name, _, finding) in examine(root) {
            assert_eq!(
                finding.state == FindingState::Works,
                finding.remedy.is_empty(),
                "{name}: {finding:?}"
            );
            assert!(!finding.found.is_empty(), "{name}");
        }
    }
}

#[test]
fn only_files_are_asked_of_another_root() {
    let empty = tempfile::tempdir().unwrap();
    let names: Vec<&str> = examine(empty.path())
        .into_iter()
        .map(|(name, ..)| name)
        .collect();
    assert!(
        names.contains(&"sched_ext") && !names.contains(&"counting"),
        "{names:?}"
    );
}

#[test]
fn counting_by_bpf_takes_a_kernel_that_does_it_its_own_numbers_and_permission() {
    let knob = ("proc/sys/kernel/unprivileged_bpf_disabled", "2");
    let found = |bits: &str, namespace: &str| {
        let status = format!("Tgid:\t7\nPPid:\t1\n{bits}");
        let root = root(&[knob, ("proc/self/status", &status)]);
        std::fs::create_dir_all(root.path().join("proc/self/ns")).unwrap();
        std::os::unix::fs::symlink(namespace, root.path().join("proc/self/ns/pid")).unwrap();
        counting_by_bpf(root.path()).found
    };
    assert!(
        counting_by_bpf(root(&[]).path())
            .found
            .contains("supports no BPF programs")
    );
    let all = "CapEff:\t000001ffffffffff\n";
    let perfmon = "CapEff:\t0000004000000000\n";
    let outermost = "pid:[4026531836]";
    assert!(found(all, "pid:[4026532200]").contains("container"));
    assert!(found(perfmon, outermost).contains("not permitted"));
    assert!(found("CapEff:\t000000c000000000\n", outermost).contains("may be loaded"));
    assert!(found(all, outermost).contains("may be loaded"));
}

#[test]
fn sched_ext_tells_absent_taken_and_forbidden_apart() {
    let state = ("sys/kernel/sched_ext/state", "enabled\n");
    let btf = ("sys/kernel/btf/vmlinux", "x");
    let finding = |files: &[(&str, &str)]| sched_ext(root(files).path());
    assert!(
        finding(&[("proc/sys/kernel/osrelease", "6.1.0-9")])
            .found
            .contains("6.1.0-9")
    );
    assert!(finding(&[state]).found.contains("type information"));
    let ops = ["sys/kernel/sched_ext", "root", "ops"].join("/");
    let taken = finding(&[state, btf, (&ops, "scx_rusty")]);
    assert!(taken.found.contains("scx_rusty") && taken.state == FindingState::Limited);
    let off = ("sys/kernel/sched_ext/state", "disabled");
    let caps = |bits: &str| {
        let status = format!("Name:\tx\nTgid:\t7\nPPid:\t1\nCapEff:\t{bits}\n");
        finding(&[off, btf, ("proc/self/status", &status)]).state
    };
    assert_eq!(caps("0000000000000000"), FindingState::Limited);
    assert_eq!(caps("000001ffffffffff"), FindingState::Works);
}

#[test]
fn way_masks_tell_mounted_unmounted_and_absent_apart() {
    let of = |files: &[(&str, &str)]| way_masks(root(files).path());
    assert!(
        of(&[
            ("sys/fs/resctrl/info/L3/cbm_mask", "fffff\n"),
            ("sys/fs/resctrl/info/L3/min_cbm_bits", "1\n"),
            ("sys/fs/resctrl/schemata", "L3:0=fffff\n"),
        ])
        .found
        .contains("20 ways")
    );
    assert!(
        of(&[("sys/fs/resctrl/info/L3_MON/mon_features", "x")])
            .found
            .contains("does not divide")
    );
    assert!(
        of(&[("proc/filesystems", "nodev\tresctrl\n")])
            .remedy
            .contains("mount -t resctrl")
    );
    assert!(of(&[]).remedy.contains("--by co-runners"));
}

#[test]
fn a_counter_that_the_watchdog_holds_is_reported() {
    let on = nmi_watchdog(root(&[("proc/sys/kernel/nmi_watchdog", "1\n")]).path());
    assert!(on.remedy.contains("nmi_watchdog=0"));
    assert_eq!(
        nmi_watchdog(root(&[("proc/sys/kernel/nmi_watchdog", "0\n")]).path()).state,
        FindingState::Works
    );
}
