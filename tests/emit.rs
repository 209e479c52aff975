//! `setup --emit`: what podman's generator, systemd, PyYAML and Kubernetes' own schemas make of what it prints.

use std::{
    io::Write as _,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{Cli, cli::Run};

/// Texts that some reader on the way takes for something else.
const HOSTILE: &[&str] = &[
    "yes",
    "NO",
    "null",
    "~",
    "0123",
    "1e3",
    "0x1F",
    "1_000",
    "22:22",
    "2026-11-29",
    ".inf",
    "a: b",
    "- a",
    "? a",
    "#",
    "a #b",
    "$HOME",
    "${HOME}",
    "$(HOME)",
    "$$",
    "$",
    "a$",
    "%h",
    "%%",
    "%",
    "'",
    "\"",
    "''\"\"",
    "\\",
    "\\n",
    "a\\",
    "\\x41",
    "`id`",
    "{a}",
    "[a",
    "&a",
    "*a",
    "!a",
    "|",
    ">",
    "@",
    ";",
    "PASSWORD=x",
    "--privileged",
    "ä😀 漢",
    "a\nb",
    "a\n---\nb: c",
    "a\nPrivileged=true",
    "\n",
    "a\tb",
    " before",
    "after ",
    "\u{2028}",
    "\u{feff}a",
];

/// The name of the folder that holds the pods, which stands in each volume.
const HOME_NAME: &str = "ho me%h$HOME\\n'q\"#é";

/// The pods of a test: pod `p<n>` has the n-th text as its user, and another as its password.
fn users_and_passwords() -> impl Iterator<Item = (String, &'static str, &'static str)> {
    let passwords = HOSTILE.iter().rev();
    HOSTILE.iter().zip(passwords).enumerate().map(|(n, (user, password))| (format!("p{n}"), *user, *password))
}

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn podlink(&self, args: &[&str]) -> Run {
        // no engine on PATH: none is needed to describe a pod
        Cli::new(args).home(&self.0.path().join(HOME_NAME)).env("PATH", "/nowhere").run()
    }

    fn password_file(&self, password: &str) -> String {
        let file = self.0.path().join("password");
        // less one line end, as it is read
        std::fs::write(&file, format!("{password}\n")).unwrap();
        file.to_str().unwrap().to_owned()
    }

    fn emit(&self, form: &str, pod: &str, user: &str, password: &str) -> Run {
        let (user, file) = (format!("--user={user}"), self.password_file(password));
        self.podlink(&["setup", "--emit", form, "--pod", pod, &user, "--password-file", &file])
    }

    /// Everything below `PODLINK_HOME`.
    fn files(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.0.path().join(HOME_NAME))
            .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
            .unwrap_or_default()
    }
}

/// What a script in tests/tools has put into target/, or what the variable names; `None`, said aloud, where neither is.
fn tool(variable: &str, script: &str, places: &[&str]) -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tools");
    let named = std::env::var_os(variable).map(PathBuf::from);
    let found = named.or_else(|| places.iter().map(|place| tools.join(place)).find(|path| path.exists()));
    if found.is_none() {
        eprintln!("skipped: tests/tools/{script} has not been run, and {variable} names nothing");
    }
    found
}

#[test]
fn it_prints_the_pod_that_is_there_and_writes_nothing() {
    let home = Home::new();
    let new = home.emit("kubernetes", "lab", "a", "hunter2").exits(0);
    assert!(new.stderr.contains("holds the agent's token and the guest's password"), "{}", new.stderr);
    assert!(new.stderr.contains("without --emit first"), "{}", new.stderr);
    assert_eq!((new.stderr.lines().count(), home.files()), (1, vec![]));

    let file = home.password_file("hunter2");
    let run = home.podlink(&["setup", "--pod", "lab", "--engine", "podman", "--password-file", &file]).exits(0);
    assert!(!run.stdout.contains("hunter2"), "{}", run.stdout);
    let dir = home.0.path().join(HOME_NAME).join("lab");
    let token = std::fs::read_to_string(dir.join("agent_token.txt")).unwrap();
    let before = std::fs::metadata(dir.join("pod.yaml")).unwrap().modified().unwrap();
    for form in ["kubernetes", "quadlet"] {
        let run = home.podlink(&["setup", "--pod", "lab", "--emit", form]).exits(0);
        assert!(run.stdout.contains("hunter2"), "{}", run.stdout);
        assert_eq!(run.stdout.contains(token.trim()), form == "kubernetes", "the quadlet mounts the token's folder");
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        assert!(!run.stderr.contains("first"), "{}", run.stderr);
        assert!(!run.stderr.contains("hunter2") && !run.stderr.contains(token.trim()), "{}", run.stderr);
        assert_eq!(run.stdout, home.podlink(&["setup", "--pod", "lab", "--emit", form]).exits(0).stdout);
    }
    assert_eq!(std::fs::metadata(dir.join("pod.yaml")).unwrap().modified().unwrap(), before);
    let run = home.podlink(&["setup", "--pod", "lab", "--emit", "quadlet", "--ram", "8G"]).exits(0);
    assert!(run.stdout.contains("RAM_SIZE=8G") && run.stderr.contains("first"), "{}", run.stderr);
}

#[test]
fn what_it_cannot_do_it_says() {
    let home = Home::new();
    for other in ["--json", "--dry-run"] {
        let run = home.podlink(&["setup", "--emit", "quadlet", other]).exits(2);
        let said = if other == "--json" { &run.stdout } else { &run.stderr };
        assert!(said.contains("cannot be used with"), "{said}");
    }
    let run = home.podlink(&["setup", "--emit", "helm"]).exits(2);
    assert!(run.stderr.contains("kubernetes"), "{}", run.stderr);
    let run = home.podlink(&["setup", "--emit", "quadlet", "--engine", "local"]).exits(125);
    assert!(run.stderr.contains("no container to describe") && run.stdout.is_empty(), "{}", run.stderr);
    for form in ["kubernetes", "quadlet"] {
        for secret in ["hunter2\u{1}", "hunter2\rx", "hunter2\u{85}", "hunter2\u{fdd0}", "hunter2\u{ffff}"] {
            let run = home.emit(form, "lab", "a", secret).exits(125);
            assert!(run.stderr.contains("the password holds a character"), "{}", run.stderr);
            assert!(!run.stderr.contains("hunter2") && run.stdout.is_empty(), "{}", run.stderr);
        }
    }
    assert_eq!(home.files(), Vec::<PathBuf>::new());
}

/// Reads all with PyYAML, holds each object against the API's schema, and gives back what was read.
const VALIDATE: &str = r#"
import json, sys, warnings
warnings.simplefilter("ignore")
import kubernetes_validate, yaml
texts, versions = json.load(sys.stdin)
read = [list(yaml.safe_load_all(text)) for text in texts]
for number, documents in enumerate(read):
    for document in documents:
        # the content is the same but for the texts, so all versions are asked once
        for version in versions if number == 0 else versions[-1:]:
            used = kubernetes_validate.validate(document, version, strict=True)
            assert used == version, (used, version)
broken = dict(read[0][2], spec=dict(read[0][2]["spec"], replicas="1"))
try:
    kubernetes_validate.validate(broken, versions[-1], strict=True)
except kubernetes_validate.ValidationError:
    pass
else:
    raise SystemExit("the validator is content with anything")
json.dump(read, sys.stdout)
"#;

#[test]
fn kubernetes_takes_the_manifest_and_all_readers_see_the_same() {
    let place = "kubernetes-validate/bin/python";
    let Some(python) = tool("PODLINK_TEST_KUBERNETES_VALIDATE", "kubernetes-validate", &[place]) else { return };
    let home = Home::new();
    let emitted: Vec<String> = users_and_passwords()
        .map(|(pod, user, password)| home.emit("kubernetes", &pod, user, password).exits(0).stdout)
        .collect();

    let mut child = Command::new(python)
        .args(["-c", VALIDATE])
        .env("PYTHONIOENCODING", "utf-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = json!([emitted, ["1.25", "1.31", "1.37"]]).to_string();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Vec<Vec<Value>> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(read.len(), HOSTILE.len());

    for ((documents, text), (_, user, password)) in read.iter().zip(&emitted).zip(users_and_passwords()) {
        let ours: Vec<Value> = serde_yaml::from_multiple(text).unwrap();
        assert_eq!(*documents, ours);
        let kinds: Vec<&str> = documents.iter().map(|document| document["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["Secret", "PersistentVolumeClaim", "Deployment", "Service"]);
        let [secret, _, deployment, service] = &documents[..] else { unreachable!() };
        assert_eq!(secret["stringData"]["password"], password);
        let pod = &deployment["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let env = |name: &str| container["env"].as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap();
        assert_eq!(expanded(env("USERNAME")["value"].as_str().unwrap()), user);
        let reference = &env("PASSWORD")["valueFrom"]["secretKeyRef"];
        assert_eq!(*reference, json!({ "name": secret["metadata"]["name"], "key": "password" }));

        // both legs, and the way to the token
        assert_eq!(env("USER_PORTS")["value"], "8765");
        let agent = json!({ "name": "agent", "port": 8765, "targetPort": 8765, "protocol": "TCP" });
        assert!(service["spec"]["ports"].as_array().unwrap().contains(&agent));
        assert_eq!(service["spec"]["selector"], deployment["spec"]["selector"]["matchLabels"]);
        let probe = &container["readinessProbe"]["httpGet"];
        assert_eq!((&probe["path"], &probe["port"]), (&json!("/health"), &json!(8765)));
        assert_eq!(probe["httpHeaders"], json!([{ "name": "Host", "value": "localhost" }]));
        assert!(container.get("livenessProbe").is_none(), "nothing may kill an installation");
        let token = secret["stringData"]["agent_token.txt"].as_str().unwrap();
        assert!(token.len() == 65 && token.ends_with('\n'));
        let mount = json!({ "name": "secret", "mountPath": "/oem/agent_token.txt", "subPath": "agent_token.txt", "readOnly": true });
        assert!(container["volumeMounts"].as_array().unwrap().contains(&mount));
    }
}

/// What Kubernetes makes of a variable's `value` where no variable is defined before it: `$$` is `$`, and
/// `$(NAME)` would be replaced (`third_party/forked/golang/expansion` in its source).
fn expanded(text: &str) -> String {
    let mut expanded = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('$', Some('$')) => expanded.extend(chars.next()),
            ('$', Some('(')) => panic!("{text:?} holds a reference"),
            (c, _) => expanded.push(c),
        }
    }
    expanded
}

#[test]
fn podman_and_systemd_make_of_the_quadlet_what_was_meant() {
    let Some(quadlet) = tool("PODLINK_TEST_QUADLET", "quadlet", &["quadlet"]) else { return };
    let systemds = ["/usr/lib/systemd/systemd", "/lib/systemd/systemd"].map(Path::new);
    let Some(systemd) = systemds.into_iter().find(|path| path.exists()) else {
        eprintln!("skipped: no systemd, which reads what podman's generator writes");
        return;
    };
    let home = Home::new();
    // systemd's test mode refuses root, so that another user must be able to read the units
    std::fs::set_permissions(home.0.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let [units, services, runtime] = ["units", "services", "runtime"].map(|name| {
        let folder = home.0.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        folder
    });
    for (pod, user, password) in users_and_passwords() {
        let text = home.emit("quadlet", &pod, user, password).exits(0).stdout;
        std::fs::write(units.join(format!("podlink-{pod}.container")), text).unwrap();
    }

    let generator = |args: &[&std::ffi::OsStr]| {
        let output = Command::new(&quadlet).args(args).env("QUADLET_UNIT_DIRS", &units).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        (String::from_utf8_lossy(&output.stdout).into_owned(), errors)
    };
    let (dry_run, errors) = generator(&["-dryrun".as_ref(), "-user".as_ref()]);
    assert!(!errors.to_lowercase().contains("error") && !errors.contains("unsupported"), "{errors}");
    assert_eq!(dry_run.matches("---podlink-p").count(), HOSTILE.len());
    generator(&["-user".as_ref(), services.as_os_str()]);

    let dump = units_as_systemd_reads_them(systemd, &services, &runtime);
    for (pod, user, password) in users_and_passwords() {
        let (_, rest) = dump.split_once(&format!("-> Unit podlink-{pod}.service:\n")).unwrap();
        let unit = rest.split("\n-> Unit ").next().unwrap();
        // as it stands there, line ends and all
        let (_, rest) = unit.split_once("\t\tEnvironment: PASSWORD=").unwrap();
        let (found, _) = rest.split_once("\n\t\tEnvironment: PODMAN_SYSTEMD_UNIT=").unwrap();
        assert_eq!(found, password, "{pod}");

        let line = unit.lines().find_map(|line| line.trim().strip_prefix("Command Line: ")).unwrap();
        let argv = words(line);
        assert_eq!(argv[..2], ["/usr/bin/podman", "run"]);
        let of = |flag: &str| -> Vec<&str> {
            argv.windows(2).filter(|pair| pair[0] == flag).map(|pair| pair[1].as_str()).collect()
        };
        // the machine's own zone, where it has one
        let mut env: Vec<&str> = of("--env").into_iter().filter(|text| !text.starts_with("TZ=")).collect();
        env.sort_unstable();
        let user = format!("USERNAME={user}");
        let mut meant =
            ["CPU_CORES=2", "DISK_SIZE=64G", "PASSWORD", "RAM_SIZE=4G", &user, "USER_PORTS=8765", "VERSION=11"];
        meant.sort_unstable();
        assert_eq!(env, meant, "{pod}: {line}");
        assert_eq!(of("--stop-timeout"), ["120"]);
        assert_eq!(of("--cap-add"), ["net_admin"]);
        assert_eq!(of("--label")[0], format!("io.podlink.pod={pod}"));
        let devices = ["/dev/kvm", "/dev/net/tun"].into_iter().filter(|device| Path::new(device).exists());
        assert_eq!(of("--device"), devices.collect::<Vec<_>>());
        let folder = home.0.path().join(HOME_NAME).join(&pod);
        let mounts = [("oem", "/oem"), ("share", "/shared"), ("storage", "/storage")]
            .map(|(name, inside)| format!("{}:{inside}:Z", folder.join(name).display()));
        assert_eq!(of("-v"), mounts);
        let published = of("--publish");
        assert_eq!(published.len(), 4);
        assert!(published.iter().all(|port| port.starts_with("127.0.0.1:")), "{published:?}");
        assert!(published.iter().any(|port| port.ends_with(":8765/tcp")), "{published:?}");
        assert!(!argv.iter().any(|word| word == "--privileged"), "{line}");
        assert!(argv.last().unwrap().starts_with("docker.io/dockurr/windows"), "{line}");
        for line in ["Restart: always", "TimeoutStopSec: 2min 30s", "WantedBy: default.target"] {
            assert!(unit.lines().any(|found| found.trim().starts_with(line)), "{line} is not in {unit}");
        }
    }
}

/// The units as a systemd that starts nothing shows them.
fn units_as_systemd_reads_them(systemd: &Path, services: &Path, runtime: &Path) -> String {
    let is_root = rustix::process::geteuid().is_root();
    let mut command = if is_root {
        const NOBODY: u32 = 65534;
        std::os::unix::fs::chown(runtime, Some(NOBODY), Some(NOBODY)).unwrap();
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]).arg(systemd);
        command
    } else {
        Command::new(systemd)
    };
    std::fs::set_permissions(runtime, PermissionsExt::from_mode(0o700)).unwrap();
    let output = command
        .args(["--user", "--test", "--no-pager", "--unit=default.target"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", runtime)
        .env("XDG_RUNTIME_DIR", runtime)
        .env("SYSTEMD_UNIT_PATH", format!("{}:", services.display()))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// A command line as systemd shows it, and `$$` as it is when systemd has executed it.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut chars, mut is_quoted) = (line.chars(), false);
    while let Some(c) = chars.next() {
        match c {
            ' ' if !is_quoted => words.push(String::new()),
            '"' => is_quoted = !is_quoted,
            '\\' => words.last_mut().unwrap().push(match chars.next().unwrap() {
                'n' => '\n',
                't' => '\t',
                c => c,
            }),
            c => words.last_mut().unwrap().push(c),
        }
    }
    for word in &mut words {
        let dollars = word.matches('$').count();
        assert_eq!((dollars, word.matches("$$").count() * 2), (dollars, dollars), "{word:?} names a variable");
        *word = word.replace("$$", "$");
    }
    words
}
