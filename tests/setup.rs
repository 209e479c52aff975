//! `podlink setup`: what it writes, keeps, refuses and hides.

use std::{
    net::TcpListener,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use crate::support::{Cli, Port};

/// A home with three ports of its own.
struct Bed {
    top: tempfile::TempDir,
    ports: [Port; 3],
}

impl Bed {
    fn new() -> Self {
        Self { top: tempfile::tempdir().unwrap(), ports: [Port::reserve(), Port::reserve(), Port::reserve()] }
    }

    fn home(&self) -> PathBuf {
        self.top.path().join("home")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home().join("windows").join(name)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap()
    }

    fn cli(&self, args: &[&str]) -> Cli {
        Cli::new([&["setup"], args].concat()).home(&self.home())
    }

    /// A first setup with this engine and the ports of the bed.
    fn first(&self, engine: &str) -> Cli {
        let [agent, rdp, web] = self.ports.each_ref().map(|port| port.number().to_string());
        self.cli(&["--engine", engine, "--agent-port", &agent, "--rdp-port", &rdp, "--web-port", &web])
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// Path, inode and time of change of all below a folder.
fn snapshot(folder: &Path) -> Vec<(PathBuf, u64, i64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let meta = entry.metadata().unwrap();
        if meta.is_dir() {
            found.extend(snapshot(&entry.path()));
        }
        found.push((entry.path(), meta.ino(), meta.mtime_nsec()));
    }
    found.sort();
    found
}

#[test]
fn a_pod_is_private_complete_and_stays_as_it_is() {
    let bed = Bed::new();
    let run = bed.first("podman").run().exits(0);
    let password = password_in(&bed);
    assert!(password.len() == 20 && !run.stdout.contains(&password) && !run.stderr.contains(&password));
    for file in [".gitignore", "agent_token.txt", "oem/agent_token.txt", "compose.yaml", "pod.yaml"] {
        assert_eq!(mode(&bed.file(file)), 0o600, "{file}");
    }
    for folder in ["", "oem", "share", "storage"] {
        assert_eq!(mode(&bed.file(folder)), 0o700, "{folder}");
    }
    assert_eq!(bed.text(".gitignore"), "*\n");
    assert_eq!(bed.text("agent_token.txt"), bed.text("oem/agent_token.txt"));

    let before = snapshot(&bed.home());
    let again = bed.cli(&["--json"]).run().exits(0);
    assert_eq!(before, snapshot(&bed.home()), "nothing is touched");
    assert_eq!((&again.json()["changed"], &again.json()["token"]), (&false.into(), &"kept".into()));
}

fn password_in(bed: &Bed) -> String {
    podlink::host::PodSettings::parse(&bed.text("pod.yaml")).unwrap().machine.unwrap().password.expose().to_owned()
}

#[test]
fn what_is_not_named_is_kept() {
    let bed = Bed::new();
    bed.first("docker").run().exits(0);
    let (token, password) = (bed.text("agent_token.txt"), password_in(&bed));
    bed.cli(&["--ram", "8G", "--timezone", "Europe/Vienna"]).run().exits(0);
    bed.cli(&["--cpus", "3"]).run().exits(0);
    let compose = bed.text("compose.yaml");
    for wanted in [r#"RAM_SIZE: "8G""#, r#"CPU_CORES: "3""#, r#"TZ: "Europe/Vienna""#, &password] {
        assert!(compose.contains(wanted), "{wanted} in {compose}");
    }
    assert!(compose.contains(&format!("127.0.0.1:{}:8765/tcp", bed.ports[0].number())), "{compose}");
    assert_eq!(token, bed.text("agent_token.txt"));
}

#[test]
fn a_dry_run_writes_nothing_and_hides_secrets() {
    let bed = Bed::new();
    bed.first("podman").args(&["--dry-run"]).run().exits(0);
    assert!(!bed.home().exists());
    bed.first("podman").run().exits(0);
    let (token, old) = (bed.text("agent_token.txt"), password_in(&bed));
    let file = bed.top.path().join("password");
    std::fs::write(&file, "a new, secret one\r\n").unwrap();
    let before = snapshot(&bed.home());
    let run = bed.cli(&["--dry-run", "--disk", "99G", "--password-file", file.to_str().unwrap()]).run().exits(0);
    assert_eq!(before, snapshot(&bed.home()));
    assert!(
        run.stdout.contains("+      DISK_SIZE: \"99G\"") && run.stdout.contains("<hidden, changed>"),
        "{}",
        run.stdout
    );
    for secret in [token.trim(), &old, "a new, secret one"] {
        assert!(!run.stdout.contains(secret) && !run.stderr.contains(secret), "{}{}", run.stdout, run.stderr);
    }
}

#[test]
fn a_lost_token_comes_back_from_its_staged_copy() {
    let bed = Bed::new();
    bed.first("podman").run().exits(0);
    let token = bed.text("agent_token.txt");
    std::fs::remove_file(bed.file("agent_token.txt")).unwrap();
    let run = bed.cli(&["--json"]).run().exits(0);
    assert_eq!(run.json()["token"], "restored");
    assert!(run.json()["notes"].to_string().contains("restored from its staged copy"));
    assert_eq!(bed.text("agent_token.txt"), token);

    for file in ["agent_token.txt", "oem/agent_token.txt"] {
        std::fs::remove_file(bed.file(file)).unwrap();
    }
    let run = bed.cli(&[]).run().exits(0);
    assert!(run.stderr.contains("WARNING") && run.stderr.contains("still has the old one"), "{}", run.stderr);
    assert_ne!(bed.text("agent_token.txt"), token);
    assert_eq!(bed.text("agent_token.txt"), bed.text("oem/agent_token.txt"));
}

#[test]
fn wide_files_are_tightened_and_links_refused() {
    let bed = Bed::new();
    bed.first("podman").run().exits(0);
    let files = ["agent_token.txt", "oem/agent_token.txt", "compose.yaml", "pod.yaml"];
    for file in files {
        std::fs::set_permissions(bed.file(file), std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    bed.cli(&[]).run().exits(0);
    for file in files {
        assert_eq!(mode(&bed.file(file)), 0o600, "{file}");
    }
    let victim = bed.top.path().join("victim");
    for file in files {
        let original = std::fs::read(bed.file(file)).unwrap();
        std::fs::write(&victim, "mine").unwrap();
        std::fs::remove_file(bed.file(file)).unwrap();
        symlink(&victim, bed.file(file)).unwrap();
        let before = snapshot(&bed.home());
        let run = bed.cli(&["--ram", "9G"]).run().exits(125);
        assert!(run.stderr.contains("symbolic link"), "{file}: {}", run.stderr);
        assert_eq!(before, snapshot(&bed.home()), "{file}: nothing else was written");
        assert_eq!(std::fs::read(&victim).unwrap(), b"mine");
        std::fs::remove_file(bed.file(file)).unwrap();
        std::fs::write(bed.file(file), original).unwrap();
    }
}

#[test]
fn the_staged_copy_is_a_file_of_its_own() {
    let bed = Bed::new();
    bed.first("podman").run().exits(0);
    std::fs::remove_file(bed.file("oem/agent_token.txt")).unwrap();
    std::fs::hard_link(bed.file("agent_token.txt"), bed.file("oem/agent_token.txt")).unwrap();
    bed.cli(&[]).run().exits(0);
    assert_eq!(std::fs::metadata(bed.file("oem/agent_token.txt")).unwrap().nlink(), 1);
    assert_eq!(bed.text("agent_token.txt"), bed.text("oem/agent_token.txt"));
}

#[test]
fn many_setups_at_once_end_with_one_pod() {
    let bed = Bed::new();
    let children: Vec<_> = (0..16)
        .map(|_| {
            bed.first("podman")
                .command()
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(bed.text("agent_token.txt"), bed.text("oem/agent_token.txt"));
    assert!(bed.text("compose.yaml").contains(&password_in(&bed)));
    let left = snapshot(&bed.home())
        .into_iter()
        .filter(|(path, ..)| path.file_name().unwrap().to_string_lossy().starts_with(".tmp"))
        .count();
    assert_eq!(left, 0);
    assert_eq!(bed.cli(&["--json"]).run().exits(0).json()["changed"], false);
}

#[test]
fn two_pods_at_once_get_different_ports() {
    let bed = Bed::new();
    let children: Vec<_> = ["a", "b", "c", "d"]
        .map(|pod| {
            let cli = bed.cli(&["--engine", "local", "--json", "--pod", pod]);
            cli.command().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
        })
        .into_iter()
        .collect();
    let mut ports = Vec::new();
    for child in children {
        let json: serde_json::Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
        ports.extend(["agent", "rdp", "web"].map(|name| json["ports"][name].as_u64().unwrap()));
    }
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 12);
}

#[test]
fn a_taken_port_is_named_with_its_owner_at_once() {
    let bed = Bed::new();
    let port = bed.ports[0].number();
    for address in ["127.0.0.1", "0.0.0.0"] {
        let _squatter = TcpListener::bind((address, port)).unwrap();
        let run = bed.first("podman").run().exits(125);
        let owner = format!("(pid {})", std::process::id());
        assert!(run.stderr.contains(&port.to_string()) && run.stderr.contains(&owner), "{}", run.stderr);
        assert!(run.took < Duration::from_secs(2), "{:?}", run.took);
        assert!(!bed.file("pod.yaml").exists());
    }
    if let Ok(_elsewhere) = TcpListener::bind(("::1", port)) {
        bed.first("podman").run().exits(0);
    }
}

#[test]
fn a_port_serves_once() {
    let bed = Bed::new();
    let port = bed.ports[0].number().to_string();
    let run = bed.cli(&["--engine", "podman", "--agent-port", &port, "--web-port", &port]).run().exits(125);
    assert!(run.stderr.contains("twice") && run.stderr.contains("--web-port"), "{}", run.stderr);
}

#[test]
fn odd_homes_work_and_a_colon_does_not() {
    for name in ["a b", "a#b", "é✓", "a$b", "a'b\"c"] {
        let bed = Bed::new();
        let home = bed.top.path().join(name);
        bed.first("podman").home(&home).run().exits(0);
        let text = std::fs::read_to_string(home.join("windows/compose.yaml")).unwrap();
        let escaped = home.display().to_string().replace('\\', r"\\").replace('"', "\\\"").replace('$', "$$");
        assert!(text.contains(&format!("\"{escaped}/windows/oem:/oem:Z\"")), "{text}");
    }
    let bed = Bed::new();
    let run = bed.first("podman").home(&bed.top.path().join("a:b")).run().exits(125);
    assert!(run.stderr.contains("colon") && run.stderr.contains("PODLINK_HOME"), "{}", run.stderr);
    assert!(!bed.top.path().join("a:b/windows").exists());
    // without containers there is no volume to break
    bed.first("local").home(&bed.top.path().join("a:b")).run().exits(0);
}

#[test]
fn a_home_behind_a_link_and_another_folder_work() {
    let bed = Bed::new();
    let (real, link) = (bed.top.path().join("real"), bed.top.path().join("link"));
    std::fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    bed.first("podman").home(&link).run().exits(0);
    let before = snapshot(&real);
    let status =
        bed.cli(&[]).home(&link).command().current_dir("/").stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.unwrap().success());
    assert_eq!(before, snapshot(&real));
    let run = bed.first("podman").home(Path::new("relative")).run().exits(125);
    assert!(run.stderr.contains("absolute"), "{}", run.stderr);
}

#[test]
fn wrong_settings_are_refused_before_anything_is_written() {
    for (args, says) in [
        (&["--cpus", "0"][..], "--cpus"),
        (&["--ram", "lots"], "--ram"),
        (&["--disk", "4 G"], "--disk"),
        (&["--timezone", ""], "--timezone"),
        (&["--guest", "linux"], "--image"),
        (&["--password-file", "/nonexistent"], "/nonexistent"),
    ] {
        let bed = Bed::new();
        let run = bed.first("podman").args(args).run().exits(125);
        assert!(run.stderr.contains(says), "{args:?}: {}", run.stderr);
        assert!(!bed.file("pod.yaml").exists(), "{args:?}");
    }
    let bed = Bed::new();
    bed.first("local").args(&["--guest", "windows"]).run().exits(125);
}

#[test]
fn auto_never_means_local() {
    let bed = Bed::new();
    let empty = bed.top.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let cli = bed.cli(&[]).env("PATH", &empty).env("HOME", &empty);
    let run = cli.run().exits(125);
    for word in ["podman", "docker", "--engine local"] {
        assert!(run.stderr.contains(word), "{}", run.stderr);
    }
    assert!(run.took < Duration::from_secs(2));
    assert!(!bed.file("pod.yaml").exists());
}

#[test]
fn secrets_are_never_open_to_others_not_even_for_an_instant() {
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: no strace here");
        return;
    }
    let bed = Bed::new();
    let trace = bed.top.path().join("trace");
    let setup = bed.first("podman").command();
    let mut traced = Command::new("sh");
    traced.env_clear().envs(setup.get_envs().filter_map(|(key, value)| Some((key, value?))));
    traced.args([
        "-c",
        "umask 0; exec strace -f -o \"$0\" -e trace=open,openat,creat,mkdir,mkdirat,chmod,fchmod,fchmodat \"$@\"",
    ]);
    traced.arg(&trace).arg(setup.get_program()).args(setup.get_args());
    let output = traced.output().unwrap();
    if !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("ptrace") {
        eprintln!("skipped: strace may not trace here");
        return;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let home = bed.home();
    let trace = std::fs::read_to_string(&trace).unwrap();
    let mut created = 0;
    for line in trace.lines().filter(|line| line.contains(home.to_str().unwrap())) {
        if line.contains("O_CREAT") {
            assert!(line.contains(", 0600"), "{line}");
            assert!(line.contains("O_EXCL") || line.contains("/.lock\""), "{line}");
            created += 1;
        }
        if line.contains("mkdir") || line.contains("chmod") {
            assert!(line.contains("0700") || line.contains("0600"), "{line}");
        }
    }
    assert!(created >= 6, "{trace}");
    assert_eq!(mode(&bed.file("pod.yaml")), 0o600);
}

#[test]
fn the_agent_may_be_winpodx() {
    let bed = Bed::new();
    let run = bed.first("podman").args(&["--agent", "winpodx", "--json"]).run().exits(0);
    assert_eq!(run.json()["agent"], "winpodx");
    assert!(run.stdout.contains("agent_token.txt") && run.stdout.contains("winpodx' agent"), "{}", run.stdout);
    assert!(bed.text("pod.yaml").contains("agent: 'winpodx'"), "{}", bed.text("pod.yaml"));
    // it brings its own installation
    for name in ["oem/podlink.exe", "oem/install.bat"] {
        assert!(!bed.file(name).exists(), "{name}");
    }
    // kept, and changed back
    assert_eq!(bed.cli(&["--json"]).run().exits(0).json()["agent"], "winpodx");
    assert_eq!(bed.cli(&["--agent", "podlink", "--json"]).run().exits(0).json()["agent"], "podlink");
    for wrong in [&["--guest", "linux", "--image", "x/y:1"][..], &["--engine", "local"]] {
        let run = bed.cli(&[&["--agent", "winpodx"], wrong].concat()).run().exits(125);
        assert!(run.stderr.contains("runs in Windows guests alone"), "{}", run.stderr);
    }
}
