//! `install.bat` and `podlink agent install` under Wine. Not shown here, since Wine has none of it: the firewall's and
//! Defender's real effect, and a log-on.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use podlink::token::{TOKEN_FILE, Token, ensure_private_dir, replace_private};

use crate::{
    supervise::ready_on,
    support::{Cli, Http, Port, Wine, cli::Run, processes, wait_for, wine::windows_path},
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
        let wine = Wine::open()?;
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
        let users = self.wine.drive_c().join("users");
        let found = std::fs::read_dir(users).unwrap().flatten().map(|user| user.path().join("AppData/Local/podlink"));
        found.into_iter().find(|path| path.is_dir()).expect("nothing is installed")
    }

    fn stage(&self) -> Option<serde_json::Value> {
        std::net::TcpStream::connect(("127.0.0.1", self.port.number())).ok()?;
        Some(Http::new(self.port.number(), "GET", "/health").send().json)
    }

    fn pod(&self, args: &[&str]) -> Cli {
        Cli::new([&["pod"], args].concat()).home(&self.home()).env("PODLINK_POD", "wine")
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
    // the agent looks at the installation a few times a second
    wait_for("the agent to name it", PATIENCE, || {
        guest.stage().is_some_and(|health| health["ok"] == false && health["waiting_for"][0] == "hook 10-wait.cmd")
    });
    processes::kill(&guest.wine.pids_of("agent install"));
    child.wait().unwrap();
    wait_for("the agent to begin it again", PATIENCE, || guest.ran().len() == 2);
    std::fs::write(guest.wine.folder().join("go.txt"), "").unwrap();
    let log = guest.installed().join("install.log");
    wait_for("all but the token", PATIENCE, || text(&log).contains("all but the token is done"));
    assert_eq!(guest.stage().unwrap()["stage"], "waiting_for_token");
    guest.stage_token();
    drop(guest.pod(&["wait-ready", "--timeout", "30"]).run().exits(0));
    assert!(!guest.bundle.join("agent_token.txt").exists());
    assert_eq!(guest.ran().len(), 2);
}
