//! What is staged for a Windows guest besides its token: its agent, and the file that installs it.

use std::path::{Path, PathBuf};

use super::{
    guest_exe::{self, GUEST_EXE, GuestExe, INSTALL_BAT, INSTALL_BAT_TEXT},
    planned_file::{Change, Content, PlannedFile, read_bytes},
};
use crate::host::{AgentKind, EngineKind, Error, ErrorKind, GuestOs, Pod, PodName, PodSettings, Result};

/// Stands in each install.bat of ours, of any version.
const OURS: &str = "rem podlink: ";

/// More than an install.bat ever has; ours has a thousand bytes.
const MAX_INSTALL_BAT: u64 = 1 << 20;

/// What is staged.
#[derive(Default)]
pub(super) struct Staged {
    /// Where the agent comes from; `None` where the guest gets none from us.
    pub(super) exe: Option<GuestExe>,
    pub(super) texts: Vec<(PathBuf, &'static str)>,
    pub(super) exe_file: Option<PlannedFile>,
    pub(super) notes: Vec<String>,
    pub(super) warnings: Vec<String>,
}

/// Decides it for a pod. Whatever else lies in the folder, such as `hooks/`, is the user's and left alone.
pub(super) fn of(name: &PodName, pod: &PodSettings, oem: &Path, given: Option<&Path>) -> Result<Staged> {
    if !takes_our_exe(pod) {
        return match given {
            None => Ok(Staged { warnings: leftovers(oem)?, ..Staged::default() }),
            Some(_) => Err(Error::new(
                ErrorKind::Settings,
                format!("`--agent-exe` is for Windows guests whose agent is podlink, and the pod {name} is none"),
            )
            .with_hint("leave it out")),
        };
    }
    let path = oem.join(GUEST_EXE);
    let found = guest_exe::find(given, &path)?;
    let mut staged = Staged { notes: found.note.into_iter().collect(), ..Staged::default() };
    if found.exe == GuestExe::Missing {
        let what = found.stale.map_or_else(
            || "no podlink.exe was found for the guest, beside this program or in it,".to_owned(),
            |fault| format!("the staged {} is not the right one ({fault}), and no other was found,", path.display()),
        );
        staged.warnings.push(format!(
            "{what} so Windows will have no agent and never become ready. Make it with scripts/build-windows-guest, then: \
             podlink setup --pod {name} --agent-exe target/windows-guest/podlink.exe"
        ));
    } else {
        staged.texts.push((ours(oem.join(INSTALL_BAT))?, INSTALL_BAT_TEXT));
    }
    if let Some(content) = found.content {
        staged.exe_file = Some(plan_exe(path, content, &found.exe)?);
    }
    staged.exe = Some(found.exe);
    Ok(staged)
}

/// What was staged for a guest with our agent and is not taken away by itself: somebody may have put it there.
fn leftovers(oem: &Path) -> Result<Vec<String>> {
    let install_bat = oem.join(INSTALL_BAT);
    let is_ours =
        read_bytes(&install_bat, MAX_INSTALL_BAT)?.is_some_and(|bytes| String::from_utf8_lossy(&bytes).contains(OURS));
    let warning = format!(
        "{} is podlink's own from before and would install podlink's agent; remove it and the {GUEST_EXE} beside it",
        install_bat.display()
    );
    Ok(is_ours.then_some(warning).into_iter().collect())
}

/// Whether the guest gets its agent from us as a file of its own.
fn takes_our_exe(pod: &PodSettings) -> bool {
    pod.guest == GuestOs::Windows && pod.engine != EngineKind::Local && pod.agent == AgentKind::Podlink
}

/// Why a guest that is installed now would get no agent, where that is so: what is staged for it is missing, or is not
/// the right one.
pub fn agent_fault(pod: &Pod) -> Option<String> {
    if !takes_our_exe(pod.settings()) {
        return None;
    }
    let path = pod.dir().join(Pod::OEM_DIR).join(GUEST_EXE);
    match guest_exe::staged_fault(&path) {
        Ok(None) => None,
        Ok(Some(fault)) => Some(format!("{} is not the guest's agent: {fault}", path.display())),
        Err(error) => Some(format!("{:#}", anyhow::Error::from(error))),
    }
}

/// The path, unless somebody else's file stands there.
fn ours(install_bat: PathBuf) -> Result<PathBuf> {
    match read_bytes(&install_bat, MAX_INSTALL_BAT)? {
        Some(bytes) if !String::from_utf8_lossy(&bytes).contains(OURS) => Err(Error::new(
            ErrorKind::Settings,
            format!("{} is not podlink's, and podlink.exe needs one of its own there", install_bat.display()),
        )
        .with_hint("move it to the folder hooks beside it, as 10-mine.cmd: hooks run when the agent is installed")),
        _ => Ok(install_bat),
    }
}

fn plan_exe(path: PathBuf, content: Vec<u8>, from: &GuestExe) -> Result<PlannedFile> {
    let change = match read_bytes(&path, content.len() as u64)? {
        None => Change::Created,
        Some(old) if old == content => Change::Unchanged,
        Some(_) => Change::Changed,
    };
    let diff = match change {
        Change::Unchanged => String::new(),
        Change::Created | Change::Changed => {
            format!("Binary file {}: {} bytes of {from}\n", path.display(), content.len())
        }
    };
    Ok(PlannedFile { path, change, diff, content: Content::Bytes(content) })
}
