//! The steps before the hooks: what each tests, and what it sets where that does not hold.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use sha2::{Digest as _, Sha256};

use super::{
    super::sys,
    adopt::{self, Adopted},
    places::Places,
    record::Record,
    tool::Verdict,
};
use crate::{protocol::RunMode, token::others_with_access};

/// The steps, in their order, and whether the installation fails with them.
pub(super) const STEPS: [(&str, bool); 7] = [
    ("firewall", false),
    ("defender", false),
    ("exe", true),
    ("acl", false),
    ("token", true),
    ("autostart", true),
    ("agent", true),
];

/// The ports that others have to reach.
pub(super) fn ports(record: &Record) -> Vec<u16> {
    let open = record.serve().listen.iter().filter(|address| !address.ip().is_loopback());
    let mut ports: Vec<u16> = open.map(std::net::SocketAddr::port).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Lets callers in: by port, and from everywhere, since the network that they come from is not known beforehand; the
/// agent itself keeps public addresses out.
pub(super) async fn firewall(record: &Record) -> Verdict {
    let ports = ports(record);
    if ports.is_empty() {
        return Verdict::Done(Some("the agent listens on loopback alone, which needs no rule".to_owned()));
    }
    sys::open_firewall(&ports).await
}

/// Keeps the malware scanner from holding up or removing what was installed.
pub(super) async fn defender(places: &Places) -> Verdict {
    match places.exe.parent() {
        Some(folder) => sys::exclude_from_scans(folder).await,
        None => Verdict::Failed(format!("{} lies in no folder", places.exe.display())),
    }
}

/// Copies this very executable to where it is started from; says so if it was another before.
pub(super) fn exe(places: &Places) -> Verdict {
    match copy_exe(places) {
        Ok(true) => Verdict::Done(Some("copied".to_owned())),
        Ok(false) => Verdict::DONE,
        Err(error) => Verdict::failed(error),
    }
}

fn copy_exe(places: &Places) -> anyhow::Result<bool> {
    let us = std::env::current_exe().context("this program's own file is not known")?;
    let target = &places.exe;
    let folder = target.parent().context("the executable's place lies in no folder")?;
    let wanted = digest(&us)?;
    if is_same(&us, target) {
        return Ok(false);
    }
    if digest(target).is_ok_and(|there| there == wanted) {
        sys::make_executable(target)?;
        return Ok(false);
    }
    sys::create_program_dir(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let mut new = tempfile::Builder::new()
        .prefix(".podlink")
        .suffix(".new")
        .tempfile_in(folder)
        .with_context(|| format!("cannot write into the folder {}", folder.display()))?;
    std::io::copy(&mut fs_err::File::open(&us)?, new.as_file_mut())
        .and_then(|_| new.as_file().sync_all())
        .with_context(|| format!("cannot copy {} to {}", us.display(), folder.display()))?;
    // closed: what is open for writing can neither be renamed on Windows nor be started on Unix
    let new = new.into_temp_path();
    ensure!(digest(&new)? == wanted, "the copy of {} does not read back as it was written", us.display());
    sys::make_executable(&new)?;
    sys::replace_program(&new, target).with_context(|| format!("cannot put {} in its place", target.display()))?;
    drop(new.keep()); // it bears another name by now
    Ok(true)
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| -> Option<PathBuf> { std::fs::canonicalize(path).ok() };
    real(one).is_some_and(|one| real(other) == Some(one))
}

/// Of a file's content.
pub(super) fn digest(path: &Path) -> anyhow::Result<[u8; 32]> {
    let mut file = fs_err::File::open(path)?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 128 << 10];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hash.finalize().into()),
            count => hash.update(&chunk[..count]),
        }
    }
}

/// Keeps others' hands off the executable, and their eyes off the state.
pub(super) fn acl(places: &Places) -> Verdict {
    let kept = crate::token::ensure_private_dir(&places.state).map_err(anyhow::Error::from);
    let guarded = kept.and_then(|()| sys::guard_program(&places.exe)).and_then(|()| {
        // what was set is believed once it has been read back
        let others = others_with_access(&places.state)?;
        ensure!(others.is_empty(), "{} is open to others: {}", places.state.display(), others.join(", "));
        Ok(())
    });
    guarded.map_or_else(Verdict::failed, |()| Verdict::DONE)
}

/// Makes the agent's own copy of the token. A missing one fails nothing.
pub(super) fn token(places: &Places) -> Verdict {
    match adopt::adopt(places) {
        Ok(Adopted::Have | Adopted::Taken) => Verdict::DONE,
        Ok(Adopted::Left(reason)) => Verdict::Done(Some(reason)),
        Ok(Adopted::Missing(reason)) => Verdict::Pending(reason),
        Err(error) => Verdict::failed(error),
    }
}

/// Has the agent started from now on.
pub(super) async fn autostart(record: &Record, state: &Path) -> Verdict {
    let start = Start::of(record, state);
    match record.mode() {
        RunMode::Manual => Verdict::Done(Some(format!("as asked, nothing starts the agent but you: {}", start.line()))),
        _ => sys::register(&start).await,
    }
}

/// How the agent is started.
#[derive(Debug, Clone)]
pub(in crate::guest) struct Start {
    /// By what.
    pub(in crate::guest) mode: RunMode,
    /// The executable.
    pub(in crate::guest) exe: PathBuf,
    /// Its arguments.
    pub(in crate::guest) args: Vec<String>,
    /// Before the system's own folders.
    pub(in crate::guest) root: Option<PathBuf>,
}

impl Start {
    /// As the record has it.
    pub(super) fn of(record: &Record, state: &Path) -> Self {
        // service managers start it again themselves, where they are Unix'
        let is_supervised = record.mode() != RunMode::Manual && sys::NEEDS_SUPERVISOR;
        let supervise = super::SUPERVISE.filter(|_| is_supervised || record.mode() == RunMode::Manual);
        let mut args: Vec<String> = ["agent", "serve", "--installed"].map(str::to_owned).into();
        args.extend(supervise.map(str::to_owned));
        args.extend(["--state-dir".to_owned(), state.to_string_lossy().into_owned()]);
        Self { mode: record.mode(), exe: record.exe.clone(), args, root: record.root.clone() }
    }

    /// As it would be typed.
    pub(in crate::guest) fn line(&self) -> String {
        let words = std::iter::once(self.exe.to_string_lossy().into_owned()).chain(self.args.iter().cloned());
        let quoted = words.map(|word| if word.contains([' ', '&']) { format!("\"{word}\"") } else { word });
        quoted.collect::<Vec<_>>().join(" ")
    }
}
