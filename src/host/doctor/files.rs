//! The check of the pod's folder: what is missing, not ours, open to others, or not what it should be.

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::{
    Evidence, FileFault, FileKind,
    check::{Advice, Check},
    words,
};
use crate::{
    host::{EngineKind, Home, Pod, Result},
    token::{self, Owners, STAGED_NAME, TOKEN_FILE, Token},
};

/// Looks at the files, and reads the token.
pub(super) fn gather(home: &Home, pod: &Pod) -> (Vec<FileFault>, Result<Token>) {
    let dir = pod.dir();
    let (oem, token_file) = (dir.join(Pod::OEM_DIR), dir.join(TOKEN_FILE));
    let staged = oem.join(STAGED_NAME);
    let mut faults = Vec::new();
    let mut look = |path: PathBuf, is_folder: bool| {
        let fault = fault_of(&path, is_folder);
        faults.extend(fault.map(|kind| FileFault { path, kind }));
    };
    look(dir.to_owned(), true);
    look(dir.join(Pod::SETTINGS_FILE), false);
    look(token_file, false);
    look(oem, true);
    look(staged.clone(), false);
    if pod.settings().engine != EngineKind::Local {
        look(dir.join(Pod::COMPOSE_FILE), false);
        look(dir.join(Pod::SHARE_DIR), true);
        // the image may open it up: it is not ours alone
        let storage = home.storage_dir(pod.name());
        if !storage.is_dir() {
            faults.push(FileFault { path: storage, kind: FileKind::Missing });
        }
    }
    let token = pod.token();
    let usable = |path: &Path| !faults.iter().any(|fault| fault.path == path && fault.kind.keeps_from_reading());
    if let Ok(token) = &token
        && usable(&staged)
    {
        match token::load(&staged, Owners::Us) {
            Ok(copy) if copy == *token => {}
            Ok(_) => faults.push(FileFault { path: staged, kind: FileKind::OtherToken }),
            Err(_) => faults.push(FileFault { path: staged, kind: FileKind::Unreadable }),
        }
    }
    (faults, token)
}

fn fault_of(path: &Path, is_folder: bool) -> Option<FileKind> {
    let Ok(meta) = fs_err::symlink_metadata(path) else { return Some(FileKind::Missing) };
    let right_kind = if is_folder { meta.is_dir() } else { meta.is_file() };
    if !right_kind {
        return Some(FileKind::WrongKind);
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Some(FileKind::Foreign { owner: meta.uid() });
    }
    let (mode, wanted) = (meta.mode() & 0o7777, if is_folder { 0o700 } else { 0o600 });
    (mode & 0o077 != 0).then_some(FileKind::Wide { mode, wanted })
}

impl FileKind {
    const fn keeps_from_reading(&self) -> bool {
        matches!(self, Self::Missing | Self::WrongKind | Self::Foreign { .. })
    }
}

/// What to do about a file.
fn advice(evidence: &Evidence, fault: &FileFault) -> Advice {
    let path = fault.path.display();
    let setup = words::setup(evidence, "");
    match &fault.kind {
        FileKind::Missing => Advice::new(format!("{path} is missing"), format!("{setup} brings it back")),
        FileKind::Wide { mode, wanted } => {
            Advice::new(format!("others may look into {path} (mode {mode:04o})"), format!("`chmod {wanted:o} {path}`"))
        }
        FileKind::Foreign { owner } => {
            Advice::new(format!("{path} belongs to user {owner}"), format!("`sudo chown $(id -u) {path}`"))
        }
        FileKind::WrongKind => {
            Advice::new(format!("{path} is a link or of another kind"), format!("move it away, then {setup}"))
        }
        FileKind::OtherToken => {
            Advice::new(format!("{path} is no copy of the pod's token"), format!("{setup} stages it anew"))
        }
        FileKind::Unreadable => Advice::new(format!("{path} holds no token"), format!("{setup} stages it anew")),
    }
}

/// What to do about a token that cannot be had.
pub(super) fn token_advice(evidence: &Evidence, why: &str) -> Advice {
    let file = evidence.pod.dir.join(TOKEN_FILE);
    match evidence.files.iter().find(|fault| fault.path == file) {
        Some(fault) => advice(evidence, fault),
        None => Advice::new(
            format!("the pod's token cannot be read from {} ({why})", file.display()),
            format!("move the file away, then {} restores it from its staged copy", words::setup(evidence, "")),
        ),
    }
}

/// What is staged matters to a guest that has no agent yet; where one answers, the guest has its own.
fn guest_agent(evidence: &Evidence) -> Option<Check> {
    let fault = evidence.guest_agent.as_ref().filter(|_| evidence.agent.is_none())?;
    let how = words::setup(evidence, " --agent-exe target/windows-guest/podlink.exe");
    let advice = Advice::new(fault, format!("make it with scripts/build-windows-guest, then {how}"));
    Some(Check::warning("files", format!("{fault}; a Windows that is installed now will have no agent"), advice))
}

/// The line `files`.
pub(super) fn checks(evidence: &Evidence) -> Vec<Check> {
    let dir = evidence.pod.dir.display();
    let first = evidence.files.first().map(|fault| advice(evidence, fault));
    let check = match (first, &evidence.token) {
        (Some(first), _) => {
            let all: Vec<String> = evidence.files.iter().map(|fault| advice(evidence, fault).what).collect();
            Check::failed("files", all.join("; "), first)
        }
        (None, Err(why)) => Check::failed("files", why, token_advice(evidence, why)),
        (None, Ok(())) => match guest_agent(evidence) {
            Some(warning) => warning,
            None => Check::ok("files", format!("{dir}: all there, ours alone")),
        },
    };
    vec![check]
}
