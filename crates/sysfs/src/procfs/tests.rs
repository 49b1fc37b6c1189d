use countersteer_fuzz::fake_root::write;

use super::*;

const LINE: &str = "42 (a ) b) R 7 42 41 0 -1 4194304 1 0 0 0 30 12 0 0 20 5 3 0 99 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 0";

#[test]
fn files_of_a_folder_in_the_place_of_proc_are_read() {
    let root = tempfile::tempdir().unwrap();
    let status = "Name:\tsh\nTgid:\t42\nPPid:\t7\nUid:\t1000\t0\t0\t0\nVmSize:\t 9 kB\nCapEff:\t0000000000800000\n";
    for (file, text) in [
        ("42/comm", "a ) b\n"),
        ("42/status", status),
        ("42/cgroup", "1:x:/other\n0::/user.slice/a\n"),
        ("42/task/42/stat", LINE),
        ("42/task/42/children", "43 44 "),
        ("42/task/43/stat", &LINE.replace(") R ", ") Z ")),
        ("42/task/43/children", ""),
        ("42/stat", LINE),
        ("42/schedstat", "100 50 5\n"),
        ("43/stat", &LINE.replace(") R ", ") Z ")),
        ("loadavg", "0.5 0.4 0.3 2/345 9001\n"),
        (
            "pressure/cpu",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\n",
        ),
        (
            "stat",
            "cpu  3 0 0 9 9 0 0 0\ncpu0 1 0 0 9 9 0 0 0\ncpu1 2 0 0 9 9 0 0 0\nctxt 5\n",
        ),
        ("filesystems", "nodev\tresctrl\n\text4\n"),
        ("sys/kernel/random/boot_id", "c0ffee\n"),
        ("sys/kernel/empty", "\n"),
        ("self/comm", "not a number"),
        ("self/fdinfo/3", "pos:\t0\nmnt_id:\t15\n"),
    ] {
        write(root.path(), &[(&format!("proc/{file}"), text)]);
    }
    std::os::unix::fs::symlink("/bin/a", root.path().join("proc/42/exe")).unwrap();
    let proc = Procfs::below(root.path());
    assert_eq!(
        (proc.processes(), proc.threads(42)),
        (vec![42, 43], vec![42, 43])
    );
    assert_eq!(proc.name(42).as_deref(), Some("a ) b"));
    assert_eq!(proc.control_group(42).as_deref(), Some("/user.slice/a"));
    assert_eq!(
        (proc.thread_count(), proc.newest()),
        (Some(345), Some(9001))
    );
    assert_eq!(proc.boot_id(), "c0ffee");
    let status = proc.status(42).unwrap();
    assert_eq!((status.process, status.parent), (42, 7));
    assert_eq!(status.users, [1000, 0, 0, 0]);
    assert!(status.has_memory && status.capabilities == 1 << 23);
    assert_eq!(proc.stat(42, 42).map(|stat| stat.started), Some(99));
    assert_eq!(proc.stat(42, 43), None);
    assert!(!proc.has_exited(42) && proc.has_exited(43) && proc.has_exited(44));
    assert!(proc.has(42) && !proc.has(44));
    assert_eq!((proc.process_of(42), proc.process_of(44)), (Some(42), None));
    assert!(proc.threads(44).is_empty() && proc.name(44).is_none());
    assert_eq!(proc.children(42), [43, 44]);
    assert_eq!(proc.executable(42).as_deref(), Some(Path::new("/bin/a")));
    let stat = proc.process_stat(43).unwrap();
    assert!(stat.zombie && stat.ran_ticks == 42 && stat.threads == 3);
    assert_eq!(
        (proc.sums(42).unwrap().waited_ns, proc.sums(43)),
        (50, None)
    );
    assert_eq!(proc.pressure("cpu").unwrap().some_us, Some(12));
    assert_eq!(proc.busy_ticks(), [(CpuId(0), 1.0), (CpuId(1), 2.0)]);
    assert!(proc.knows_file_system("resctrl") && !proc.knows_file_system("nodev"));
    assert_eq!((proc.setting("empty"), proc.mount_of(3)), (None, Some(15)));
}

#[test]
fn what_has_exited_is_nothing_and_what_cannot_be_read_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    write(
        root.path(),
        &[("proc/7/status", "Name:\tsh\nTgid:\t7\nPPid:\t?\n")],
    );
    write(
        root.path(),
        &[("proc/7/task", "no folder"), ("proc/8/comm/x", "a folder")],
    );
    write(
        root.path(),
        &[("proc/pressure/io", "some total=1\nnonsense\n")],
    );
    let proc = Procfs::below(root.path());
    assert!(matches!(proc.status_of(9), Ok(None)));
    assert!(matches!(proc.name_of(9), Ok(None)));
    assert!(proc.threads_of(9).unwrap().is_empty());
    let status = proc.status_of(7).unwrap_err().to_string();
    assert!(
        status.ends_with(
            "proc/7/status:3: expected PPid, found `PPid:\t?`; report it with the kernel's version"
        ),
        "{status}"
    );
    assert!(
        proc.name_of(8)
            .unwrap_err()
            .to_string()
            .contains("proc/8/comm: ")
    );
    assert!(
        proc.threads_of(7)
            .unwrap_err()
            .to_string()
            .contains("proc/7/task: Not a dir")
    );
    assert!(
        proc.pressure("io")
            .unwrap_err()
            .to_string()
            .contains("pressure/io:2: expected")
    );
    assert_eq!((proc.status(7), proc.name(8)), (None, None));
}

#[test]
fn a_thread_finds_itself() {
    let (pid, tid) = (std::process::id(), nix::unistd::gettid().as_raw() as u32);
    let own = PROC.own_stat().unwrap();
    assert_eq!(
        Some(own.started),
        PROC.stat(pid, tid).map(|stat| stat.started)
    );
    assert_eq!(PROC.own_status().unwrap().own_number, Some(pid));
    assert_eq!(PROC.identity(tid), Some((tid, own.started)));
}
