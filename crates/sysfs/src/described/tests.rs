use countersteer_model::topology::{GroupBy, Topology};

use super::*;

/// One P core with two threads, two E cores that share a second-level cache; one memory node with CPUs, one without.
const HYBRID: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" cpuset="0x0000000f">
    <info name="HostName" value="h"/>
    <object type="Package" os_index="0" cpuset="0x0000000f">
      <info name="CPUVendor" value="GenuineIntel"/>
      <info name="CPUFamilyNumber" value="6"/>
      <info name="CPUModelNumber" value="151"/>
      <info name="CPUModel" value="12th Gen Intel(R) Core(TM) i9-12900K"/>
      <object type="NUMANode" os_index="0" cpuset="0x0000000f"/>
      <object type="NUMANode" os_index="1" cpuset=""/>
      <object type="L3Cache" cpuset="0x0000000f" cache_size="31457280" depth="3" cache_linesize="64" cache_associativity="12" cache_type="0">
        <object type="L2Cache" cpuset="0x00000003" cache_size="1310720" depth="2" cache_linesize="64" cache_associativity="10" cache_type="0">
          <object type="L1Cache" cpuset="0x00000003" cache_size="49152" depth="1" cache_linesize="64" cache_associativity="12" cache_type="1">
            <object type="Core" cpuset="0x00000003"><object type="PU" os_index="0"/><object type="PU" os_index="1"/></object>
          </object>
        </object>
        <object type="L2Cache" cpuset="0x0000000c" cache_size="2097152" depth="2" cache_linesize="64" cache_associativity="16" cache_type="0">
          <object type="Core" cpuset="0x00000004"><object type="PU" os_index="2"/></object>
          <object type="Core" cpuset="0x00000008"><object type="PU" os_index="3"/></object>
        </object>
      </object>
    </object>
  </object>
  <cpukind cpuset="0x0000000c" forced_efficiency="0"><info name="CoreType" value="IntelAtom"/><info name="FrequencyMaxMHz" value="3900"/></cpukind>
  <cpukind cpuset="0x00000003" forced_efficiency="1"><info name="CoreType" value="IntelCore"/><info name="FrequencyMaxMHz" value="5100"/></cpukind>
</topology>"#;

fn counts(survey: &Survey) -> [usize; 5] {
    let topology = Topology::new(&survey.machine);
    let groups = |by| topology.groups_by(by).len();
    [
        survey.machine.cpu_count(),
        groups(GroupBy::Core),
        groups(GroupBy::CoreType),
        groups(GroupBy::Llc),
        groups(GroupBy::Node),
    ]
}

#[test]
fn a_hybrid_of_hwloc_has_its_core_types_caches_and_clocks() {
    let survey = machine("x.xml", HYBRID).unwrap();
    assert_eq!(counts(&survey), [4, 3, 2, 1, 1]);
    let mut clocks: Vec<f64> = survey
        .machine
        .core_type
        .iter()
        .map(|t| t.freq_ghz)
        .collect();
    clocks.sort_by(f64::total_cmp);
    assert_eq!(clocks, [3.9, 5.1]);
    let names: Vec<&str> = survey.machine.core_type.iter().map(|t| &*t.name).collect();
    assert!(
        names.contains(&"golden-cove") && names.contains(&"gracemont"),
        "{names:?}"
    );
    let source = &survey.machine.source;
    for part in [
        "XML of hwloc",
        "HostName",
        "memory node 1",
        "forced_efficiency",
    ] {
        assert!(source.contains(part), "{part}: {source}");
    }
}

#[test]
fn the_part_of_a_package_is_not_that_of_all_kinds_of_cpus() {
    let arm = |kinds: &str| {
        let pus: String = (0..4)
            .map(|n| format!("<object type=\"PU\" os_index=\"{n}\"/>"))
            .collect();
        let text = format!(
            "<topology><object type=\"Machine\" cpuset=\"0xf\"><info name=\"CPUImplementer\" value=\"0x41\"/>\
             <info name=\"CPUPart\" value=\"0xd87\"/>{pus}</object>{kinds}</topology>"
        );
        let machine = machine("x", &text).unwrap().machine;
        machine
            .core_type
            .into_iter()
            .map(|t| t.name)
            .collect::<Vec<_>>()
    };
    let kind = |cpus: &str, name: &str, value: &str| {
        format!("<cpukind cpuset=\"{cpus}\"><info name=\"{name}\" value=\"{value}\"/></cpukind>")
    };
    assert_eq!(arm(""), ["cortex-a725"]);
    let of_parts = arm(&(kind("0x3", "CPUPart", "0xd87") + &kind("0xc", "CPUPart", "0xd85")));
    assert_eq!(of_parts.len(), 2, "{of_parts:?}");
    assert!(of_parts.contains(&"cortex-x925".to_owned()), "{of_parts:?}");
    let capacity = |cpus: &str, value: &str| kind(cpus, "LinuxCapacity", value);
    let unknown = arm(&(capacity("0x3", "700") + &capacity("0xc", "1024")));
    assert!(
        !unknown.iter().any(|name| name.starts_with("cortex")),
        "{unknown:?}"
    );
}

/// Two sockets of two cores with two threads; siblings are half a node apart.
const LSCPU: &str = r#"{ "lscpu": [
    {"field": "Architecture:", "data": "x86_64", "children": [{"field": "Byte Order:", "data": "Little Endian"}]},
    {"field": "CPU(s):", "data": "8"}, {"field": "On-line CPU(s) list:", "data": "0-7"},
    {"field": "Vendor ID:", "data": "AuthenticAMD"}, {"field": "Model name:", "data": "AMD EPYC 7451 24-Core Processor"},
    {"field": "CPU family:", "data": "23"}, {"field": "Model:", "data": "1"},
    {"field": "Thread(s) per core:", "data": "2"}, {"field": "Core(s) per socket:", "data": "2"}, {"field": "Socket(s):", "data": "2"},
    {"field": "CPU max MHz:", "data": "2300.0000"}, {"field": "L1d cache:", "data": "128 KiB (4 instances)"},
    {"field": "L2 cache:", "data": "2 MiB (4 instances)"}, {"field": "L3 cache:", "data": "16 MiB (2 instances)"},
    {"field": "NUMA node0 CPU(s):", "data": "0,1,4,5"}, {"field": "NUMA node1 CPU(s):", "data": "2,3,6,7"},
    {"field": "Vulnerability L1tf:", "data": "Not affected"} ] }"#;

#[test]
fn counts_of_lscpu_give_cores_node_by_node() {
    let survey = machine("x.json", LSCPU).unwrap();
    assert_eq!(counts(&survey), [8, 4, 1, 2, 2]);
    let core_type = &survey.machine.core_type[0];
    assert_eq!((core_type.freq_ghz, core_type.l1d.size_kib), (2.3, 32.0));
    let topology = Topology::new(&survey.machine);
    let cores = topology.groups_by(GroupBy::Core);
    assert_eq!(cores[0].cpus.to_string(), "0,4");
    let llcs = topology.groups_by(GroupBy::Llc);
    assert_eq!(llcs[1].cpus.to_string(), "2-3,6-7");
    assert!(
        survey.remedies[0].contains("follow from the CPU numbers"),
        "{:?}",
        survey.remedies
    );
    assert!(
        survey.remedies[1].contains("Byte Order, Core(s) per socket, vulnerabilities"),
        "{:?}",
        survey.remedies
    );
}

#[test]
fn what_describes_no_machine_is_said() {
    let refused = |text: &str| machine("f", text).unwrap_err().to_string();
    assert!(refused("events: Ir\n").contains("kinds are XML of hwloc"));
    let broken = refused(&HYBRID.replace("</topology>", ""));
    assert!(broken.starts_with("f: "), "{broken}");
    let no_index = refused(&HYBRID.replace(
        "<object type=\"PU\" os_index=\"0\"/>",
        "<object type=\"PU\"/>",
    ));
    assert!(
        no_index.contains("line 16: this PU has no os_index of a CPU"),
        "{no_index}"
    );
    let hetero = LSCPU.replace(
        "{\"field\": \"CPU family:\", \"data\": \"23\"}",
        "{\"field\": \"Model name:\", \"data\": \"Other\"}",
    );
    assert!(refused(&hetero).contains("several core types"));
    assert!(refused("{\"cpus\": []}").contains("lscpu -J -e"));
    assert!(
        refused(&LSCPU.replace("(4 instances)", "(9 instances)")).contains("do not fit 4 cores")
    );
}

/// XML of hwloc with N CPUs, each with a core and two caches of its own, and one cache of all of them.
fn many(cpus: u32, title: &str) -> String {
    let set = |from: u32, to: u32| {
        let word = |nth: u32| {
            let bits = (32 * nth..32 * nth + 32).filter(|bit| (from..to).contains(bit));
            format!("0x{:x}", bits.map(|bit| 1_u32 << (bit % 32)).sum::<u32>())
        };
        let words: Vec<String> = (0..cpus.div_ceil(32)).rev().map(word).collect();
        words.join(",")
    };
    let cache = |level: u32, cpus: &str| {
        format!(
            "<object type=\"L{level}Cache\" cpuset=\"{cpus}\" cache_size=\"65536\" depth=\"{level}\" cache_linesize=\"64\" cache_type=\"0\"/>"
        )
    };
    let own = |cpu: u32| {
        let set = set(cpu, cpu + 1);
        let core = format!(
            "<object type=\"Core\" cpuset=\"{set}\"><object type=\"PU\" os_index=\"{cpu}\"/></object>"
        );
        cache(1, &set) + &cache(2, &set) + &core
    };
    let all = set(0, cpus);
    let parts: String = (0..cpus).map(own).collect();
    format!(
        "<topology><object type=\"Machine\" cpuset=\"{all}\"><info name=\"CPUModel\" value=\"{title}\"/>{}{parts}</object></topology>",
        cache(3, &all)
    )
}

#[test]
fn large_machines_are_described_in_little_space() {
    assert_eq!(
        counts(&machine("x", &many(1024, "large")).unwrap()),
        [1024, 1024, 1, 1, 1]
    );
    let described = hwloc::read(&many(256, &"n".repeat(10_000))).unwrap();
    let files = tree::files(&described).unwrap();
    let all: std::collections::BTreeSet<_> = files.values().map(std::rc::Rc::as_ptr).collect();
    assert!(
        all.len() < files.len(),
        "the list of the shared cache is there once"
    );
    let length: usize = files.values().map(|text| text.len()).sum();
    assert!(length < 50_000, "{length} bytes");
}

#[test]
fn a_cpu_with_very_many_caches_is_refused() {
    let cache = |n: u32| {
        format!("<object type=\"L1Cache\" cpuset=\"0x3\" depth=\"1\" cache_size=\"{n}\"/>")
    };
    let caches: String = (1..18).map(cache).collect();
    let text = HYBRID.replace(
        "<object type=\"NUMANode\" os_index=\"1\" cpuset=\"\"/>",
        &caches,
    );
    let refused = machine("f", &text).unwrap_err().to_string();
    assert_eq!(refused, "f: CPU 0 has more than 16 caches");
}

#[test]
fn no_description_makes_the_reader_panic() {
    for (name, example) in [("hwloc", HYBRID), ("lscpu", LSCPU)] {
        countersteer_fuzz::storm(name, &[example.as_bytes()], 0.05, |bytes| {
            let _ = machine("x", &String::from_utf8_lossy(bytes));
        });
    }
}
