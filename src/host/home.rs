//! Where pods lie on the host's disk, and what they may be called.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use super::{Error, ErrorKind, Result};

/// A pod's name: `[a-z0-9][a-z0-9_-]{0,62}`, so that it can be a folder, a container and a compose project.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodName(String);

impl PodName {
    /// The name where none is given.
    pub const DEFAULT: &'static str = "windows";

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What names the pod in a command line that is told to a person, with a blank before: also the default one is named,
    /// since the environment may say another.
    pub fn flag(&self) -> String {
        format!(" --pod {self}")
    }
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PodName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut chars = text.bytes();
        let good = chars.next().is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
            && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'_' | b'-'))
            && text.len() <= 63;
        if good {
            Ok(Self(text.to_owned()))
        } else {
            Err("a pod's name is 1 to 63 of a-z, 0-9, _ and -, and starts with a letter or digit".to_owned())
        }
    }
}

/// The folders that hold the pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    config: PathBuf,
    data: PathBuf,
}

impl Home {
    /// `$PODLINK_HOME` for everything, else the user's own configuration and data folders.
    ///
    /// # Errors
    /// When neither the variable nor a home folder is there, or the variable is not an absolute path.
    pub fn from_env() -> Result<Self> {
        match std::env::var_os("PODLINK_HOME").filter(|value| !value.is_empty()) {
            Some(value) => Self::at(value.into()),
            None => match (dirs::config_dir(), dirs::data_dir()) {
                (Some(config), Some(data)) => Ok(Self { config: config.join("podlink"), data: data.join("podlink") }),
                _ => Err(Error::new(ErrorKind::Settings, "no home folder is known")
                    .with_hint("set PODLINK_HOME to the folder that is to hold the pods")),
            },
        }
    }

    /// Everything below one folder.
    ///
    /// # Errors
    /// When the path is not absolute.
    pub fn at(folder: PathBuf) -> Result<Self> {
        if !folder.is_absolute() {
            return Err(Error::new(ErrorKind::Settings, format!("PODLINK_HOME is {}", folder.display()))
                .with_hint("set it to an absolute path"));
        }
        Ok(Self { config: folder.clone(), data: folder })
    }

    /// The folder that holds the pods' own folders.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// The pods in it, by name; what is no pod's name is passed over.
    pub fn pods(&self) -> Vec<PodName> {
        let Ok(entries) = fs_err::read_dir(&self.config) else { return Vec::new() };
        let mut names: Vec<PodName> =
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        names.sort();
        names
    }

    /// The compose project of a pod: `podlink-<pod>-<8 hex>`, the digits taken from this home's path, so that pods
    /// of the same name in two homes are two.
    ///
    /// Symbolic links on the way are followed first: one home has one name.
    pub fn project(&self, name: &PodName) -> String {
        use std::os::unix::ffi::OsStrExt as _;

        use sha2::Digest as _;
        let digest = sha2::Sha256::digest(real_path(&self.config).as_os_str().as_bytes());
        format!("podlink-{name}-{}", hex::encode(&digest[..4]))
    }

    /// A pod's own folder.
    pub fn pod_dir(&self, name: &PodName) -> PathBuf {
        self.config.join(name.as_str())
    }

    /// The folder of a pod's virtual disk.
    pub fn storage_dir(&self, name: &PodName) -> PathBuf {
        self.data.join(name.as_str()).join("storage")
    }
}

/// The path without symbolic links, as far as it exists.
fn real_path(path: &Path) -> PathBuf {
    for existing in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (existing.canonicalize(), path.strip_prefix(existing)) {
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["windows", "a", "0-_", &"x".repeat(63)] {
            assert!(good.parse::<PodName>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "_a", "A", "a/b", "..", "a b", "ä", &"x".repeat(64)] {
            assert!(bad.parse::<PodName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_relative_home_is_refused() {
        assert!(Home::at("relative".into()).is_err());
    }

    #[test]
    fn a_home_behind_a_link_has_the_same_project_before_and_after_it_is_made() {
        let top = tempfile::tempdir().unwrap();
        let (real, link) = (top.path().join("real"), top.path().join("link"));
        fs_err::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let name: PodName = "a".parse().unwrap();
        let project = |home: PathBuf| Home::at(home).unwrap().project(&name);
        let before = project(link.join("home"));
        fs_err::create_dir(real.join("home")).unwrap();
        assert_eq!(before, project(link.join("home")));
        assert_eq!(before, project(real.join("home")));
        assert_ne!(before, project(real));
    }
}
