use countersteer_fuzz::fake_root::write;

use super::testing::Pretend;
use super::*;

const MOUNT: &str = "sys/fs/resctrl";

/// Creates a machine with two caches of twelve ways and two memories.
fn machine() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("info/L3/cbm_mask", "fff\n"),
        ("info/L3/min_cbm_bits", "2\n"),
        ("info/L3/num_closids", "2\n"),
        ("info/MB/min_bandwidth", "10\n"),
        ("info/MB/bandwidth_gran", "20\n"),
        (
            "info/L3_MON/mon_features",
            "llc_occupancy\nmbm_total_bytes\n",
        ),
        ("info/L3_MON/num_rmids", "3\n"),
        ("schemata", "    MB:0=100;1= 100\n    L3:0=fff;1=0ff\n"),
        ("tasks", "1\n"),
        ("mon_groups/countersteer-4194305-0/tasks", ""),
        ("mon_groups/countersteer-1-0/tasks", ""),
        ("mon_groups/mine/tasks", ""),
        ("mine/tasks", "72\n73\n"),
    ] {
        put(root.path(), file, text);
    }
    write(root.path(), &[("proc/1/comm", "init")]);
    root
}

fn put(root: &Path, file: &str, text: &str) {
    write(root, &[(&format!("{MOUNT}/{file}"), text)]);
}

fn text(path: PathBuf) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn caches_and_memories_are_read_with_their_limits() {
    let root = machine();
    let resctrl = Resctrl::at(root.path());
    let allocation = resctrl.allocation().unwrap();
    assert_eq!((allocation.ways, allocation.least), (12, 2));
    assert_eq!(
        allocation.lines,
        [SchemataLine {
            resource: "L3".into(),
            domains: [(0, 0xfff), (1, 0xff)].into()
        }]
    );
    assert_eq!(
        [(0, 12), (0, 1), (10, 4), (3, 99)].map(|(f, c)| allocation.mask(f, c)),
        [0xfff, 0b11, 0xf00, 0xfff]
    );
    let bandwidth = resctrl.bandwidth().unwrap().unwrap();
    assert_eq!(
        [1, 30, 100, 200].map(|p| bandwidth.limit(p)),
        [20, 40, 100, 100]
    );
    assert_eq!(bandwidth.line.to_string(), "MB:0=100;1=100");
    put(root.path(), "schemata", "MB:0=2048;1=2048\nL3:0=fff\n");
    assert_eq!(resctrl.bandwidth().unwrap(), None, "not in percent");
    assert!(resctrl.monitors(|file| file == "mbm_total_bytes").is_ok());
    assert!(resctrl.monitors(|file| file == "mbm_local_bytes").is_err());
}

#[test]
fn code_and_data_may_have_lines_of_their_own() {
    let root = machine();
    put(root.path(), "schemata", "L3CODE:0=f\nL3DATA:0=f\n");
    put(root.path(), "info/L3CODE/cbm_mask", "f");
    put(root.path(), "info/L3CODE/min_cbm_bits", "1");
    let allocation = Resctrl::at(root.path()).allocation().unwrap();
    let resources: Vec<_> = allocation.lines.iter().map(|l| &*l.resource).collect();
    assert_eq!((allocation.ways, resources), (4, vec!["L3CODE", "L3DATA"]));
}

#[test]
fn errors_name_file_line_and_remedy() {
    let root = machine();
    let error = || {
        Resctrl::at(root.path())
            .allocation()
            .unwrap_err()
            .to_string()
    };
    put(root.path(), "schemata", "MB:0=100\nL3:0=fff;1=pink\n");
    assert!(
        error().contains("schemata:2: expected `RESOURCE:"),
        "{}",
        error()
    );
    assert!(
        error().contains("found `L3:0=fff;1=pink`; mount"),
        "{}",
        error()
    );
    put(root.path(), "schemata", "L3:0=fff\n");
    put(root.path(), "info/L3/cbm_mask", "all\n");
    assert!(error().contains("info/L3/cbm_mask:1: expected a way mask, found `all`"));
    std::fs::remove_file(root.path().join(MOUNT).join("info/L3/min_cbm_bits")).unwrap();
    put(root.path(), "info/L3/cbm_mask", "fff\n");
    assert!(
        error().contains("min_cbm_bits: No such file"),
        "{}",
        error()
    );
    assert!(error().contains("run as root"), "{}", error());
    put(root.path(), "schemata", "MB:0=100\n");
    assert!(error().contains("does not divide caches"), "{}", error());
}

#[test]
fn absent_unmounted_and_unable_are_distinguished() {
    let root = tempfile::tempdir().unwrap();
    let why = || Resctrl::at(root.path()).monitors(|_| true).unwrap_err().why;
    assert!(why().contains("no resctrl"));
    write(
        root.path(),
        &[("proc/filesystems", "nodev\tsysfs\nnodev\tresctrl\n")],
    );
    assert!(why().contains("not mounted"));
    put(root.path(), "info/L3/cbm_mask", "fff");
    assert!(why().contains("does not monitor"));
}

#[test]
fn groups_are_made_while_the_processor_distinguishes_more() {
    let root = machine();
    let mut resctrl = Resctrl::over(root.path(), Box::new(Pretend::new(1)));
    let group = resctrl.control_group("a");
    resctrl.make(&group).unwrap();
    assert!(resctrl.assign(&group, 70).unwrap() && resctrl.assign(&group, 71).unwrap());
    assert_eq!(
        (tasks(&group), resctrl.foreign_threads()),
        (vec![70, 71], vec![72, 73])
    );
    let line = SchemataLine::parse("L3:0=f;1=f0").unwrap();
    resctrl.set(&group, &[line.clone(), line.with(3)]).unwrap();
    assert_eq!(text(group.join("schemata")), "L3:0=f;1=f0\nL3:0=3;1=3\n");
    let full = resctrl
        .make(&resctrl.control_group("b"))
        .unwrap_err()
        .to_string();
    assert!(
        full.contains("resctrl: No space left") && full.contains("distinguishes 2:"),
        "{full}"
    );
    let full = resctrl
        .make(&resctrl.another_monitoring_group())
        .unwrap_err()
        .to_string();
    assert!(
        full.contains("mon_groups: No") && full.contains("distinguishes 3:"),
        "{full}"
    );
    put(
        root.path(),
        "info/last_cmd_status",
        "Mask f0f has non-consecutive 1-bits\n",
    );
    let refused = resctrl
        .set(Path::new("/nonexistent"), &[line])
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("`L3:0=f;1=f0`: Mask f0f has non-con"),
        "{refused}"
    );
    resctrl.remove(&group).unwrap();
    assert!(!group.exists() && resctrl.remove(&group).is_err());
}

#[test]
fn monitored_values_are_summed_over_the_caches_that_have_one() {
    let root = machine();
    let group = root.path().join(MOUNT).join("mon_groups/mine");
    let data = |cache, text| {
        let file = format!("mon_groups/mine/mon_data/{cache}/llc_occupancy");
        put(root.path(), &file, text);
        monitored(&group, "llc_occupancy")
    };
    assert_eq!(data("mon_L3_00", "Unavailable\n"), None);
    assert_eq!(data("mon_L3_01", "4096\n"), Some(4096));
    assert_eq!(data("mon_L3_00", "8192\n"), Some(12288));
    assert_eq!(monitored(&group, "mbm_total_bytes"), None);
}

#[test]
fn monitoring_groups_of_processes_that_are_gone_are_removed() {
    let root = machine();
    let kernel = Pretend::new(8);
    let mut resctrl = Resctrl::over(root.path(), Box::new(kernel.clone()));
    assert_eq!(resctrl.remove_stale(), 1);
    assert_eq!(*kernel.removed.lock().unwrap(), ["countersteer-4194305-0"]);
}

#[test]
fn no_line_makes_it_fall() {
    let examples: [&[u8]; 3] = [
        b"    L3:0=fff;1=0ff",
        b"MB:0=100;1= 50",
        b"L3CODE:0=fffff;2=fffff;4=1",
    ];
    countersteer_fuzz::storm("line of schemata", &examples, 1.0, |input| {
        if let Some(line) = SchemataLine::parse(&String::from_utf8_lossy(input)) {
            assert_eq!(SchemataLine::parse(&line.to_string()), Some(line));
        }
    });
}

#[test]
fn runs_of_one_process_have_different_groups() {
    let root = machine();
    let other = machine();
    let of = |root: &Path| Resctrl::over(root, Box::new(Pretend::new(9)));
    let mut first = of(root.path());
    let made = first.another_monitoring_group();
    first.make(&made).unwrap();
    std::fs::remove_dir_all(&made).unwrap();
    let second = of(root.path());
    assert_ne!(
        second.another_monitoring_group(),
        made,
        "it is never given again"
    );
    let left = second.another_control_group("share");
    assert!(left.ends_with(format!("{PREFIX}{}-share0", std::process::id())));
    let of_other = of(other.path()).another_control_group("share");
    assert_eq!(
        of_other.file_name(),
        left.file_name(),
        "another file system"
    );
}
