//! Where an installation's files lie when nothing else is said.

use std::path::PathBuf;

/// The executable's name.
pub(in crate::guest) const EXE_NAME: &str = "podlink.exe";

/// A file cannot be replaced for as long as somebody reads it.
pub(in crate::guest) const REPLACING_IS_RETRIED: bool = true;

/// The machine's where this process may write there, the user's own otherwise.
pub(in crate::guest) fn default_state_dir() -> Option<PathBuf> {
    below(if super::super::account().elevated { "ProgramData" } else { "LocalAppData" })
}

/// Likewise.
pub(in crate::guest) fn default_program_dir() -> Option<PathBuf> {
    below(if super::super::account().elevated { "ProgramFiles" } else { "LocalAppData" })
}

/// Our folder in the one that this variable names.
fn below(variable: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(variable).map(PathBuf::from).filter(|folder| folder.is_absolute())?;
    Some(folder.join("podlink"))
}

/// A program that Windows brings along, by its whole path: nobody puts another one before it.
pub(super) fn system_program(name: &str) -> String {
    let root = std::env::var("SystemRoot").unwrap_or_else(|_| r"C:\Windows".to_owned());
    format!(r"{root}\System32\{name}")
}
