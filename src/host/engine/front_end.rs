//! Which compose front end drives an engine: found, and tried where being there proves nothing.

use std::path::PathBuf;

use super::{
    EngineSettings,
    run::{Invocation, find},
};
use crate::host::{EngineKind, Error, ErrorKind, Result};

/// A program that reads `compose.yaml`.
#[derive(Debug, Clone)]
pub(crate) struct FrontEnd {
    pub(crate) program: PathBuf,
    /// What stands before compose's own arguments.
    pub(crate) first: &'static [&'static str],
}

/// The engine's own program.
///
/// # Errors
/// When it is not installed.
pub(crate) fn engine_program(kind: EngineKind) -> Result<PathBuf> {
    find(kind.as_str()).ok_or_else(|| {
        Error::new(ErrorKind::Engine, format!("{kind} is not installed: no `{kind}` in PATH or ~/.local/bin"))
            .with_hint(format!("install {kind}, or choose another engine with `podlink setup --engine …`"))
    })
}

/// The front end of a container engine.
///
/// podman-compose goes first for podman: it needs podman alone, whereas `podman compose` hands over to whatever is
/// installed, docker-compose before all, and that needs podman's service to run.
///
/// # Errors
/// When the engine or a working front end is missing; the error says what was looked for.
pub(crate) async fn front_end(kind: EngineKind, settings: &EngineSettings) -> Result<FrontEnd> {
    let engine = engine_program(kind)?;
    let separate = match kind {
        EngineKind::Docker => "docker-compose",
        EngineKind::Podman | EngineKind::Local => "podman-compose",
    };
    if kind == EngineKind::Podman
        && let Some(program) = find(separate)
    {
        return Ok(FrontEnd { program, first: &[] });
    }
    let tried = Invocation::new(&engine, ["compose", "version"], settings.quick).run_to_success().await;
    let Err(reason) = tried else { return Ok(FrontEnd { program: engine, first: &["compose"] }) };
    if let Some(program) = find(separate) {
        return Ok(FrontEnd { program, first: &[] });
    }
    Err(Error::new(
        ErrorKind::Engine,
        format!("{kind} has no compose: no `{separate}` in PATH or ~/.local/bin, and {reason}"),
    )
    .with_hint(format!("install {separate}")))
}

/// The engine's program and its version, asked of itself.
///
/// # Errors
/// When it is missing or does not run.
pub(in crate::host) async fn engine_version(kind: EngineKind, settings: &EngineSettings) -> Result<(PathBuf, String)> {
    let program = engine_program(kind)?;
    let said = Invocation::new(&program, ["--version"], settings.quick).run_to_success().await?;
    Ok((program, version_in(&said.stdout)))
}

/// The front end as one types it, and its version: it is run, because one that is found need not work.
///
/// # Errors
/// When none is found or it does not run.
pub(in crate::host) async fn front_end_version(
    kind: EngineKind,
    settings: &EngineSettings,
) -> Result<(String, String)> {
    let front_end = front_end(kind, settings).await?;
    let args = front_end.first.iter().copied().chain(["version"]);
    let invocation = Invocation::new(&front_end.program, args, settings.quick);
    let said = invocation.run_to_success().await?;
    let shown = invocation.shown();
    // podman-compose tells its engine's version too, and first
    let own = said.stdout.lines().find(|line| line.to_ascii_lowercase().contains("compose"));
    Ok((shown.strip_suffix(" version").unwrap_or(&shown).to_owned(), version_in(own.unwrap_or(&said.stdout))))
}

/// The first word that looks like a version: `podman version 4.3.1`, `Docker version 20.10.24+dfsg1, build …`.
fn version_in(text: &str) -> String {
    let words = text.split_ascii_whitespace().map(|word| word.trim_end_matches(','));
    let mut versions = words
        .filter(|word| word.contains('.') && word.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit()));
    versions.next().unwrap_or("of unknown version").to_owned()
}

/// The engine that `auto` means: podman where it and a front end of it are found, else docker.
///
/// Never the local one: scripts meant for a guest must not run on this machine by accident.
///
/// # Errors
/// When neither is there.
pub async fn detect(settings: &EngineSettings) -> Result<EngineKind> {
    let mut reasons = Vec::new();
    for kind in [EngineKind::Podman, EngineKind::Docker] {
        match front_end(kind, settings).await {
            Ok(_) => return Ok(kind),
            Err(reason) => reasons.push(reason.to_string()),
        }
    }
    Err(Error::new(ErrorKind::Engine, format!("no container engine was found: {}", reasons.join("; "))).with_hint(
        "install podman and podman-compose, or docker with compose; \
         `podlink setup --engine local` makes a pod without a container, whose scripts run on this machine",
    ))
}
