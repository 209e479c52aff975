//! Whether a pod's disk is new, and whether what is staged for the guest still reaches it.
//!
//! An image copies `/oem` into the guest when it installs it, and never again: what changes there later has to be
//! taken over in the guest.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::{EngineKind, Error, ErrorKind, GuestOs, Pod, Result};
use crate::token::replace_private;

/// Our mark in the storage folder: this disk's guest has been ready once. It goes when the disk goes.
const READY_MARK: &str = "podlink.ready";
/// dockur/windows' own: it makes it when an installed Windows has shut down for the first time.
const INSTALLED_MARK: &str = "windows.boot";
/// In the pod's folder: the digest of what was staged when the disk was new, or of what the user was told of last.
const STAGED_DIGEST: &str = "oem.digest";
/// Where a changed `/oem` is laid out for an installed guest, in the shared folder.
const HANDED_OVER: &str = "oem";

/// Whether the pod's container installs its guest, or is about to: its disk has never been seen ready.
pub fn is_new_disk(pod: &Pod) -> bool {
    if pod.settings().engine == EngineKind::Local {
        return false;
    }
    ![READY_MARK, INSTALLED_MARK].iter().any(|mark| pod.storage().join(mark).exists())
}

/// Remembers that this disk's guest has been ready. Where that cannot be written the next wait is only more patient.
pub fn remember_ready(pod: &Pod) {
    if is_new_disk(pod) && pod.storage().is_dir() {
        drop(replace_private(&pod.storage().join(READY_MARK), b"This disk's guest has been ready once.\n"));
    }
}

/// What an installed guest does not see, and what to do about it.
#[derive(Debug, Clone)]
pub struct StaleOem {
    /// For the user.
    pub note: String,
    digest: String,
}

impl StaleOem {
    /// Remembers that the user has been told: it is said once for each change, as nobody can tell from here when it
    /// was taken over. Where that cannot be written it is said again.
    pub fn said(&self, pod: &Pod) {
        drop(replace_private(&pod.dir().join(STAGED_DIGEST), self.digest.as_bytes()));
    }
}

/// Called before a pod is brought up: notes what is staged for a new disk, and tells where an installed Windows is
/// not going to see what is staged now.
///
/// # Errors
/// When the pod's own files cannot be read or written.
pub fn before_up(pod: &Pod) -> Result<Option<StaleOem>> {
    if pod.settings().engine == EngineKind::Local || pod.settings().guest != GuestOs::Windows {
        return Ok(None);
    }
    let oem = pod.dir().join(Pod::OEM_DIR);
    let record = pod.dir().join(STAGED_DIGEST);
    let staged = staged(&oem)?;
    let digest = digest(&staged)?;
    let is_empty = fs_err::read_dir(pod.storage()).map_or(true, |mut entries| entries.next().is_none());
    if is_empty {
        replace_private(&record, digest.as_bytes())?;
        return Ok(None);
    }
    match fs_err::read_to_string(&record) {
        Ok(recorded) if recorded.trim() != digest => {}
        _ => return Ok(None),
    }
    hand_over(pod, &oem, &staged)?;
    let mut line = format!(r"robocopy \\host.lan\Data\{HANDED_OVER} C:\OEM /E");
    if staged.iter().any(|path| path.ends_with("install.bat")) {
        line.push_str(r" & C:\OEM\install.bat");
    }
    let note = format!(
        "{} has changed since Windows was installed, and only an installation reads it. It is laid out in the shared \
         folder; take it over with this line, run in Windows by its administrator: {line}",
        oem.display()
    );
    Ok(Some(StaleOem { note, digest }))
}

/// Regular files below a folder, in order. Links are passed over, as no image follows them.
fn staged(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs_err::read_dir(&folder).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let kind = entry.file_type().map_err(unreadable)?;
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn digest(files: &[PathBuf]) -> Result<String> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 64 << 10];
    for path in files {
        let mut file = fs_err::File::open(path).map_err(unreadable)?;
        let mut content = Sha256::new();
        loop {
            match file.read(&mut chunk).map_err(unreadable)? {
                0 => break,
                count => content.update(&chunk[..count]),
            }
        }
        // of a fixed length each, so that no name can pass for content
        hash.update(Sha256::digest(path.as_os_str().as_bytes()));
        hash.update(content.finalize());
    }
    Ok(hex::encode(hash.finalize()))
}

/// Copies what is staged into the shared folder, in the place of what was laid out there before.
fn hand_over(pod: &Pod, oem: &Path, files: &[PathBuf]) -> Result<()> {
    let target = pod.dir().join(Pod::SHARE_DIR).join(HANDED_OVER);
    match fs_err::remove_dir_all(&target) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(unreadable(error)),
        _ => {}
    }
    for path in files {
        let Ok(below) = path.strip_prefix(oem) else { continue };
        let to = target.join(below);
        if let Some(folder) = to.parent() {
            crate::token::ensure_private_dir(folder)?;
        }
        let content = zeroize::Zeroizing::new(fs_err::read(path).map_err(unreadable)?);
        replace_private(&to, &content)?;
    }
    Ok(())
}

fn unreadable(error: std::io::Error) -> Error {
    Error::new(ErrorKind::File, "what is staged for the guest could not be read or laid out").with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        host::{Home, PodName},
        token::ensure_private_dir,
    };

    fn pod(home: &Path, engine: &str) -> Pod {
        let name: PodName = "w".parse().unwrap();
        let home = Home::at(home.to_owned()).unwrap();
        for folder in [home.pod_dir(&name), home.storage_dir(&name), home.pod_dir(&name).join(Pod::OEM_DIR)] {
            ensure_private_dir(&folder).unwrap();
        }
        let settings = format!("engine: {engine}\nguest: windows\nports: {{agent: 1, rdp: 2, web: 3}}\n");
        replace_private(&home.pod_dir(&name).join(Pod::SETTINGS_FILE), settings.as_bytes()).unwrap();
        Pod::load(&home, &name).unwrap()
    }

    #[test]
    fn a_disk_is_new_until_its_guest_was_ready_and_again_when_it_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let podman = pod(home.path(), "podman");
        assert!(is_new_disk(&podman));
        // half an installation
        fs_err::write(podman.storage().join("data.img"), "").unwrap();
        assert!(is_new_disk(&podman));
        remember_ready(&podman);
        assert!(!is_new_disk(&podman));
        fs_err::remove_dir_all(podman.storage()).unwrap();
        assert!(is_new_disk(&podman));
        // nowhere to write it
        remember_ready(&podman);
        assert!(is_new_disk(&podman));
        fs_err::create_dir(podman.storage()).unwrap();
        fs_err::write(podman.storage().join("windows.boot"), "").unwrap();
        assert!(!is_new_disk(&podman));
        assert!(!is_new_disk(&pod(home.path(), "local")));
    }

    #[test]
    fn a_change_that_an_installed_windows_does_not_see_is_said_once() {
        let home = tempfile::tempdir().unwrap();
        let pod = pod(home.path(), "docker");
        let oem = pod.dir().join(Pod::OEM_DIR);
        fs_err::write(oem.join("a"), "1").unwrap();
        assert!(before_up(&pod).unwrap().is_none());
        fs_err::write(oem.join("a"), "2").unwrap();
        assert!(before_up(&pod).unwrap().is_none(), "the disk is still empty: it will be read");
        fs_err::write(pod.storage().join("data.img"), "").unwrap();
        assert!(before_up(&pod).unwrap().is_none());

        fs_err::create_dir(oem.join("sub")).unwrap();
        fs_err::write(oem.join("sub/b"), "3").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", oem.join("link")).unwrap();
        let stale = before_up(&pod).unwrap().expect("a change");
        assert!(stale.note.ends_with(r"robocopy \\host.lan\Data\oem C:\OEM /E"), "{}", stale.note);
        assert!(before_up(&pod).unwrap().is_some(), "not said yet");
        let share = pod.dir().join(Pod::SHARE_DIR).join(HANDED_OVER);
        assert_eq!(fs_err::read_to_string(share.join("sub/b")).unwrap(), "3");
        assert!(!share.join("link").exists());
        stale.said(&pod);
        assert!(before_up(&pod).unwrap().is_none());

        // the same content under another name is a change, and the old name is laid out no more
        fs_err::rename(oem.join("sub/b"), oem.join("sub/c")).unwrap();
        assert!(before_up(&pod).unwrap().is_some());
        assert!(share.join("sub/c").exists() && !share.join("sub/b").exists());
    }
}
