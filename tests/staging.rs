//! What `podlink setup` stages for a Windows guest: its agent, if it is the right one, and what installs it.

use std::{
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use podlink::{
    host::{NoWindowsExe, WindowsExe},
    token,
};

use crate::support::{Port, cli::Run, pe::FakeExe};

/// A home, and a podlink with files of its own beside it.
struct Bed {
    top: tempfile::TempDir,
    ports: [Port; 3],
}

impl Bed {
    fn new() -> Self {
        let bed =
            Self { top: tempfile::tempdir().unwrap(), ports: [Port::reserve(), Port::reserve(), Port::reserve()] };
        let own = env!("CARGO_BIN_EXE_podlink");
        std::fs::create_dir(bed.path("bin")).unwrap();
        std::fs::hard_link(own, bed.path("bin/podlink"))
            .or_else(|_| std::fs::copy(own, bed.path("bin/podlink")).map(drop))
            .unwrap();
        bed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    fn oem(&self, name: &str) -> PathBuf {
        self.path("home/windows/oem").join(name)
    }

    fn file(&self, name: &str, content: &[u8]) -> String {
        std::fs::write(self.path(name), content).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    /// `podlink setup …` by the podlink of this bed.
    fn setup(&self, args: &[&str]) -> Run {
        self.podlink(&[&["setup"], args].concat())
    }

    fn podlink(&self, args: &[&str]) -> Run {
        let mut command = Command::new(self.path("bin/podlink"));
        command.args(args).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        let output = command.env("PODLINK_HOME", self.path("home")).output().unwrap();
        Run {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            took: std::time::Duration::ZERO,
        }
    }

    fn first(&self, args: &[&str]) -> Run {
        let [agent, rdp, web] = self.ports.each_ref().map(|port| port.number().to_string());
        let ports = ["--agent-port", &agent, "--rdp-port", &rdp, "--web-port", &web];
        self.setup(&[&["--engine", "podman"], &ports[..], args].concat())
    }

    /// What `doctor` sees in the pod's folder: how it is, and the sentence.
    fn files(&self) -> (String, String) {
        let report = self.podlink(&["pod", "doctor", "--json"]).json();
        let all = report["checks"].as_array().unwrap();
        let check = all.iter().find(|check| check["name"] == "files").unwrap();
        (check["status"].as_str().unwrap().to_owned(), check["seen"].as_str().unwrap().to_owned())
    }

    /// What `--json` calls the agent's executable.
    fn fate(&self, args: &[&str]) -> String {
        let run = self.setup(&[&["--json"], args].concat()).exits(0);
        run.json()["agent_exe"].as_str().unwrap().to_owned()
    }
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

fn right(tail: &[u8]) -> Vec<u8> {
    FakeExe { tail, ..FakeExe::RIGHT }.bytes()
}

#[test]
fn the_agent_is_staged_with_what_installs_it_and_stays() {
    let bed = Bed::new();
    let exe = bed.file("agent.exe", &right(b"one"));
    let run = bed.first(&["--agent-exe", &exe]).exits(0);
    assert!(run.stdout.contains("podlink.exe") && !run.stderr.contains("WARNING: no podlink.exe"), "{}", run.stderr);
    assert_eq!(read(&bed.oem("podlink.exe")), right(b"one"));
    assert_eq!(
        read(&bed.oem("install.bat")),
        read(Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/oem/install.bat").as_path())
    );
    for name in ["podlink.exe", "install.bat", "agent_token.txt"] {
        assert_eq!(std::fs::metadata(bed.oem(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }

    // what is the user's stays, and so does what is staged
    std::fs::create_dir(bed.oem("hooks")).unwrap();
    std::fs::write(bed.oem("hooks/10-mine.cmd"), "echo mine\r\n").unwrap();
    let inode = std::fs::metadata(bed.oem("podlink.exe")).unwrap().ino();
    assert_eq!(bed.fate(&["--ram", "8G"]), "kept");
    assert_eq!(bed.setup(&["--json"]).exits(0).json()["changed"], false);
    assert_eq!(std::fs::metadata(bed.oem("podlink.exe")).unwrap().ino(), inode, "it is not touched");
    assert_eq!(read(&bed.oem("hooks/10-mine.cmd")), b"echo mine\r\n");

    // one that was made readable for others, or edited, is put right
    std::fs::write(bed.oem("install.bat"), "@echo off\r\nrem podlink: an older one\r\n").unwrap();
    let other = bed.file("other.exe", &right(b"two"));
    let dry = bed.setup(&["--agent-exe", &other, "--dry-run"]).exits(0);
    assert!(dry.stdout.contains("Binary file") && dry.stdout.contains("other.exe"), "{}", dry.stdout);
    assert!(dry.stdout.contains("-rem podlink: an older one"), "{}", dry.stdout);
    assert_eq!(read(&bed.oem("podlink.exe")), right(b"one"), "nothing is written");
    let run = bed.setup(&["--agent-exe", &other]).exits(0);
    assert!(run.stderr.contains("takes effect with `podlink pod up"), "{}", run.stderr);
    assert_eq!(read(&bed.oem("podlink.exe")), right(b"two"));
}

#[test]
fn a_wrong_one_is_refused_and_nothing_is_written() {
    let bed = Bed::new();
    let whole = right(b"");
    let other_version = FakeExe { version: Some("0.0.9"), ..FakeExe::RIGHT }.bytes();
    let cases: [(&[u8], &str); 7] = [
        (b"#!/bin/sh\n", "no executable for Windows"),
        (&std::fs::read("/proc/self/exe").unwrap(), "no executable for Windows"),
        (&whole[..whole.len() - 20], "cut short"),
        (&FakeExe { machine: 0xaa64, ..FakeExe::RIGHT }.bytes(), "another processor"),
        (&FakeExe { product: "calc", ..FakeExe::RIGHT }.bytes(), "another program: calc"),
        (&FakeExe { version: None, ..FakeExe::RIGHT }.bytes(), "does not say its version"),
        (&other_version, concat!("it is podlink 0.0.9, and this is podlink ", env!("CARGO_PKG_VERSION"))),
    ];
    for (content, reason) in cases {
        for name in ["given.exe", "bin/podlink.exe"] {
            let path = bed.file(name, content);
            let args = if name == "given.exe" { vec!["--agent-exe", &path] } else { vec![] };
            let run = bed.first(&args).exits(125);
            assert!(
                run.stderr.contains(reason) && run.stderr.contains("build-windows-guest"),
                "{reason}: {}",
                run.stderr
            );
            assert!(run.stderr.contains(name), "{}", run.stderr);
            assert!(!bed.path("home/windows").exists(), "{reason}");
        }
        std::fs::remove_file(bed.path("bin/podlink.exe")).unwrap();
    }
    let run = bed.first(&["--agent-exe", "/nowhere/podlink.exe"]).exits(125);
    assert!(run.stderr.contains("/nowhere/podlink.exe"), "{}", run.stderr);
    // and for guests that get none
    let exe = bed.file("agent.exe", &whole);
    let run = bed.setup(&["--engine", "local", "--agent-exe", &exe]).exits(125);
    assert!(run.stderr.contains("Windows guests"), "{}", run.stderr);
}

#[test]
fn it_is_found_beside_the_program_and_another_build_is_named() {
    let bed = Bed::new();
    bed.file("bin/podlink.exe", &right(b"one"));
    let run = bed.first(&["--json"]).exits(0);
    assert_eq!(run.json()["agent_exe"], "beside");
    assert_eq!(read(&bed.oem("podlink.exe")), right(b"one"));

    bed.file("bin/podlink.exe", &right(b"two"));
    let run = bed.setup(&[]).exits(0);
    assert!(
        run.stderr.contains("another build of the same version") && run.stderr.contains("--agent-exe"),
        "{}",
        run.stderr
    );
    assert_eq!(read(&bed.oem("podlink.exe")), right(b"one"));

    // after an update of podlink the staged one is of another version
    std::fs::write(bed.oem("podlink.exe"), FakeExe { version: Some("0.0.9"), ..FakeExe::RIGHT }.bytes()).unwrap();
    assert_eq!(bed.fate(&[]), "beside");
    assert_eq!(read(&bed.oem("podlink.exe")), right(b"two"));
}

#[test]
fn where_there_is_none_it_is_said_and_all_else_is_made() {
    let bed = Bed::new();
    let run = bed.first(&[]).exits(0);
    assert!(
        run.stderr.contains("WARNING: no podlink.exe was found") && run.stderr.contains("--agent-exe"),
        "{}",
        run.stderr
    );
    assert!(bed.oem("agent_token.txt").exists() && !bed.oem("install.bat").exists());
    let run = bed.setup(&["--json"]).exits(0);
    assert_eq!((&run.json()["agent_exe"], &run.json()["changed"]), (&"missing".into(), &false.into()));
    assert!(run.json()["warnings"].to_string().contains("build-windows-guest"), "{}", run.stdout);

    let (status, seen) = bed.files();
    assert!(status == "warning" && seen.contains("podlink.exe is not the guest's agent: there is none"), "{seen}");

    token::replace_private(&bed.oem("podlink.exe"), b"MZ, by a program that crashed").unwrap();
    let run = bed.setup(&[]).exits(0);
    assert!(run.stderr.contains("not the right one") && run.stderr.contains("no executable"), "{}", run.stderr);
    let (status, seen) = bed.files();
    assert!(status == "warning" && seen.contains("no executable"), "{seen}");

    let exe = bed.file("right.exe", &right(b""));
    bed.setup(&["--agent-exe", &exe]).exits(0);
    assert_eq!(bed.files().0, "ok");
}

#[test]
fn an_install_bat_of_the_users_is_not_overwritten() {
    let bed = Bed::new();
    bed.first(&[]).exits(0);
    std::fs::write(bed.oem("install.bat"), "echo mine\r\n").unwrap();
    let exe = bed.file("agent.exe", &right(b""));
    let run = bed.setup(&["--agent-exe", &exe]).exits(125);
    assert!(run.stderr.contains("is not podlink's") && run.stderr.contains("hooks"), "{}", run.stderr);
    assert_eq!(read(&bed.oem("install.bat")), b"echo mine\r\n");
    assert!(!bed.oem("podlink.exe").exists());
}

#[test]
fn other_guests_get_no_agent() {
    let bed = Bed::new();
    bed.file("bin/podlink.exe", &right(b""));
    let run = bed.first(&["--guest", "linux", "--image", "localhost/some:1", "--json"]).exits(0);
    assert!(run.json().get("agent_exe").is_none(), "{}", run.stdout);
    assert!(!bed.oem("podlink.exe").exists() && !bed.oem("install.bat").exists());
}

#[test]
fn what_is_staged_for_another_agent_is_told_of() {
    let bed = Bed::new();
    let exe = bed.file("right.exe", &right(b""));
    assert!(!bed.first(&["--agent", "winpodx"]).exits(0).stderr.contains("remove it"));
    bed.setup(&["--agent", "podlink", "--agent-exe", &exe]).exits(0);
    let run = bed.setup(&["--agent", "winpodx"]).exits(0);
    assert!(run.stderr.contains("install.bat is podlink's own") && run.stderr.contains("remove it"), "{}", run.stderr);
    std::fs::remove_file(bed.oem("install.bat")).unwrap();
    assert!(!bed.setup(&["--agent", "winpodx"]).exits(0).stderr.contains("remove it"));
}

/// The reader against executables that a real linker has made.
#[test]
fn a_real_executable_is_read() {
    let bed = Bed::new();
    let compiler = "x86_64-w64-mingw32-gcc";
    if Command::new(compiler).arg("--version").output().is_err() {
        println!("skipped: needs {compiler}");
        return;
    }
    let source = bed.file("a.c", b"int main(void) { return 3; }\n");
    for (flag, is_without_console) in [("-mconsole", false), ("-mwindows", true)] {
        let exe = bed.path("a.exe");
        let output = Command::new(compiler).args([flag, &source, "-o"]).arg(&exe).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let bytes = read(&exe);
        let exe = WindowsExe::parse(&bytes).unwrap();
        assert!(exe.is_x86_64 && exe.is_without_console == is_without_console, "{exe:?}");
        assert_eq!((exe.product, exe.version), (None, None));
        assert_eq!(exe.imports, ["kernel32.dll", "msvcrt.dll"]);
        assert_eq!(WindowsExe::parse(&bytes[..bytes.len() / 2]), Err(NoWindowsExe::CutShort));
    }
}

/// Windows' own tools want these line ends, and code pages differ.
#[test]
fn what_goes_to_windows_is_ascii_with_crlf() {
    let mut seen = 0;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/oem");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = read(&path);
        assert!(bytes.is_ascii(), "{}", path.display());
        assert!(bytes.ends_with(b"\r\n"), "{}", path.display());
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_right = line.strip_suffix(b"\r\n").is_some_and(|text| !text.contains(&b'\r'));
            assert!(is_right, "{}: {}", path.display(), String::from_utf8_lossy(line));
        }
        seen += 1;
    }
    assert!(seen >= 2);
}
