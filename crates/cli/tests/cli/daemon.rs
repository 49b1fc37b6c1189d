//! A daemon that steers by rules.

use super::*;

#[test]
fn a_daemon_steers_by_rules_and_answers_until_it_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let name = format!("t{}", std::process::id());
    let rules = format!("schema = \"countersteer.rules/1\"\n[[steer]]\nname = \"{name}\"\n");
    std::fs::write(dir.path().join("rules.toml"), rules).unwrap();
    let mut daemon = steered(&["daemon", "--rules", "rules.toml"], dir.path())
        .spawn()
        .unwrap();
    let program = dir.path().join(&name);
    // Another process writes the file and exits. A child of another test could otherwise hold it open for writing, which prevents
    // its execution.
    let copied = Command::new("cp").arg("/bin/sleep").arg(&program).status();
    assert!(copied.unwrap().success());
    let mut sleeper = Command::new(&program).arg("60").spawn().unwrap();
    let ask = |args: &[&str]| steered(args, dir.path()).output().unwrap();
    let mut seen = false;
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        seen = text(&ask(&["ctl", "status"]).stdout).contains(&format!("{name}#{}", sleeper.id()));
        if seen {
            break;
        }
    }
    assert!(seen, "{}", text(&ask(&["ctl", "status"]).stderr));
    assert!(ask(&["ctl", "set", "policy=aarr"]).status.success());
    assert_eq!(ask(&["ctl", "set", "policy=nix"]).status.code(), Some(2));
    nix_kill(daemon.id());
    assert!(daemon.wait().unwrap().success());
    assert!(
        sleeper.try_wait().unwrap().is_none(),
        "who was steered runs on"
    );
    let _ = sleeper.kill();
    let _ = sleeper.wait();
    assert_eq!(
        std::fs::read_dir(dir.path().join("runtime"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn who_leaves_the_rules_is_let_go_and_the_period_can_be_set() {
    if !countersteer_fuzz::cpus::may_use(&[0]) {
        return;
    }
    let all = cpus_of(std::process::id());
    let dir = tempfile::tempdir().unwrap();
    let name = format!("u{}", std::process::id());
    let rules = "schema = \"countersteer.rules/1\"\npolicy = \"static:*=cpu0\"\n";
    let rules = format!("{rules}[[steer]]\nname = \"{name}\"\n");
    std::fs::write(dir.path().join("rules.toml"), rules).unwrap();
    let null = std::process::Stdio::null;
    let start = |command: &mut Command| {
        Ends(
            command
                .stdin(null())
                .stdout(null())
                .stderr(null())
                .spawn()
                .unwrap(),
        )
    };
    let mut daemon = start(&mut steered(
        &["daemon", "--rules", "rules.toml"],
        dir.path(),
    ));
    let script = "echo $1 > /proc/$$/comm; n=0; while [ $n -lt 600 ]; do \
                  [ ! -e moved ] || echo other > /proc/$$/comm; sleep 0.1; n=$((n+1)); done";
    let program = start(
        Command::new("sh")
            .args(["-c", script, "sh", &name])
            .current_dir(dir.path()),
    );
    let pid = program.0.id();
    let confined = until(|| cpus_of(pid) != all);
    std::fs::write(dir.path().join("moved"), "").unwrap();
    let free = until(|| cpus_of(pid) == all);
    let ctl = |args: &[&str]| {
        steered(&[&["ctl"], args].concat(), dir.path())
            .output()
            .unwrap()
    };
    let status = || text(&ctl(&["status", "--json"]).stdout);
    // Masks are restored at once; the summary follows with the next observation.
    let forgotten = until(|| !status().contains(&format!("#{pid}\"")));
    let status = status();
    let legible = text(&ctl(&["status"]).stdout);
    let set = [ctl(&["set", "period=20ms"]), ctl(&["set", "period=0.1ms"])]
        .map(|output| output.status.code());
    let got = text(&ctl(&["get"]).stdout);
    assert!(confined && free, "{confined} {free}");
    assert!(forgotten, "{status}");
    assert!(status.contains("\"period\": \"100ms\""), "{status}");
    assert!(
        legible.contains("period: 100ms\n") && legible.contains("\n  decisions: "),
        "{legible}"
    );
    assert_eq!(set, [Some(0), Some(2)]);
    assert!(got.contains("20ms"), "{got}");
    nix_kill(daemon.0.id());
    assert!(daemon.0.wait().unwrap().success());
}
