//! `install.bat` and `podlink agent install` under Wine. Not shown here, since Wine has none of it: the firewall's and
//! Defender's real effect, and a log-on.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use podlink::token::{TOKEN_FILE, Token, ensure_private_dir, replace_private};

use crate::{
    powershell::shell::as_windows_powershell,
    supervise::ready_on,
    support::{Cli, Http, Port, Wine, WineSetup, cli::Run, processes, wait_for, wine::windows_path},
};

const PATIENCE: Duration = Duration::from_mins(1);

const RUN_KEY: &str = r"HKCU\Software\Microsoft\Windows\CurrentVersion\Run";

/// A Windows with a bundle, at a path with a blank and `&` in it, and a pod of the host's for its agent.
struct Guest {
    wine: Wine,
    bundle: PathBuf,
    port: Port,
    token: Token,
}

impl Guest {
    fn open() -> Option<Self> {
        Self::open_with(WineSetup::new())
    }

    fn open_with(setup: WineSetup) -> Option<Self> {
        let wine = setup.open()?;
        let bundle = wine.folder().join("O & M");
        for folder in [bundle.join("hooks"), wine.drive_c().join("OEM")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::copy(wine.folder().join("podlink.exe"), bundle.join("podlink.exe")).unwrap();
        std::fs::write(bundle.join("install.bat"), include_bytes!("../../assets/oem/install.bat")).unwrap();
        let guest = Self { wine, bundle, port: Port::reserve(), token: Token::generate().unwrap() };
        let dir = guest.home().join("wine");
        ensure_private_dir(&dir).unwrap();
        let settings =
            format!("engine: local\nguest: windows\nports: {{agent: {}, rdp: 1, web: 2}}\n", guest.port.number());
        replace_private(&dir.join("pod.yaml"), settings.as_bytes()).unwrap();
        replace_private(&dir.join(TOKEN_FILE), guest.token.expose().as_bytes()).unwrap();
        Some(guest)
    }

    fn home(&self) -> PathBuf {
        self.wine.folder().join("home")
    }

    fn stage_token(&self) {
        std::fs::write(self.bundle.join("agent_token.txt"), format!("{}\r\n", *self.token.expose())).unwrap();
    }

    /// A hook that notes that it ran, and then does this.
    fn hook(&self, name: &str, lines: &[&str]) {
        let ran = windows_path(&self.wine.folder().join("ran.txt"));
        let mut text = format!("@echo off\r\necho {name}>>\"{ran}\"\r\n");
        for line in lines {
            text.push_str(line);
            text.push_str("\r\n");
        }
        std::fs::write(self.bundle.join("hooks").join(name), text).unwrap();
    }

    fn ran(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.wine.folder().join("ran.txt")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn listen(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// `install.bat`, as Windows runs it.
    fn install_bat(&self) -> Run {
        let mut command = self.wine.command(&windows_path(&self.bundle.join("install.bat")), &[]);
        command.env("PODLINK_INSTALL_LISTEN", self.listen());
        Wine::finish(command)
    }

    fn install(&self, flags: &[&str]) -> std::process::Command {
        let listen = self.listen();
        let own = ["agent", "install", "--listen", &listen];
        self.wine.command(&windows_path(&self.bundle.join("podlink.exe")), &[&own, flags].concat())
    }

    /// The folder of state and program of a user who is no administrator.
    fn installed(&self) -> PathBuf {
        self.find_installed().expect("nothing is installed")
    }

    fn find_installed(&self) -> Option<PathBuf> {
        let users = std::fs::read_dir(self.wine.drive_c().join("users")).ok()?.flatten();
        users.map(|user| user.path().join("AppData/Local/podlink")).find(|path| path.is_dir())
    }

    fn stage(&self) -> Option<serde_json::Value> {
        Some(Http::new(self.port.number(), "GET", "/health").try_send()?.json)
    }

    fn pod(&self, args: &[&str]) -> Cli {
        Cli::new([&["pod"], args].concat()).home(&self.home()).env("PODLINK_POD", "wine")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let Some(folder) = self.find_installed().filter(|_| std::thread::panicking()) else { return };
        for name in ["install.log", "agent.log"] {
            eprintln!("{name}:\n{}", text(&folder.join(name)));
        }
    }
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

#[test]
fn install_bat_runs_twice_from_a_path_with_a_blank_and_an_ampersand() {
    let Some(guest) = Guest::open() else { return };
    guest.stage_token();
    guest.hook("20-second.cmd", &["echo from the hook"]);
    guest.hook("10-first.cmd", &[]);
    drop(guest.install_bat().exits(0));
    let folder = guest.installed();
    for name in ["podlink.exe", "install.json", "install.done", "install.log", "agent.json", "agent_token.txt"] {
        assert!(folder.join(name).is_file(), "{name}");
    }
    assert!(!guest.bundle.join("agent_token.txt").exists(), "the bundle's copy goes once it is taken over");
    let log = text(&guest.wine.drive_c().join("OEM/podlink-install.log"));
    for line in ["exe: done: copied", "token: done", "autostart: done", "hook 10-first.cmd: done", "exit code 0"] {
        assert!(log.contains(line), "{line} is not in {log}");
    }
    assert!(!log.contains(guest.token.expose().as_str()));
    let run_key = guest.wine.registry(RUN_KEY, "podlink-agent").expect("a value of the Run key");
    assert!(run_key.contains("podlink.exe\" agent serve --installed"), "{run_key}");
    assert!(text(&folder.join("hooks/20-second.cmd.log")).contains("from the hook"));

    drop(guest.pod(&["wait-ready", "--timeout", "30"]).run().exits(0));
    drop(guest.pod(&["exec", "--shell", "cmd", "exit 3"]).run().exits(3));

    drop(guest.install_bat().exits(0));
    assert_eq!(guest.ran(), ["10-first.cmd", "20-second.cmd"], "hooks that have run do not run again");
    assert_eq!(guest.wine.registry(RUN_KEY, "podlink-agent").as_ref(), Some(&run_key));
    drop(guest.pod(&["wait-ready", "--timeout", "30"]).run().exits(0));

    let exe = windows_path(&guest.bundle.join("podlink.exe"));
    let status = guest.wine.run(&exe, &["agent", "status"]).exits(0);
    assert!(status.stdout.contains("comes back with the next log-on"), "{}", status.stdout);
    drop(guest.wine.run(&exe, &["agent", "uninstall"]).exits(0));
    assert!(guest.wine.registry(RUN_KEY, "podlink-agent").is_none());
    assert!(!folder.join("podlink.exe").exists() && !folder.join("agent_token.txt").exists());
    assert!(guest.stage().is_none(), "the agent goes with it");
}

/// By the installed program, from inside a call of the agent's own, whose answer is not lost.
#[test]
fn the_installed_agent_is_restarted_from_inside_a_call() {
    let Some(guest) = Guest::open() else { return };
    guest.stage_token();
    drop(guest.install_bat().exits(0));
    drop(guest.pod(&["wait-ready", "--timeout", "30"]).run().exits(0));
    let before = ready_on(guest.port.number());
    let exe = windows_path_of_c(&guest.installed().join("podlink.exe"), &guest.wine.drive_c());
    let script = format!("\"{exe}\" agent restart\r\necho after %errorlevel%\r\nexit 3");
    let run = guest.pod(&["exec", "--shell", "cmd", &script]).run().exits(3);
    let said = run.stdout.as_str();
    assert!(said.contains("restarts once its calls") && said.trim_end().ends_with("after 0"), "{run:?}");
    wait_for("another agent", PATIENCE, || {
        let now = ready_on(guest.port.number());
        now.is_some() && now != before
    });
    drop(guest.pod(&["restart", "--agent"]).run().exits(0));

    // an update: the program that runs, and that of the asking call's agent, is another one afterwards
    let newer = guest.bundle.join("podlink.exe");
    let mut bytes = std::fs::read(&newer).unwrap();
    bytes.extend_from_slice(b"newer");
    std::fs::remove_file(&newer).unwrap();
    std::fs::write(&newer, &bytes).unwrap();
    let before = ready_on(guest.port.number());
    let install = format!("\"{}\" agent install --listen {}", windows_path(&newer), guest.listen());
    let script = format!("{install}\r\n\"{exe}\" agent restart\r\necho after %errorlevel%\r\nexit 3");
    let run = guest.pod(&["exec", "--shell", "cmd", &script]).run().exits(3);
    assert!(run.stdout.contains("exe: done: copied") && run.stdout.trim_end().ends_with("after 0"), "{run:?}");
    wait_for("another agent", PATIENCE, || {
        let now = ready_on(guest.port.number());
        now.is_some() && now != before
    });
    assert!(std::fs::read(guest.installed().join("podlink.exe")).unwrap() == bytes);
    let agent: serde_json::Value = serde_json::from_str(&text(&guest.installed().join("agent.json"))).unwrap();
    let digest = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&bytes));
    assert_eq!(agent["exe_sha256"], digest.as_str(), "the new one runs");
    assert_eq!(guest.wine.pids_of("--supervised").len(), 1, "{:?}", guest.wine.processes());
}

/// A path on drive `C:` as the guest itself writes it.
fn windows_path_of_c(path: &Path, drive: &Path) -> String {
    format!("C:\\{}", path.strip_prefix(drive).unwrap().to_str().unwrap().replace('/', "\\"))
}

#[test]
fn a_hook_that_fails_or_takes_too_long_is_named_and_the_wait_ends_early() {
    let Some(guest) = Guest::open() else { return };
    guest.stage_token();
    guest.hook("10-bad.cmd", &["echo no room", "exit /b 7"]);
    let run = guest.install_bat();
    assert_eq!(run.code, Some(14), "{run:?}");
    let waited = guest.pod(&["wait-ready", "--timeout", "60"]).run().exits(14);
    assert!(waited.stderr.contains("hook 10-bad.cmd: it ended with 7: no room"), "{}", waited.stderr);

    guest.hook("10-bad.cmd", &["ping -n 600 127.0.0.1 >nul"]);
    let run = Wine::finish(guest.install(&["--hook-timeout-ms", "1500"])).exits(14);
    assert!(run.stdout.contains("hook 10-bad.cmd: failed: it took longer"), "{}", run.stdout);
    wait_for("the end of what it started", PATIENCE, || guest.wine.pids_of("ping -n 600").is_empty());

    guest.hook("10-bad.cmd", &[]);
    drop(guest.install_bat().exits(0));
    drop(guest.pod(&["wait-ready", "--timeout", "30"]).run().exits(0));
}

#[test]
fn an_installer_that_is_killed_is_made_good_by_the_agent_and_the_token_may_come_last() {
    let Some(guest) = Guest::open() else { return };
    let go = windows_path(&guest.wine.folder().join("go.txt"));
    let wait = format!("if not exist \"{go}\" (ping -n 2 127.0.0.1 >nul & goto again)");
    guest.hook("10-wait.cmd", &[":again", &wait]);
    let mut child = guest.install(&[]).stdout(std::process::Stdio::null()).spawn().unwrap();
    wait_for("the hook", PATIENCE, || guest.ran().len() == 1);
    wait_for("the step", PATIENCE, || {
        guest.stage().is_some_and(|health| {
            assert_eq!(health["ok"], false, "{health}");
            health["waiting_for"][0] == "hook 10-wait.cmd"
        })
    });
    processes::kill(&guest.wine.pids_of("agent install"));
    child.wait().unwrap();
    wait_for("the agent to begin it again", PATIENCE, || guest.ran().len() == 2);
    std::fs::write(guest.wine.folder().join("go.txt"), "").unwrap();
    let log = guest.installed().join("install.log");
    wait_for("all but the token", PATIENCE, || text(&log).contains("all but the token is done"));
    wait_for("the stage", PATIENCE, || guest.stage().is_some_and(|health| health["stage"] == "waiting_for_token"));
    guest.stage_token();
    drop(guest.pod(&["wait-ready", "--timeout", "30"]).run().exits(0));
    assert!(!guest.bundle.join("agent_token.txt").exists());
    assert_eq!(guest.ran().len(), 2);
}

/// The agent's answer to `/whoami`.
fn whoami(guest: &Guest) -> serde_json::Value {
    Http::new(guest.port.number(), "GET", "/whoami").bearer(guest.token.expose().as_str()).send().json
}

fn agent_id(guest: &Guest) -> Option<String> {
    Some(guest.stage()?["agent_id"].as_str()?.to_owned())
}

/// Of the one that runs; a busy machine may not answer a single try in time.
fn known_id(guest: &Guest) -> String {
    let mut id = None;
    wait_for("the agent to answer", PATIENCE, || {
        id = agent_id(guest);
        id.is_some()
    });
    id.unwrap()
}

#[test]
fn a_service_is_registered_started_and_gives_way_to_the_run_key() {
    const KEY: &str = r"HKLM\SYSTEM\CurrentControlSet\Services\podlink-agent";
    let Some(guest) = Guest::open() else { return };
    guest.stage_token();
    // Wine ends its services with the last program that is none: an agent that was killed would be that
    let mut user = guest.wine.command("ping.exe", &["-n", "600", "127.0.0.1"]);
    let mut user = user.stdout(std::process::Stdio::null()).spawn().unwrap();
    let run = Wine::finish(guest.install(&["--mode", "service"])).exits(0);
    assert!(run.stdout.contains("to be started by the service manager"), "{}", run.stdout);
    drop(guest.pod(&["wait-ready", "--timeout", "30"]).run().exits(0));
    let path = guest.wine.registry(KEY, "ImagePath").expect("a service");
    assert!(path.contains("podlink.exe\" agent serve --installed") && path.contains("--service"), "{path}");
    assert!(guest.wine.registry(RUN_KEY, "podlink-agent").is_none(), "one or the other");
    assert_eq!(whoami(&guest)["mode"], "service");
    drop(guest.pod(&["exec", "--shell", "cmd", "exit 3"]).run().exits(3));
    let exe = windows_path(&guest.bundle.join("podlink.exe"));
    let status = guest.wine.run(&exe, &["agent", "status"]).exits(0);
    assert!(status.stdout.contains("before anybody logs on"), "{}", status.stdout);

    // killed, it comes back
    let was = known_id(&guest);
    processes::kill(&guest.wine.pids_of("--supervised"));
    wait_for("another agent", PATIENCE, || agent_id(&guest).is_some_and(|id| id != was));
    drop(guest.pod(&["wait-ready", "--timeout", "30"]).run().exits(0));

    // another mode takes its place, and nothing is left of it
    drop(Wine::finish(guest.install(&["--mode", "session"])).exits(0));
    drop(guest.pod(&["wait-ready", "--timeout", "30"]).run().exits(0));
    assert_eq!(whoami(&guest)["mode"], "session");
    assert!(guest.wine.registry(RUN_KEY, "podlink-agent").is_some());
    wait_for("the service to be gone", PATIENCE, || guest.wine.registry(KEY, "ImagePath").is_none());
    drop(guest.wine.run(&exe, &["agent", "uninstall"]).exits(0));
    assert!(guest.stage().is_none() && guest.wine.registry(RUN_KEY, "podlink-agent").is_none());
    drop(user.kill());
    drop(user.wait());
}

#[test]
fn a_newer_program_takes_the_place_of_the_one_that_runs() {
    let Some(guest) = Guest::open() else { return };
    guest.stage_token();
    drop(guest.install_bat().exits(0));
    drop(guest.pod(&["wait-ready", "--timeout", "30"]).run().exits(0));
    let was = known_id(&guest);
    // another by its content, and the same by what it does
    let bundled = guest.bundle.join("podlink.exe");
    let mut newer = std::fs::read(&bundled).unwrap();
    newer.extend(b"newer");
    std::fs::write(&bundled, &newer).unwrap();
    drop(guest.install_bat().exits(0));
    drop(guest.pod(&["wait-ready", "--timeout", "30"]).run().exits(0));
    assert_ne!(known_id(&guest), was, "the old one still runs");
    let folder = guest.installed();
    assert!(std::fs::read(folder.join("podlink.exe")).unwrap() == newer);
    // what was put aside is removed once it does not run
    drop(guest.install_bat().exits(0));
    newer.push(b'!');
    std::fs::write(&bundled, &newer).unwrap();
    drop(guest.install_bat().exits(0));
    let old = std::fs::read_dir(&folder).unwrap().flatten();
    let old: Vec<_> =
        old.map(|entry| entry.file_name()).filter(|name| name.to_string_lossy().contains(".old")).collect();
    assert!(old.len() <= 1, "{old:?}");
    drop(guest.pod(&["exec", "--shell", "cmd", "exit 3"]).run().exits(3));
}

#[test]
fn what_a_killed_installer_has_left_is_taken_up_at_the_next_log_on() {
    let Some(guest) = Guest::open() else { return };
    guest.stage_token();
    let go = windows_path(&guest.wine.folder().join("go.txt"));
    let wait = format!("if not exist \"{go}\" (ping -n 2 127.0.0.1 >nul & goto again)");
    guest.hook("10-wait.cmd", &[":again", &wait]);
    guest.hook("20-last.cmd", &[]);
    let mut child = guest.install(&[]).stdout(std::process::Stdio::null()).spawn().unwrap();
    // from its first moment the agent names the step, and says nothing of being ready
    let mut steps = Vec::new();
    wait_for("the hook", PATIENCE, || {
        if let Some(health) = guest.stage() {
            assert_eq!((&health["ok"], &health["stage"]), (&false.into(), &"installing".into()), "{health}");
            let step = health["waiting_for"][0].as_str().unwrap().to_owned();
            if steps.last() != Some(&step) {
                steps.push(step);
            }
        }
        steps.last().is_some_and(|step| step == "hook 10-wait.cmd") && guest.ran().len() == 1
    });
    assert!(steps.iter().all(|step| ["install", "agent", "hook 10-wait.cmd"].contains(&&**step)), "{steps:?}");

    // the power goes
    let all = guest.wine.pids_of("podlink.exe");
    let begun = guest.wine.pids_of("10-wait.cmd");
    processes::kill(&[all, begun].concat());
    child.wait().unwrap();
    wait_for("the end of the agent", PATIENCE, || guest.stage().is_none());
    assert!(!guest.installed().join("install.done").exists());
    std::fs::write(guest.wine.folder().join("go.txt"), "").unwrap();

    // the log-on: what the Run key says is run as it stands there
    let value = guest.wine.registry(RUN_KEY, "podlink-agent").unwrap();
    let line = value.lines().find_map(|line| line.split_once("REG_SZ")).unwrap().1.trim().to_owned();
    std::fs::write(guest.wine.folder().join("log-on.bat"), format!("@start \"\" /b {line}\r\n")).unwrap();
    let mut logon = guest.wine.command("cmd.exe", &["/d", "/c", "log-on.bat"]).spawn().unwrap();
    wait_for("the agent", PATIENCE, || guest.stage().is_some());
    drop(guest.pod(&["wait-ready", "--timeout", "60"]).run().exits(0));
    assert!(guest.installed().join("install.done").exists());
    assert_eq!(guest.ran(), ["10-wait.cmd", "10-wait.cmd", "20-last.cmd"]);
    assert_eq!(whoami(&guest)["mode"], "session");
    drop(logon.kill());
    drop(logon.wait());
}

#[test]
fn a_hook_may_be_a_powershell_script() {
    let Some(pwsh) = std::env::var_os("PODLINK_TEST_PWSH_EXE").map(PathBuf::from) else {
        println!("skipped: no PowerShell for Windows (set PODLINK_TEST_PWSH_EXE to a pwsh.exe)");
        return;
    };
    if std::env::var_os("PODLINK_TEST_WINE").is_none() {
        println!("skipped: needs Wine (scripts/test wine)");
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/wine/powershell");
    as_windows_powershell(&pwsh, &folder);
    let guest = Guest::open_with(WineSetup::new().see(&folder)).unwrap();
    // where Windows has its own, Wine has one that does nothing
    let own = guest.wine.drive_c().join("windows/system32/WindowsPowerShell/v1.0");
    std::fs::remove_dir_all(&own).unwrap();
    std::os::unix::fs::symlink(&folder, &own).unwrap();
    guest.stage_token();
    let hook = guest.bundle.join("hooks/10-a.ps1");
    let script = "\"the bundle is $env:PODLINK_BUNDLE\"\r\nSet-Content \"$PSScriptRoot\\made.txt\" 'made'\r\nthrow 'no license'\r\n";
    std::fs::write(&hook, script).unwrap();
    let run = guest.install_bat().exits(14);
    let log = text(&guest.installed().join("hooks/10-a.ps1.log"));
    assert!(log.contains("the bundle is Z:\\") && log.contains("no license"), "{log} {run:?}");
    assert!(guest.bundle.join("hooks/made.txt").exists());
    let waited = guest.pod(&["wait-ready", "--timeout", "60"]).run().exits(14);
    assert!(waited.stderr.contains("hook 10-a.ps1: it ended with 1"), "{}", waited.stderr);
    std::fs::write(&hook, script.replace("throw 'no license'", "exit 0")).unwrap();
    drop(guest.install_bat().exits(0));
    drop(guest.pod(&["wait-ready", "--timeout", "30"]).run().exits(0));
}
