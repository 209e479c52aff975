//! Which file is meant by a program's name: found as the command processor finds it, but never in a folder that nobody
//! has named (the one that the call runs in, or the agent's own).

use std::{
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
};

/// What kind of file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The system can start it.
    Program,
    /// The command processor has to read it.
    Batch,
}

/// The endings of what can be started, in the order in which they are tried where `PATHEXT` does not say another.
const ENDINGS: [&str; 4] = [".com", ".exe", ".bat", ".cmd"];

/// The file and what it is. Names with a folder in them are looked for from `cwd`, others in the folders of `path`, then
/// in those of the system.
pub(super) fn find(
    name: &str,
    cwd: &Path,
    path: Option<&OsStr>,
    pathext: Option<&OsStr>,
) -> io::Result<(PathBuf, Kind)> {
    let endings = endings(pathext);
    let found = if name.contains(['\\', '/', ':']) {
        // `join` keeps what is absolute, and the drive of what names one
        in_place(&cwd.join(name), &endings)
    } else {
        let folders = std::env::split_paths(path.unwrap_or_default()).chain(system_folders());
        // an entry that is relative would be taken from wherever the agent runs
        folders.filter(|folder| folder.is_absolute()).find_map(|folder| in_place(&folder.join(name), &endings))
    };
    let found = found.ok_or_else(|| {
        let why = if name.contains(['\\', '/', ':']) { "there is no such file" } else { "it is not on the PATH" };
        io::Error::new(io::ErrorKind::NotFound, format!("{why}, neither as it stands nor with one of {endings:?}"))
    })?;
    let kind = if is_batch(&found) { Kind::Batch } else { Kind::Program };
    Ok((found, kind))
}

/// The command processor, whatever the variables of the call say.
pub(super) fn command_processor() -> PathBuf {
    system_root().join("System32").join("cmd.exe")
}

/// Where Windows lies.
pub(super) fn system_root() -> PathBuf {
    std::env::var_os("SystemRoot").map_or_else(|| PathBuf::from(r"C:\Windows"), PathBuf::from)
}

fn system_folders() -> [PathBuf; 2] {
    [system_root().join("System32"), system_root()]
}

/// The file itself where its name has an ending, else with one of those that there are.
fn in_place(path: &Path, endings: &[String]) -> Option<PathBuf> {
    let with_ending = |ending: &String| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        Some(PathBuf::from(name)).filter(|path| is_file(path))
    };
    if path.extension().is_some() && is_file(path) {
        return Some(path.to_owned());
    }
    endings.iter().find_map(with_ending).or_else(|| Some(path.to_owned()).filter(|path| is_file(path)))
}

/// The Store's programs stand behind a kind of link that only the start of a process can follow: not followed here.
fn is_file(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_dir())
}

fn is_batch(path: &Path) -> bool {
    // blanks and dots at the end of a name are no part of it
    let name = path.to_string_lossy();
    let name = name.trim_end_matches([' ', '.']).to_ascii_lowercase();
    name.ends_with(".bat") || name.ends_with(".cmd")
}

/// Those of `PATHEXT` that can be started, then the others that can.
fn endings(pathext: Option<&OsStr>) -> Vec<String> {
    let said = pathext.unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let mut endings: Vec<String> = Vec::new();
    for ending in said.split(';').map(str::trim).chain(ENDINGS) {
        if ENDINGS.contains(&ending) && !endings.iter().any(|known| known == ending) {
            endings.push(ending.to_owned());
        }
    }
    endings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_the_command_processor_finds_them() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["both.exe", "both.cmd", "only.cmd", "dotted.name.exe", "plain"] {
            fs_err::write(folder.path().join(name), "").unwrap();
        }
        let path = Some(folder.path().as_os_str());
        let elsewhere = tempfile::tempdir().unwrap();
        let name = |name: &str| {
            find(name, elsewhere.path(), path, None).map(|(path, kind)| (path.file_name().unwrap().to_owned(), kind))
        };
        assert_eq!(name("both").unwrap(), ("both.exe".into(), Kind::Program));
        assert_eq!(name("only").unwrap(), ("only.cmd".into(), Kind::Batch));
        assert_eq!(name("both.cmd").unwrap(), ("both.cmd".into(), Kind::Batch));
        assert_eq!(name("dotted.name").unwrap(), ("dotted.name.exe".into(), Kind::Program));
        assert_eq!(name("plain").unwrap().0, "plain");
        assert_eq!(name("cmd").unwrap(), ("cmd.exe".into(), Kind::Program));
        assert_eq!(name("nothing-of-the-kind").unwrap_err().kind(), io::ErrorKind::NotFound);
        let first = Some(OsStr::new(".CMD;.VBS;.EXE"));
        assert_eq!(find("both", elsewhere.path(), path, first).unwrap().1, Kind::Batch);
        // where the call runs counts only for names with a folder
        assert!(find("only", folder.path(), None, None).is_err());
        assert_eq!(find(r".\only", folder.path(), None, None).unwrap().1, Kind::Batch);
        assert!(is_batch(Path::new("x.BAT. ")));
    }
}
