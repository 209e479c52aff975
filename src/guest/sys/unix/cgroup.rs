//! Control groups, version 2: the kernel's own list of who belongs to a call.
//!
//! Implementation note: a process cannot leave its cgroup by forking, `setsid` or an emptied environment, and
//! `cgroup.kill` ends all of one in a single step that no fork outruns. No controller is needed for either, so a
//! folder that this user may write below the agent's own cgroup is enough (root, or a delegated user session).

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

/// The agent's place in the hierarchy, where calls get cgroups of their own.
#[derive(Debug, Clone)]
pub(super) struct CgroupHome {
    base: PathBuf,
}

impl CgroupHome {
    /// The agent's own cgroup, where new ones can be made below it; `None` where they cannot.
    pub(super) fn detect(agent_id: &str) -> Option<Self> {
        let mounts = fs_err::read_to_string("/proc/self/mountinfo").ok()?;
        let own = fs_err::read_to_string("/proc/self/cgroup").ok()?;
        let home = Self { base: place(&mounts, &own)? };
        home.sweep();
        // the proof of the pudding: make one, and open the file that calls join through
        let trial = home.create(agent_id).ok()?;
        let usable = trial.join_file().is_ok() && trial.has_kill();
        trial.remove();
        usable.then_some(home)
    }

    /// A new cgroup for one call.
    pub(super) fn create(&self, name: &str) -> io::Result<Cgroup> {
        let path = self.base.join(format!("{PREFIX}{}-{name}", std::process::id()));
        fs_err::create_dir(&path)?;
        Ok(Cgroup { path })
    }

    /// The cgroup of a call of an agent that crashed, if it is still there.
    pub(super) fn find(&self, name: &str) -> Option<Cgroup> {
        let found = child_groups(&self.base).into_iter().find(|path| parts(path).is_some_and(|(_, call)| call == name));
        found.map(|path| Cgroup { path })
    }

    /// Removes what agents that are gone left behind, where nobody lives in it any more.
    fn sweep(&self) {
        for path in child_groups(&self.base) {
            // a number that another process has by now only puts the removal off; an agent in another namespace of
            // process numbers looks gone, and one that it has only just made may be about to be joined
            let is_gone = parts(&path).is_some_and(|(agent, _)| !Path::new("/proc").join(agent).exists());
            if is_gone && is_settled(&path) {
                remove_tree(&path);
            }
        }
    }
}

/// A call's cgroup is named `podlink-<the agent's process number>-<the call's process id>`.
pub(super) const PREFIX: &str = "podlink-";

/// A call joins its cgroup within moments of making it.
fn is_settled(path: &Path) -> bool {
    const MOMENTS: std::time::Duration = std::time::Duration::from_mins(1);
    let made = std::fs::metadata(path).and_then(|meta| meta.modified());
    made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > MOMENTS))
}

fn parts(path: &Path) -> Option<(&str, &str)> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.split_once('-')
}

/// The folder of the cgroup that the texts of `/proc/self/mountinfo` and `/proc/self/cgroup` name.
fn place(mounts: &str, own: &str) -> Option<PathBuf> {
    // the line of version 2 is `0::/path`
    let inside = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        // `id parent major:minor root mount-point options… - type source super-options`
        let (fields, kind) = line.split_once(" - ")?;
        if kind.split(' ').next()? != "cgroup2" {
            return None;
        }
        let mut fields = fields.split(' ').skip(3);
        let (root, mount_point) = (fields.next()?, fields.next()?);
        // in a container the mount may show a part of the hierarchy only
        let below = Path::new(inside).strip_prefix(root).ok()?;
        Some(Path::new(mount_point).join(below))
    })
}

/// One call's cgroup.
#[derive(Debug)]
pub(super) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// The file into which a process writes `0` to join.
    pub(super) fn join_file(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.path.join("cgroup.procs"))
    }

    fn has_kill(&self) -> bool {
        self.path.join("cgroup.kill").exists() // Linux 5.14
    }

    /// Everybody in it and below it.
    pub(super) fn members(&self) -> Vec<u32> {
        let mut found = Vec::new();
        collect(&self.path, &mut found);
        found
    }

    /// Keeps everybody in it from running, and so from forking, until they are killed.
    pub(super) fn freeze(&self) {
        let frozen = OpenOptions::new()
            .write(true)
            .open(self.path.join("cgroup.freeze"))
            .and_then(|mut file| file.write_all(b"1"));
        if let Err(error) = frozen {
            tracing::debug!(cgroup = %self.path.display(), %error, "a call's cgroup could not be frozen");
        }
    }

    /// Ends everybody in it and below it.
    pub(super) fn kill(&self) {
        let killed = OpenOptions::new()
            .write(true)
            .open(self.path.join("cgroup.kill"))
            .and_then(|mut file| file.write_all(b"1"));
        if let Err(error) = killed {
            tracing::warn!(cgroup = %self.path.display(), %error, "could not kill a call's cgroup");
        }
    }

    /// Removes it, and tells whether it is gone: it is not while anybody lives in it.
    pub(super) fn remove(&self) -> bool {
        remove_tree(&self.path)
    }
}

fn collect(folder: &Path, found: &mut Vec<u32>) {
    let mut text = String::new();
    if File::open(folder.join("cgroup.procs")).and_then(|mut file| file.read_to_string(&mut text)).is_ok() {
        found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    }
    for child in child_groups(folder) {
        collect(&child, found);
    }
}

fn remove_tree(folder: &Path) -> bool {
    for child in child_groups(folder) {
        remove_tree(&child);
    }
    match std::fs::remove_dir(folder) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn child_groups(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_found_on_unified_hybrid_and_container_mounts() {
        let unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(place(unified, "0::/user.slice/a.scope\n"), Some("/sys/fs/cgroup/user.slice/a.scope".into()));
        let hybrid = "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        assert_eq!(place(hybrid, "9:cpu:/x\n0::/\n"), Some("/sys/fs/cgroup/unified/".into()));
        let container = "40 23 0:29 /box /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(place(container, "0::/box/inner\n"), Some("/sys/fs/cgroup/inner".into()));
        assert_eq!(place(container, "0::/elsewhere\n"), None);
        assert_eq!(place("", "0::/\n"), None);
        assert_eq!(place(unified, "1:cpu:/\n"), None);
    }
}
