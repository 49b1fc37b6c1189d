//! Detection of machines from files that are missing, contradictory, or written by older kernels.
//!
//! Unknown facts separate no types, assumptions are reported, and no machine is rejected.

#![allow(clippy::unwrap_used, clippy::panic)] // a test helper that fails has failed its test

use std::path::{Path, PathBuf};

use countersteer_fuzz::fake_root::{files_below, unpack};
use countersteer_model::cpuset::CpuSet;
use countersteer_model::machine::Machine;
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_sysfs::topology::{Survey, survey};

fn surveyed(tree: &str) -> Survey {
    survey(unpack(tree).path()).unwrap_or_else(|e| panic!("{e}\n{tree}"))
}

fn machine(tree: &str) -> Machine {
    surveyed(tree).machine
}

/// Returns the core types with their CPUs, fastest first.
fn types(machine: &Machine) -> String {
    let of = |(name, cpus): (String, String)| format!("{name} {cpus}");
    let groups = groups(machine, GroupBy::CoreType).into_iter().map(of);
    groups.collect::<Vec<_>>().join("; ")
}

fn groups(machine: &Machine, by: GroupBy) -> Vec<(String, String)> {
    let topology = Topology::new(machine);
    let groups = topology.groups_by(by).iter();
    groups
        .map(|g| (g.name.clone(), g.cpus.to_string()))
        .collect()
}

fn sets(machine: &Machine, by: GroupBy) -> Vec<String> {
    groups(machine, by).into_iter().map(|g| g.1).collect()
}

const CPU: &str = "sys/devices/system/cpu";

#[test]
fn a_clock_or_part_known_of_one_cpu_sets_none_apart() {
    // Kernels before 3.10 print the part of all CPUs once, at the end; BogoMIPS of idle cores differ.
    let old_arm = "proc/cpuinfo: processor : 0\\nBogoMIPS : 0.48\\n\\nprocessor : 1\\nBogoMIPS : 1694.10\\n\\n\
                   Features : neon\\nCPU implementer : 0x41\\nCPU part : 0xc0f\n\
                   sys/devices/system/cpu/online: 0-1\n\
                   sys/devices/system/cpu/cpu{0-1}/topology/thread_siblings_list: {1}\n";
    let both = format!("{old_arm}{CPU}/cpu{{0-1}}/cpufreq/cpuinfo_max_freq: 1700000\n");
    for (tree, ghz) in [
        (both, 1.7),
        (
            format!("{old_arm}{CPU}/cpu0/cpufreq/cpuinfo_max_freq: 800000\n"),
            0.8,
        ),
        (
            format!("{old_arm}{CPU}/cpu1/cpufreq/cpuinfo_max_freq: 800000\n"),
            0.8,
        ),
        (format!("{old_arm}{CPU}/cpu1/cpu_capacity: 600\n"), 2.0),
    ] {
        let machine = machine(&tree);
        assert_eq!(types(&machine), "generic 0-1", "{tree}");
        assert_eq!(machine.core_type[0].freq_ghz, ghz, "{tree}");
        assert_eq!(machine.core_type[0].why, None, "nothing sets it apart");
    }
}

#[test]
fn clocks_of_different_files_are_not_compared() {
    let tree = "sys/devices/system/cpu/online: 0-3\n\
                sys/devices/system/cpu/cpu{0-3}/topology/thread_siblings_list: {1}\n\
                sys/devices/system/cpu/cpu{0-2}/cpufreq/cpuinfo_max_freq: 4700000\n\
                sys/devices/system/cpu/cpu{0-3}/cpufreq/base_frequency: 2800000\n";
    let machine = machine(tree);
    assert_eq!(types(&machine), "generic 0-3");
    assert_eq!(machine.core_type[0].freq_ghz, 4.7);
}

#[test]
fn the_evidence_for_a_second_type_is_named() {
    let clocks = "sys/devices/system/cpu/online: 0-3\n\
                  sys/devices/system/cpu/cpu{0-3}/topology/thread_siblings_list: {1}\n\
                  sys/devices/system/cpu/cpu{0-1}/cpufreq/cpuinfo_max_freq: 3000000\n\
                  sys/devices/system/cpu/cpu{2-3}/cpufreq/cpuinfo_max_freq: 2000000\n";
    let machine = machine(clocks);
    assert_eq!(types(&machine), "generic 0-1; generic-2000mhz 2-3");
    let why: Vec<_> = machine.core_type.iter().map(|t| t.why.clone()).collect();
    assert_eq!(
        why,
        [Some("clock of 3 GHz".into()), Some("clock of 2 GHz".into())]
    );
}

/// Eight equal cores, some of which lack cache folders.
#[test]
fn a_cache_folder_that_is_missing_makes_no_type() {
    let tree = "proc/cpuinfo: processor : 0\\nvendor_id : GenuineIntel\\ncpu family : 6\\nmodel : 15\\n\
                model name : Intel(R) Xeon(R) CPU E5345 @ 2.33GHz\\ncpu MHz : 1998.0\n\
                sys/devices/system/cpu/online: 0-7\n\
                sys/devices/system/cpu/cpu{0-7}/topology/thread_siblings_list: {1}\n\
                sys/devices/system/cpu/cpu{0,3,4,6,7}/cache/index{0-1}/level: 1\n\
                sys/devices/system/cpu/cpu{0,3,4,6,7}/cache/index0/type: Data\n\
                sys/devices/system/cpu/cpu{0,3,4,6,7}/cache/index1/type: Instruction\n\
                sys/devices/system/cpu/cpu{0,3,4,6,7}/cache/index{0-1}/size: 32K\n\
                sys/devices/system/cpu/cpu{0,3,4,6,7}/cache/index{0-1}/shared_cpu_list: {1}\n\
                sys/devices/system/cpu/cpu{1-3,5-7}/cache/index2/level: 2\n\
                sys/devices/system/cpu/cpu{1-3,5-7}/cache/index2/type: Unified\n\
                sys/devices/system/cpu/cpu{1-3,5-7}/cache/index2/size: 4096K\n\
                sys/devices/system/cpu/cpu{1,5}/cache/index2/shared_cpu_list: 1,5\n\
                sys/devices/system/cpu/cpu{2,6}/cache/index2/shared_cpu_list: 2,6\n\
                sys/devices/system/cpu/cpu{3,7}/cache/index2/shared_cpu_list: 3,7\n";
    let Survey { machine, remedies } = surveyed(tree);
    assert_eq!(types(&machine), "conroe 0-7");
    assert_eq!(sets(&machine, GroupBy::Llc), ["0,4", "1,5", "2,6", "3,7"]);
    assert_eq!(machine.core_type[0].freq_ghz, 2.33);
    assert_eq!(
        remedies,
        [
            "No file has level-2 caches of some CPUs, as others of their type have them: assumed: CPUs 0,4."
        ]
    );
}

#[test]
fn an_idle_clock_is_not_the_highest() {
    let tree = |name: &str, bogomips: &str| {
        format!(
            "proc/cpuinfo: processor : 0\\nvendor_id : GenuineIntel\\ncpu family : 6\\nmodel : 85\\n\
             model name : {name}\\ncpu MHz : 799.914{bogomips}\n\
             {CPU}/online: 0\n{CPU}/cpu0/topology/thread_siblings_list: 0\n"
        )
    };
    let named = machine(&tree("Intel(R) Xeon(R) Silver 4108 CPU @ 1.80GHz", ""));
    assert_eq!(named.core_type[0].freq_ghz, 1.8);
    assert!(
        named
            .source
            .contains("the nominal one in the processor's name")
    );
    let counted = machine(&tree("Test CPU", "\\nbogomips : 4200.00"));
    assert_eq!(counted.core_type[0].freq_ghz, 2.1);
    assert!(counted.source.contains("the nominal one, half of BogoMIPS"));
    let unknown = machine(&tree("Test CPU", ""));
    assert!(unknown.source.contains("the one here is a guess"));
}

#[test]
fn without_a_list_of_online_cpus_those_with_a_topology_are() {
    let tree = "sys/devices/system/cpu/cpu{0-3,8}/topology/core_id: {1}\n\
                sys/devices/system/cpu/cpu9/crash_notes: x\n";
    let Survey { machine, remedies } = surveyed(tree);
    assert_eq!(machine.os_cpus.unwrap().to_string(), "0-3,8");
    assert!(
        remedies[0].contains("sys/devices/system/cpu/online"),
        "{remedies:?}"
    );
}

#[test]
fn a_container_without_sysfs_has_the_cpus_of_proc() {
    let stat = "proc/stat: cpu 1 2 3\\ncpu0 1 2 3\\ncpu1 1 2 3\\nintr 5\n";
    let cpuinfo =
        "proc/cpuinfo: processor : 0\\nmodel name : X\\n\\nprocessor : 1\\nmodel name : X\n";
    for tree in [stat, cpuinfo] {
        let machine = machine(tree);
        assert_eq!(types(&machine), "generic 0-1", "{tree}");
        assert_eq!(
            sets(&machine, GroupBy::Llc),
            ["0-1"],
            "no LLC a core: {tree}"
        );
    }
}

#[test]
fn without_cache_folders_each_socket_has_one_last_level_cache() {
    let tree = "sys/devices/system/cpu/online: 0-7\n\
                sys/devices/system/cpu/cpu{0-7}/topology/thread_siblings_list: {1}\n\
                sys/devices/system/cpu/cpu{0-3}/topology/physical_package_id: 0\n\
                sys/devices/system/cpu/cpu{4-7}/topology/physical_package_id: 1\n";
    let Survey { machine, remedies } = surveyed(tree);
    assert_eq!(sets(&machine, GroupBy::Llc), ["0-3", "4-7"]);
    assert_eq!(remedies.len(), 1, "{remedies:?}");
}

/// Kernels before 2.6.27 have only masks, and POWER kernels have no list of the CPUs that share a cache. POWER9's CPU numbers
/// have gaps; eight CPUs share a cache, four are a core.
#[test]
fn masks_do_where_there_are_no_lists() {
    let tree = "proc/cpuinfo: processor : 0\\ncpu : POWER9, altivec supported\\nclock : 3450.000000MHz\n\
                sys/devices/system/cpu/online: 0-7,88-95\n\
                sys/devices/system/cpu/cpu{0-3}/topology/thread_siblings: 00000000,00000000,0000000f\n\
                sys/devices/system/cpu/cpu{4-7}/topology/thread_siblings: 00000000,00000000,000000f0\n\
                sys/devices/system/cpu/cpu{88-91}/topology/thread_siblings: 0f000000,00000000,00000000\n\
                sys/devices/system/cpu/cpu{92-95}/topology/thread_siblings: f0000000,00000000,00000000\n\
                sys/devices/system/cpu/cpu{0-7,88-95}/cache/index2/level: 2\n\
                sys/devices/system/cpu/cpu{0-7,88-95}/cache/index2/type: Unified\n\
                sys/devices/system/cpu/cpu{0-7,88-95}/cache/index2/size: 512K\n\
                sys/devices/system/cpu/cpu{0-7}/cache/index2/shared_cpu_map: 00000000,00000000,000000ff\n\
                sys/devices/system/cpu/cpu{88-95}/cache/index2/shared_cpu_map: ff000000,00000000,00000000\n\
                sys/devices/system/node/node0/cpumap: 00000000,00000000,000000ff\n\
                sys/devices/system/node/node8/cpumap: ff000000,00000000,00000000\n";
    let Survey { machine, remedies } = surveyed(tree);
    assert_eq!(
        sets(&machine, GroupBy::Core),
        ["0-3", "4-7", "8-11", "12-15"]
    );
    assert_eq!(sets(&machine, GroupBy::Llc), ["0-7", "8-15"]);
    assert_eq!(sets(&machine, GroupBy::Node), ["0-7", "8-15"]);
    assert_eq!(machine.os_cpus.unwrap().to_string(), "0-7,88-95");
    assert_eq!(remedies, [""; 0]);
}

#[test]
fn memory_nodes_that_share_cpus_are_one() {
    let tree = "sys/devices/system/cpu/online: 0-3\n\
                sys/devices/system/cpu/cpu{0-3}/topology/thread_siblings_list: {1}\n\
                sys/devices/system/node/node{0-2}/cpulist: 0-1\n\
                sys/devices/system/node/node3/cpulist: 2-3\n";
    let Survey { machine, remedies } = surveyed(tree);
    assert_eq!(sets(&machine, GroupBy::Node), ["0-1", "2-3"]);
    let remedy = "Memory nodes share CPUs or cut cores, and are taken for one: CPUs 0-1.";
    assert!(remedies.contains(&remedy.into()), "{remedies:?}");
    assert!(machine.source.contains(remedy), "{}", machine.source);
}

#[test]
fn cpus_that_no_memory_node_lists_are_named() {
    let tree = |nodes: &str| {
        format!(
            "{CPU}/online: 0-3\n\
             {CPU}/cpu{{0-3}}/topology/thread_siblings_list: {{1}}\n{nodes}"
        )
    };
    let part = tree("sys/devices/system/node/node0/cpulist: 0-1\n");
    let Survey { machine, remedies } = surveyed(&part);
    assert_eq!(sets(&machine, GroupBy::Node), ["0-1", "2-3"]);
    let remedy =
        "No memory node lists some CPUs, which are taken for a node of their own: CPUs 2-3.";
    assert!(remedies.contains(&remedy.into()), "{remedies:?}");
    for whole in ["", "sys/devices/system/node/node0/cpulist: 0-3\n"] {
        let Survey { machine, remedies } = surveyed(&tree(whole));
        assert_eq!(sets(&machine, GroupBy::Node), ["0-3"]);
        let named = remedies.iter().any(|text| text.contains("memory node"));
        assert!(!named, "{remedies:?}");
    }
}

#[test]
fn what_most_cpus_say_goes_before_what_one_says() {
    let lake = std::fs::read_to_string(cases().join("lunar-lake/tree.txt")).unwrap();
    let sound = machine(&lake);
    for (file, wrong) in [
        ("cpu0/cache/index3/shared_cpu_list", "0-4"),
        ("cpu0/cache/index3/shared_cpu_list", "0..1"),
        ("cpu5/cache/index2/shared_cpu_list", "4-5"),
        ("cpu5/cache/index2/shared_cpu_list", "0-3"),
        ("cpu1/topology/core_cpus_list", "0-1"),
    ] {
        let Survey { machine, remedies } = surveyed(&format!("{lake}\n{CPU}/{file}: {wrong}\n"));
        assert_eq!(types(&machine), types(&sound), "{file}");
        assert_eq!(machine.cache, sound.cache, "{file}");
        assert_eq!(machine.cores, sound.cores, "{file}");
        assert_eq!(remedies.len(), 1, "{file}: {remedies:?}");
    }
}

#[test]
fn siblings_that_no_machine_file_has_are_cores_of_their_own() {
    let odd = "sys/devices/system/cpu/online: 0-3\n\
               sys/devices/system/cpu/cpu{0,1,3}/topology/core_cpus_list: 0-1,3";
    let Survey { machine, remedies } = surveyed(odd);
    assert_eq!(sets(&machine, GroupBy::Core), ["0", "1", "2", "3"]);
    assert!(remedies[0].contains("CPUs 0-1,3"), "{remedies:?}");
}

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sysfs")
}

/// More files are deleted only in fuzzing mode: each deletion reads all remaining files.
const FILES: usize = 450;

/// Returns the files to delete one at a time: of each kind those of the first and the last CPU, or all in fuzzing mode.
fn deletable(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    files_below(root, &mut files);
    if std::env::var_os("COUNTERSTEER_FUZZ").is_some() {
        return files;
    }
    if files.len() > FILES {
        return Vec::new();
    }
    let kind = |path: &PathBuf| -> String {
        let path = path.to_string_lossy().into_owned();
        match path.split_once("/cpu/cpu") {
            Some((_, file)) => file.trim_start_matches(|c: char| c.is_ascii_digit()).into(),
            None => path,
        }
    };
    files.sort_by_cached_key(|path| (kind(path), path.as_os_str().len(), path.clone()));
    let ends = files.chunk_by(|a, b| kind(a) == kind(b));
    let ends = ends.flat_map(|of_kind| [of_kind[0].clone(), of_kind[of_kind.len() - 1].clone()]);
    let mut ends: Vec<PathBuf> = ends.collect();
    ends.dedup();
    ends
}

/// Asserts that CPUs of one type, last-level cache or memory node remain together. Machines without the list of online CPUs may
/// have other CPUs and are not compared.
fn assert_tells_no_more_apart(thin: &Machine, whole: &Machine, what: &str) {
    let same =
        (&thin.cores, &thin.cache, &thin.memory) == (&whole.cores, &whole.cache, &whole.memory);
    if same || thin.os_cpu_numbers() != whole.os_cpu_numbers() {
        return;
    }
    for by in [GroupBy::CoreType, GroupBy::Llc, GroupBy::Node] {
        let of = |machine: &Machine| -> Vec<CpuSet> {
            let sets = sets(machine, by).into_iter();
            sets.map(|set| set.parse().unwrap()).collect()
        };
        let thins = of(thin);
        let kept = |set: &CpuSet| thins.iter().any(|thin| set.is_subset(thin));
        let split = of(whole).into_iter().find(|set| !kept(set));
        assert_eq!(split, None, "{what}: {by:?}: {:?}", sets(thin, by));
    }
}

/// Returns the cases with their trees, in order.
fn trees() -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(cases()).unwrap();
    let mut cases: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    let tree = |case: PathBuf| {
        let tree = std::fs::read_to_string(case.join("tree.txt")).unwrap();
        (case, tree)
    };
    cases.into_iter().map(tree).collect()
}

#[test]
fn a_file_less_refuses_no_machine_and_tells_no_more_apart() {
    for (case, tree) in trees() {
        let root = unpack(&tree);
        let whole = survey(root.path()).unwrap().machine;
        for file in deletable(root.path()) {
            let content = std::fs::read(&file).unwrap();
            std::fs::remove_file(&file).unwrap();
            let thin = survey(root.path());
            std::fs::write(&file, content).unwrap();
            let what = format!("{} without {}", case.display(), file.display());
            let thin = thin.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_tells_no_more_apart(&thin.machine, &whole, &what);
        }
    }
}

/// Containers and old kernels hide whole folders of some CPUs.
#[test]
fn caches_known_of_few_cpus_are_no_more_caches() {
    for (case, tree) in trees() {
        let root = unpack(&tree);
        let whole = survey(root.path()).unwrap().machine;
        let online: Vec<u32> = whole.os_cpu_numbers().iter().map(|cpu| cpu.0).collect();
        let [first, last] = [online[0], online[online.len() - 1]];
        let hidden: [(&str, &dyn Fn(u32) -> bool); 5] = [
            ("only the first CPU's", &|cpu| cpu != first),
            ("only the last CPU's", &|cpu| cpu != last),
            ("no first CPU's", &|cpu| cpu == first),
            ("no second half's", &|cpu| cpu >= online[online.len() / 2]),
            ("every third CPU's", &|cpu| cpu % 3 != 0),
        ];
        for (kept, hides) in hidden {
            let root = unpack(&tree);
            for cpu in online.iter().filter(|cpu| hides(**cpu)) {
                let folder = root.path().join(format!("{CPU}/cpu{cpu}/cache"));
                let _ = std::fs::remove_dir_all(folder);
            }
            let what = format!("{} with {kept} caches", case.display());
            let thin = survey(root.path()).unwrap_or_else(|e| panic!("{what}: {e}"));
            let [thins, wholes] = [&thin.machine, &whole].map(|m| sets(m, GroupBy::Llc));
            assert!(
                thins.len() <= wholes.len(),
                "{what}: {thins:?}, and {wholes:?} with all"
            );
        }
    }
}

/// One CPU's folder describes all, in any position, and nothing contradicts it.
#[test]
fn one_cpus_cache_folder_does_for_all_that_share_it() {
    for cpu in 0..8 {
        let tree = format!(
            "{CPU}/online: 0-7\n\
             {CPU}/cpu{{0-7}}/topology/thread_siblings_list: {{1}}\n\
             {CPU}/cpu{cpu}/cache/index3/level: 3\n\
             {CPU}/cpu{cpu}/cache/index3/type: Unified\n\
             {CPU}/cpu{cpu}/cache/index3/size: 8192K\n\
             {CPU}/cpu{cpu}/cache/index3/shared_cpu_list: 0-7\n"
        );
        let Survey { machine, remedies } = surveyed(&tree);
        assert_eq!(sets(&machine, GroupBy::Llc), ["0-7"], "{tree}");
        let contradict = remedies.iter().find(|text| text.contains("contradict"));
        assert_eq!(contradict, None, "{tree}");
    }
}

#[test]
fn a_cpu_without_a_cache_folder_shares_the_cache_whose_sharing_no_file_tells() {
    let tree = format!(
        "{CPU}/online: 0-7\n\
         {CPU}/cpu{{0-7}}/topology/thread_siblings_list: {{1}}\n\
         {CPU}/cpu{{0-3}}/topology/physical_package_id: 0\n\
         {CPU}/cpu{{4-7}}/topology/physical_package_id: 1\n\
         {CPU}/cpu{{1,3-5,7}}/cache/index3/level: 3\n\
         {CPU}/cpu{{1,3-5,7}}/cache/index3/type: Unified\n\
         {CPU}/cpu{{1,3-5,7}}/cache/index3/size: 8192K\n\
         {CPU}/cpu{{1,3-5,7}}/cache/index3/shared_cpu_map: 00\n"
    );
    let Survey { machine, remedies } = surveyed(&tree);
    assert_eq!(sets(&machine, GroupBy::Llc), ["0-3", "4-7"]);
    let assumed = remedies.iter().any(|text| text.contains("CPUs 0,2,6"));
    assert!(assumed, "{remedies:?}");
}
