//! The executable that becomes the agent in a Windows guest: where it is found, and whether it is the right one.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use crate::host::{Error, ErrorKind, Result, WindowsExe};

/// Its name, beside this program and in the staged folder.
pub const GUEST_EXE: &str = "podlink.exe";
/// What Windows runs at the end of its installation.
pub const INSTALL_BAT: &str = "install.bat";
/// Its content.
pub(super) const INSTALL_BAT_TEXT: &str = include_str!("../../../assets/oem/install.bat");
/// It and our own tests' are a few megabytes, a build with all debug symbols less than a hundred.
const MAX_SIZE: u64 = 256 << 20;
/// What both sides have to be.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where a pod's `podlink.exe` comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestExe {
    /// The file that was named.
    Given(PathBuf),
    /// The one that lies beside this program.
    Beside(PathBuf),
    /// The one that this program carries.
    Embedded,
    /// The one that is staged already.
    Kept,
    /// There is none.
    Missing,
}

impl GuestExe {
    /// As it stands in `--json`.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Given(_) => "given",
            Self::Beside(_) => "beside",
            Self::Embedded => "embedded",
            Self::Kept => "kept",
            Self::Missing => "missing",
        }
    }
}

impl std::fmt::Display for GuestExe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Given(path) | Self::Beside(path) => write!(f, "{GUEST_EXE} {VERSION}, from {}", path.display()),
            Self::Embedded => write!(f, "{GUEST_EXE} {VERSION}, from this program"),
            Self::Kept => write!(f, "{GUEST_EXE} {VERSION}, kept"),
            Self::Missing => f.write_str("none for the guest: see the warning"),
        }
    }
}

/// What was found.
pub(super) struct Found {
    pub(super) exe: GuestExe,
    /// What is to be staged; `None` where all stays as it is.
    pub(super) content: Option<Vec<u8>>,
    /// What the user should know.
    pub(super) note: Option<String>,
    /// What is wrong with what is staged, where nothing better was found.
    pub(super) stale: Option<String>,
}

/// Finds it: the file that was named, else the one that is staged, else the one beside this program, else the one that
/// it carries. Of the last three only a wrong one beside this program is an error: somebody put it there to be used.
pub(super) fn find(given: Option<&Path>, staged: &Path) -> Result<Found> {
    if let Some(path) = given {
        let content = checked(path, read(path)?)?;
        return Ok(Found { exe: GuestExe::Given(path.to_owned()), content: Some(content), note: None, stale: None });
    }
    let staged = match super::planned_file::read_bytes(staged, MAX_SIZE)? {
        None => None,
        Some(content) => match fault(&content) {
            None => Some(content),
            Some(fault) => return fresh(Some(fault)),
        },
    };
    let Some(staged) = staged else { return fresh(None) };
    let mut note = None;
    if let Some(path) = beside()
        && read(&path).is_ok_and(|content| fault(&content).is_none() && content != staged)
    {
        note = Some(format!(
            "{} is another build of the same version than the staged one, which is kept; `--agent-exe {}` takes it",
            path.display(),
            path.display()
        ));
    }
    Ok(Found { exe: GuestExe::Kept, content: None, note, stale: None })
}

/// Why what is staged there cannot be the agent; `None` where it can.
pub(super) fn staged_fault(staged: &Path) -> Result<Option<String>> {
    let content = super::planned_file::read_bytes(staged, MAX_SIZE)?;
    Ok(content.map_or_else(|| Some("there is none".to_owned()), |content| fault(&content)))
}

/// One that is not staged yet.
fn fresh(stale: Option<String>) -> Result<Found> {
    let found = |exe, content| Found { exe, content: Some(content), note: None, stale: None };
    if let Some(path) = beside() {
        let content = checked(&path, read(&path)?)?;
        return Ok(found(GuestExe::Beside(path), content));
    }
    if let Some(content) = embedded()? {
        return Ok(found(GuestExe::Embedded, content));
    }
    Ok(Found { exe: GuestExe::Missing, content: None, note: None, stale })
}

/// The one beside this program, where there is one.
fn beside() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name(GUEST_EXE);
    path.exists().then_some(path)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let unreadable = |error| {
        Error::new(ErrorKind::File, "could not read the executable for the guest")
            .with_source(error)
            .with_hint("`--agent-exe` wants the podlink.exe that scripts/build-windows-guest makes")
    };
    let mut content = Vec::new();
    let file = fs_err::File::open(path).map_err(unreadable)?;
    file.take(MAX_SIZE + 1).read_to_end(&mut content).map_err(unreadable)?;
    Ok(content)
}

fn checked(path: &Path, content: Vec<u8>) -> Result<Vec<u8>> {
    match fault(&content) {
        None => Ok(content),
        Some(fault) => Err(wrong(&path.display().to_string(), &fault)),
    }
}

fn wrong(what: &str, fault: &str) -> Error {
    Error::new(ErrorKind::Settings, format!("{what} is not staged as the guest's agent: {fault}")).with_hint(format!(
        "build podlink.exe of version {VERSION} with scripts/build-windows-guest and name it with `--agent-exe`"
    ))
}

/// Why it cannot be the agent of a Windows guest.
fn fault(content: &[u8]) -> Option<String> {
    if content.len() as u64 > MAX_SIZE {
        return Some(format!("it is bigger than {} MiB", MAX_SIZE >> 20));
    }
    let exe = match WindowsExe::parse(content) {
        Ok(exe) => exe,
        Err(error) => return Some(error.to_string()),
    };
    if !exe.is_x86_64 {
        return Some("it is an executable for Windows on another processor than x86_64".to_owned());
    }
    match (exe.product.as_deref(), exe.version.as_deref()) {
        (Some("podlink"), Some(VERSION)) => None,
        (Some("podlink"), Some(other)) => Some(format!("it is podlink {other}, and this is podlink {VERSION}")),
        (Some(other), _) => Some(format!("it is another program: {}", other.escape_debug())),
        (None, _) => Some("it is another program, or a podlink.exe that does not say its version".to_owned()),
    }
}

#[cfg(not(feature = "embed-guest"))]
#[expect(clippy::unnecessary_wraps, reason = "with the feature it can fail")]
const fn embedded() -> Result<Option<Vec<u8>>> {
    Ok(None)
}

/// The executable that this program carries.
#[cfg(feature = "embed-guest")]
fn embedded() -> Result<Option<Vec<u8>>> {
    const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/podlink.exe.deflate"));
    let limit = usize::try_from(MAX_SIZE).unwrap_or(usize::MAX);
    let content = miniz_oxide::inflate::decompress_to_vec_with_limit(PACKED, limit).map_err(|error| {
        Error::new(ErrorKind::Internal, format!("the embedded podlink.exe does not unpack: {error}"))
    })?;
    match fault(&content) {
        None => Ok(Some(content)),
        Some(fault) => Err(wrong("the podlink.exe that this program carries", &fault)),
    }
}
