//! systemd: a unit of the system's, or of the user's own manager.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, bail};

use super::super::spawn;
use crate::{
    guest::{
        RESTART_CODE,
        install::{Start, Tool, Verdict},
    },
    protocol::RunMode,
    token::replace_private,
};

/// The unit's name.
const UNIT: &str = "podlink-agent.service";

/// What tells the agent that the unit starts it again.
const RESTARTED: &str = "--restarted-by-manager";

/// systemd starts again what crashed.
pub(in crate::guest) const NEEDS_SUPERVISOR: bool = false;

/// Root's agent is the system's, a user's own the session's.
pub(in crate::guest) fn default_mode() -> RunMode {
    if rustix::process::geteuid().is_root() { RunMode::Service } else { RunMode::Session }
}

/// What starts the agent, in a few words.
pub(in crate::guest) const fn mode_name(mode: RunMode) -> &'static str {
    match mode {
        RunMode::Service => "systemd",
        RunMode::Session => "systemd --user",
        RunMode::Manual | RunMode::Unknown => "hand",
    }
}

/// What that means for whoever relies on the agent.
pub(in crate::guest) const fn mode_note(mode: RunMode) -> &'static str {
    match mode {
        RunMode::Service => "systemd starts the agent when the system boots, and again when it crashes",
        RunMode::Session => {
            "systemd --user starts the agent when this user logs on, and again when it crashes; it ends with the last \
             session unless `loginctl enable-linger` lets it stay"
        }
        RunMode::Manual | RunMode::Unknown => "nothing starts the agent but you",
    }
}

/// Has systemd start the agent from now on, and tells it so where it runs.
pub(in crate::guest) async fn register(start: &Start) -> Verdict {
    match try_register(start).await {
        Ok(said) => Verdict::Done(said),
        Err(error) => Verdict::failed(error),
    }
}

async fn try_register(start: &Start) -> anyhow::Result<Option<String>> {
    let is_root = rustix::process::geteuid().is_root();
    if start.mode == RunMode::Service && !is_root {
        bail!("a unit of the system's takes root; `--mode session` makes one of this user's");
    }
    let runs = runs(start);
    if !runs && !["/usr/lib/systemd/systemd", "/lib/systemd/systemd"].iter().any(|path| below(start, path).exists()) {
        bail!(
            "there is no systemd here that could start the agent; `--mode manual` leaves that to you, by this line: {}",
            start.line()
        );
    }
    let folder = unit_folder(start)?;
    let unit = folder.join(UNIT);
    let text = unit_text(start);
    let known = fs_err::read_to_string(&unit).ok();
    if known.as_deref() != Some(text.as_str()) {
        fs_err::create_dir_all(&folder)?;
        replace_private(&unit, text.as_bytes())?;
        // it holds no secret, and `systemctl cat` is everybody's
        fs_err::set_permissions(&unit, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    }
    let wanted = wanted(start, &folder);
    if std::fs::read_link(&wanted).ok().as_deref() != Some(&unit) {
        if let Some(folder) = wanted.parent() {
            fs_err::create_dir_all(folder)?;
        }
        match std::fs::remove_file(&wanted) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        fs_err::os::unix::fs::symlink(&unit, &wanted)?;
    }
    if runs {
        systemctl(start, &["daemon-reload"]).await?;
        return Ok(None);
    }
    Ok(Some("systemd does not run here now; it starts the agent when it does".to_owned()))
}

/// Undoes that.
pub(in crate::guest) async fn unregister(start: &Start) -> Verdict {
    if start.mode == RunMode::Manual {
        return Verdict::DONE;
    }
    let undo = async {
        let folder = unit_folder(start)?;
        for path in [wanted(start, &folder), folder.join(UNIT)] {
            match fs_err::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(anyhow::Error::from(error)),
                _ => {}
            }
        }
        if runs(start) {
            systemctl(start, &["daemon-reload"]).await?;
        }
        Ok(())
    };
    undo.await.map_or_else(Verdict::failed, |()| Verdict::DONE)
}

/// The unit that starts the agent; `None` where it is not there, or not wanted.
pub(in crate::guest) async fn registered(start: &Start) -> Option<String> {
    let folder = unit_folder(start).ok()?;
    let unit = folder.join(UNIT);
    (unit.is_file() && wanted(start, &folder).exists()).then(|| unit.display().to_string())
}

/// Starts the agent now: by systemd where it is to and runs, else beside us.
pub(in crate::guest) async fn start_agent(start: &Start) -> anyhow::Result<()> {
    if start.mode != RunMode::Manual && runs(start) {
        return systemctl(start, &["restart", UNIT]).await;
    }
    #[expect(clippy::disallowed_methods, reason = "the agent itself, which is to outlive this process")]
    let mut command = tokio::process::Command::new(&start.exe);
    command.args(&start.args).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // a call's mark would make the agent one of its call's processes
    command.env_remove(super::super::tree::MARK);
    spawn::in_session_of_its_own(&mut command, None, None);
    command.spawn().with_context(|| format!("cannot start {}", start.exe.display()))?;
    Ok(())
}

/// Below the root that was named, for tests and for images that are made elsewhere.
fn below(start: &Start, path: &str) -> PathBuf {
    match &start.root {
        Some(root) => root.join(path.trim_start_matches('/')),
        None => path.into(),
    }
}

/// Whether the manager runs that is to be told: as systemd's own `sd_booted` has it.
fn runs(start: &Start) -> bool {
    below(start, "/run/systemd/system").is_dir()
}

fn unit_folder(start: &Start) -> anyhow::Result<PathBuf> {
    if start.mode == RunMode::Service {
        return Ok(below(start, "/etc/systemd/system"));
    }
    let config = dirs::config_dir().context("no home folder is known, where a user's units lie")?;
    Ok(config.join("systemd/user"))
}

fn wanted(start: &Start, folder: &Path) -> PathBuf {
    let target = if start.mode == RunMode::Service { "multi-user.target.wants" } else { "default.target.wants" };
    folder.join(target).join(UNIT)
}

async fn systemctl(start: &Start, args: &[&str]) -> anyhow::Result<()> {
    let mut all = if start.mode == RunMode::Session { vec!["--user"] } else { Vec::new() };
    all.extend(args);
    let done = Tool::run("systemctl", &all).await.context("systemctl could not be run")?;
    anyhow::ensure!(done.succeeded, "`systemctl {}`: {}", all.join(" "), done.said);
    Ok(())
}

/// The unit.
///
/// `KillMode=process`: what calls have left running goes on, as it does when the agent ends in any other way.
/// `Delegate=`: calls are held by control groups below the unit's own. Without `User=` there would be no `HOME`.
fn unit_text(start: &Start) -> String {
    let words = std::iter::once(start.exe.to_string_lossy().into_owned()).chain(start.args.iter().cloned());
    let line = words.chain([RESTARTED.to_owned()]).map(|word| quoted(&word)).collect::<Vec<_>>().join(" ");
    let (after, user, target) = match start.mode {
        RunMode::Service => ("After=network.target\n", "User=root\n", "multi-user.target"),
        _ => ("", "", "default.target"),
    };
    format!(
        "# Written by `podlink agent install`; `podlink agent uninstall` removes it.\n\
         [Unit]\n\
         Description=podlink agent: makes this guest scriptable from its host\n\
         {after}StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         Type=exec\n\
         {user}ExecStart={line}\n\
         Restart=on-failure\n\
         RestartSec=1\n\
         RestartForceExitStatus={RESTART_CODE}\n\
         SuccessExitStatus={RESTART_CODE}\n\
         KillMode=process\n\
         Delegate=yes\n\
         TimeoutStopSec=30\n\
         \n\
         [Install]\n\
         WantedBy={target}\n"
    )
}

/// As systemd reads a word: between quotes, with its own escapes and without its specifiers and variables.
fn quoted(word: &str) -> String {
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(mode: RunMode) -> Start {
        let args = ["agent", "serve", "--state-dir", "/var/lib/a b%\"$c\\"].map(str::to_owned).into();
        Start { mode, exe: "/usr/bin/true".into(), args, root: None }
    }

    #[test]
    fn words_are_quoted() {
        assert_eq!(quoted("a b%\"$c\\"), r#""a b%%\"$$c\\""#);
    }

    #[test]
    fn systemd_takes_the_units() {
        let Ok(found) = which("systemd-analyze") else {
            println!("skipped: there is no systemd-analyze to ask");
            return;
        };
        let top = tempfile::tempdir().unwrap();
        for mode in [RunMode::Service, RunMode::Session] {
            let unit = top.path().join(UNIT);
            fs_err::write(&unit, unit_text(&start(mode))).unwrap();
            let how = if mode == RunMode::Session { "--user" } else { "--system" };
            #[expect(clippy::disallowed_methods, reason = "the judge")]
            let judged =
                std::process::Command::new(&found).args(["verify", "--man=no", how]).arg(&unit).output().unwrap();
            let said = String::from_utf8_lossy(&judged.stderr).into_owned();
            let about_us: Vec<&str> = said.lines().filter(|line| line.contains("podlink")).collect();
            assert!(about_us.is_empty(), "{said}");
        }
        // and it would complain
        let unit = top.path().join(UNIT);
        fs_err::write(&unit, unit_text(&start(RunMode::Service)).replace("Restart=on-failure", "Restart=perhaps"))
            .unwrap();
        #[expect(clippy::disallowed_methods, reason = "the judge")]
        let judged = std::process::Command::new(&found).args(["verify", "--man=no"]).arg(&unit).output().unwrap();
        // how it is put differs between versions; what was wrong is named by all
        let said = String::from_utf8_lossy(&judged.stderr).into_owned();
        assert!(said.contains("perhaps"), "{said}");
    }

    fn which(name: &str) -> std::io::Result<PathBuf> {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file());
        found.ok_or_else(|| ErrorKind::NotFound.into())
    }
}
