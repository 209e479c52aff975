//! `podlink agent install` where a real systemd is the first process: a small Debian in QEMU, without a container.
//!
//! Not shown here: what a desktop's session adds, and a firewalld, of which a small Debian has none.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use podlink::token::{TOKEN_FILE, Token, ensure_private_dir};
use serde_json::{Value, json};

use crate::support::{Cli, Http, Port, agent::write_private, cli::Run, wait_for};

/// Longer than the guest takes to come up on a busy machine.
const BOOT: Duration = Duration::from_secs(150);

/// For what takes seconds when the processor is emulated.
const SOON: Duration = Duration::from_mins(1);

const UNIT: &str = "podlink-agent.service";

/// The agent of one account of the guest, and the pod of this machine for it.
struct Account {
    port: Port,
    token: String,
    home: tempfile::TempDir,
}

impl Account {
    fn new() -> Self {
        let account = Self {
            port: Port::reserve(),
            token: Token::generate().unwrap().expose().to_string(),
            home: tempfile::tempdir().unwrap(),
        };
        let dir = account.home.path().join("sd");
        ensure_private_dir(&dir).unwrap();
        let port = account.port.number();
        let settings = format!("engine: local\nguest: linux\nports: {{agent: {port}, rdp: 1, web: 2}}\n");
        write_private(&dir.join("pod.yaml"), &settings);
        write_private(&dir.join(TOKEN_FILE), &account.token);
        account
    }

    /// `/health`; `None` where nobody answers it: QEMU takes connections before the guest does.
    fn health(&self) -> Option<(u16, Value)> {
        let answer = Http::new(self.port.number(), "GET", "/health").try_send()?;
        Some((answer.status, answer.json))
    }

    fn pod(&self, args: &[&str]) -> Cli {
        Cli::new([&["pod"], args].concat()).home(self.home.path()).env("PODLINK_POD", "sd")
    }

    fn wait_ready(&self) {
        let seconds = BOOT.as_secs().to_string();
        drop(self.pod(&["wait-ready", "--timeout", &seconds]).run().exits(0));
    }

    /// Runs a line of shell with the account's rights.
    fn exec(&self, script: &str) -> Run {
        self.pod(&["exec", script]).run()
    }

    fn whoami(&self) -> Value {
        Http::new(self.port.number(), "GET", "/whoami").bearer(&self.token).send().json
    }

    fn agent_id(&self) -> Option<String> {
        Some(self.health()?.1["agent_id"].as_str()?.to_owned())
    }

    /// Of the agent that runs; a busy machine may not answer a single try in time.
    fn known_id(&self) -> String {
        let mut id = None;
        wait_for("the agent to answer", SOON, || {
            id = self.agent_id();
            id.is_some()
        });
        id.unwrap()
    }

    /// Waits for one that is not this, and then for it to take calls.
    fn wait_for_another(&self, than: &str, what: &str) {
        wait_for(what, BOOT, || self.agent_id().is_some_and(|id| id != than));
        self.wait_ready();
    }
}

/// The machine.
struct Machine {
    folder: tempfile::TempDir,
    qemu: Child,
    root: Account,
    ann: Account,
}

impl Machine {
    /// Boots one with this bundle; `None`, having said why, where there is none to boot.
    fn boot(bundle: impl FnOnce(&Path)) -> Option<Self> {
        if std::env::var("PODLINK_TEST_VM").as_deref() != Ok("1") {
            println!("skipped: the VM tests run with PODLINK_TEST_VM=1, or by `scripts/test vm`");
            return None;
        }
        let top = Path::new(env!("CARGO_MANIFEST_DIR"));
        let built = Command::new(top.join("tests/vm/build")).arg("systemd").output().unwrap();
        let said = [built.stdout, built.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        if built.status.code() == Some(3) {
            println!("skipped: no guest with systemd: {}", said.trim().replace('\n', "; "));
            return None;
        }
        assert!(built.status.success(), "{said}");
        print!("{said}");

        let out = top.join("target/vm");
        let folder = tempfile::tempdir().unwrap();
        let (root, ann) = (Account::new(), Account::new());
        let oem = folder.path().join("oem");
        std::fs::create_dir_all(oem.join("hooks")).unwrap();
        write_private(&oem.join("agent_token.txt"), &root.token);
        bundle(&oem);
        let archive = "(cat \"$1/systemd.cpio\"; find oem | cpio --quiet -o -H newc -R 0:0) >initrd";
        let packed = Command::new("sh").args(["-c", archive, "sh"]).arg(&out).current_dir(folder.path()).status();
        assert!(packed.unwrap().success());
        // its own, which outlives a reboot
        let disk = folder.path().join("disk");
        let copied = Command::new("cp").arg("--sparse=always").arg(out.join("systemd.ext4")).arg(&disk).status();
        assert!(copied.unwrap().success());
        let qemu = Self::start(&out, folder.path(), &root, &ann);
        Some(Self { folder, qemu, root, ann })
    }

    /// Its power on; QEMU ends where the guest reboots or goes down.
    fn start(out: &Path, folder: &Path, root: &Account, ann: &Account) -> Child {
        let forward =
            |account: &Account, port: u16| format!(",hostfwd=tcp:127.0.0.1:{}-:{port}", account.port.number());
        let network = format!("user,id=net,ipv6=off{}{}", forward(root, 8765), forward(ann, 8766));
        let disk = format!("file={},format=raw,if=virtio", folder.join("disk").display());
        let console = format!("file:{}", folder.join("console").display());
        let words = "console=ttyS0 quiet mitigations=off cryptomgr.notests nokaslr no_timer_check audit=0 panic=-1 \
                     systemd.show_status=0";
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64", "-nodefaults", "-machine", "type=q35,graphics=off"])
            .args([
                "-accel",
                "tcg",
                "-cpu",
                "max",
                "-smp",
                "2",
                "-m",
                "1G",
                "-no-reboot",
                "-display",
                "none",
                "-serial",
                &console,
            ])
            .args(["-netdev", &network, "-device", "virtio-net-pci,netdev=net,romfile=", "-drive", &disk])
            .arg("-kernel")
            .arg(out.join("vmlinuz"))
            .arg("-initrd")
            .arg(folder.join("initrd"))
            .args(["-append", words])
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Waits for the guest to have gone down, and has it boot again.
    fn boot_again(&mut self) {
        wait_for("the guest to go down", BOOT, || self.qemu.try_wait().unwrap().is_some());
        let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/vm");
        self.qemu = Self::start(&out, self.folder.path(), &self.root, &self.ann);
    }

    fn console(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.folder.path().join("console")).unwrap_or_default()).into_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the guest's console:\n{}", self.console());
        }
        drop(self.qemu.kill());
        drop(self.qemu.wait());
    }
}

/// Tells the log what is shown now.
fn step(begun: Instant, what: &str) {
    println!("vm: {what} ({:.0} s)", begun.elapsed().as_secs_f32());
}

/// A hook that says that it runs, and then waits to be let go on.
fn waiting_hook(bundle: &Path, port: u16) {
    let script = format!(
        "echo ran >>~/hook-ran\nbash -c 'exec 3<>/dev/tcp/10.0.2.2/{port} && echo here >&3 && read -r word <&3'\n"
    );
    std::fs::write(bundle.join("hooks/10-wait.sh"), script).unwrap();
}

#[test]
fn systemd_starts_the_agent_and_keeps_it_alive() {
    let begun = Instant::now();
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = door.local_addr().unwrap().port();
    let Some(mut machine) = Machine::boot(|bundle| waiting_hook(bundle, port)) else { return };
    let (root, ann) = (&machine.root, &machine.ann);

    // not ready before its time, and the step is told
    let mut steps = Vec::new();
    wait_for("the hook's step", BOOT, || {
        let Some((status, health)) = root.health() else { return false };
        assert_eq!((status, &health["stage"]), (503, &json!("installing")), "{health}");
        let waits_for = health["waiting_for"][0].clone();
        if steps.last() != Some(&waits_for) {
            steps.push(waits_for);
        }
        steps.last() == Some(&json!("hook 10-wait.sh"))
    });
    step(begun, &format!("503 with its step, in this order: {steps:?}"));
    let (stream, _) = door.accept().unwrap();
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).unwrap();
    assert_eq!(line, "here\n");
    wait_for("an answer while the hook waits", SOON, || root.health().is_some_and(|(status, _)| status == 503));
    (&stream).write_all(b"go\n").unwrap();
    root.wait_ready();
    step(begun, "200");

    as_systemd_sees_it(root);
    step(begun, "the unit is enabled and runs; whoami says service");
    comes_back_after_a_kill(root, "systemctl");
    step(begun, "killed, and started again by systemd; what a call had left behind lives on");
    a_user_installs_their_own(root, ann);
    step(begun, "a user's own agent, by systemd --user");
    comes_back_after_a_kill(ann, "systemctl --user");
    step(begun, "the same, killed and started again");

    let (was, anns) = (root.known_id(), ann.known_id());
    drop(root.exec("systemctl --no-block reboot").exits(0));
    machine.boot_again();
    let (root, ann) = (&machine.root, &machine.ann);
    root.wait_for_another(&was, "the agent after the reboot");
    ann.wait_for_another(&anns, "the user's agent after the reboot");
    let uptime = root.exec("cut -d . -f 1 /proc/uptime; cat ~/hook-ran").exits(0).stdout;
    let lines: Vec<&str> = uptime.lines().collect();
    assert!(lines[0].parse::<u64>().unwrap() < begun.elapsed().as_secs(), "it has not booted anew: {uptime}");
    assert_eq!(lines[1..], ["ran"], "a hook that has run does not run again");
    step(begun, "rebooted; both have come up by themselves");

    takes_itself_out(root, ann);
    step(begun, "uninstalled");
}

fn as_systemd_sees_it(root: &Account) {
    let status = root.exec(&format!("systemctl status --no-pager {UNIT}; systemctl is-enabled {UNIT}")).exits(0).stdout;
    assert!(status.contains("active (running)") && status.ends_with("enabled\n"), "{status}");
    let whoami = root.whoami();
    assert_eq!((&whoami["mode"], &whoami["elevated"]), (&json!("service"), &json!(true)), "{whoami}");
    let required = whoami["install"]["steps"].as_array().unwrap().iter().filter(|step| step["required"] == true);
    assert!(required.clone().count() >= 5 && required.clone().all(|step| step["state"] == "done"), "{whoami}");
    let told = root.exec("podlink agent status; ls /oem; stat -c %a /var/lib/podlink /var/lib/podlink/install.json");
    let told = told.exits(0).stdout;
    assert!(told.contains("complete, version") && told.contains("again when it crashes"), "{told}");
    assert!(told.ends_with("700\n600\n") && !told.contains("agent_token.txt"), "{told}");
    // the judge is systemd's own
    let judged = root.exec(&format!("systemd-analyze verify --man=no /etc/systemd/system/{UNIT} 2>&1")).exits(0);
    assert!(!judged.stdout.contains("podlink"), "{}", judged.stdout);
}

/// SIGKILL to the agent: systemd starts another, and what a call has left running does not end with it.
fn comes_back_after_a_kill(account: &Account, systemctl: &str) {
    let was = account.known_id();
    let left = account.exec("setsid sleep 8765 >/dev/null 2>&1 & echo $!").exits(0).stdout;
    let kill =
        format!("setsid sh -c 'sleep 1; kill -9 $({systemctl} show -p MainPID --value {UNIT})' >/dev/null 2>&1 &");
    drop(account.exec(&kill).exits(0));
    account.wait_for_another(&was, "the agent that systemd starts");
    let seen = account.exec(&format!("{systemctl} show -p NRestarts --value {UNIT}; kill {}", left.trim())).exits(0);
    assert_eq!(seen.stdout, "1\n", "started again once, and the process of before is there to be ended");
}

fn a_user_installs_their_own(root: &Account, ann: &Account) {
    let bundle = "~ann/bundle";
    let stage = format!(
        "install -d -o ann -g ann -m 700 {bundle} && install -o ann -g ann -m 755 /usr/local/bin/podlink {bundle}/podlink && \
         umask 077 && printf %s \"$ANN\" >{bundle}/agent_token.txt && chown ann: {bundle}/agent_token.txt"
    );
    let token = format!("ANN={}", ann.token);
    drop(root.pod(&["exec", "--env", &token, &stage]).run().exits(0));
    let as_ann = "setpriv --reuid ann --regid ann --init-groups env -i HOME=/home/ann PATH=/usr/bin:/bin XDG_RUNTIME_DIR=/run/user/1000";
    let installed = root.exec(&format!("cd / && {as_ann} {bundle}/podlink agent install --listen 0.0.0.0:8766 2>&1"));
    assert_eq!(installed.code, Some(0), "{installed:?}");
    assert!(installed.stdout.contains("to be started by systemd --user"), "{}", installed.stdout);
    ann.wait_ready();
    let whoami = ann.whoami();
    assert_eq!((&whoami["mode"], &whoami["user"]), (&json!("session"), &json!("ann")), "{whoami}");
    let status = ann.exec(&format!(
        "systemctl --user status --no-pager {UNIT}; podlink agent status || .local/bin/podlink agent status"
    ));
    let status = status.exits(0).stdout;
    assert!(status.contains("active (running)") && status.contains("loginctl enable-linger"), "{status}");
}

/// The system's first, looked at by the user's; then that.
fn takes_itself_out(root: &Account, ann: &Account) {
    drop(root.exec("setsid podlink agent uninstall >~/uninstalled 2>&1 &").exits(0));
    let gone = format!(
        "test ! -e /etc/systemd/system/{UNIT} && test ! -e /usr/local/bin/podlink && ! systemctl is-active --quiet {UNIT}"
    );
    wait_for("the system's agent to be gone", SOON, || ann.exec(&gone).code == Some(0));
    gone_for_good(root);
    drop(ann.exec("setsid .local/bin/podlink agent uninstall >uninstalled 2>&1 &").exits(0));
    gone_for_good(ann);
}

/// Longer than a slow answer: several tries in a row that nobody answers.
fn gone_for_good(account: &Account) {
    let mut silent = 0;
    wait_for("the agent to be gone", SOON, || {
        silent = if account.health().is_none() { silent + 1 } else { 0 };
        silent >= 5
    });
}
