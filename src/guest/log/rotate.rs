//! A log file that is turned over when it has grown: appended to by whole lines, renamed and never rewritten.
//!
//! Implementation note: each line is written under a lock on the file itself, and only while the file still bears its
//! name. So several agents can have one log, and whoever holds the lock of the named file is the only one that turns it
//! over. A holder that stands still (a stopped process) is waited for briefly; then lines are appended without the lock,
//! which is still whole lines, and the file is not turned over.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    super::sys::{FileId, file_id, file_id_at, open_private_append, truncate, try_lock, unlock},
    sink::Out,
};

/// How long another agent's lock on the file is waited for.
const LOCK_PATIENCE: Duration = Duration::from_millis(200);

/// How long after that, or after a rename that failed, it is not tried again.
const PAUSE: Duration = Duration::from_secs(5);

/// How often in a row the file may have been replaced under a line.
const TRIES: usize = 8;

/// How much is kept of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes at which the file is turned over.
    pub max_bytes: u64,
    /// Files that are kept besides it, `.1` the newest.
    pub files: u32,
}

impl Rotation {
    /// Sixty MiB in all.
    pub const DEFAULT: Self = Self { max_bytes: 10 * 1024 * 1024, files: 5 };
}

/// The name of the `number`th of the files that have been turned over.
fn rotated(path: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{number}"));
    name.into()
}

/// The file.
#[derive(Debug)]
pub(super) struct RotatingFile {
    path: PathBuf,
    rotation: Rotation,
    /// See [`LOCK_PATIENCE`].
    patience: Duration,
    open: Option<Open>,
    /// The last line was cut, and the next begins on a line of its own.
    midway: bool,
    no_lock_until: Option<Instant>,
    no_rotation_until: Option<Instant>,
}

#[derive(Debug)]
struct Open {
    file: File,
    id: FileId,
    /// Neither a pipe nor a device.
    is_file: bool,
}

impl RotatingFile {
    pub(super) fn open(path: PathBuf, rotation: Rotation) -> io::Result<Self> {
        let open = Some(opened(&path)?);
        Ok(Self {
            path,
            rotation,
            patience: LOCK_PATIENCE,
            open,
            midway: false,
            no_lock_until: None,
            no_rotation_until: None,
        })
    }

    /// Takes the lock; `false` where somebody keeps it.
    fn lock(&mut self, file: &File) -> bool {
        if is_ahead(self.no_lock_until) {
            return try_lock(file).is_ok();
        }
        let deadline = Instant::now() + self.patience;
        while try_lock(file).is_err() {
            if Instant::now() >= deadline {
                self.no_lock_until = Some(Instant::now() + PAUSE);
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Gives each file the name of the one that is older.
    fn rotate(&self) -> io::Result<()> {
        for number in (1..self.rotation.files).rev() {
            match std::fs::rename(rotated(&self.path, number), rotated(&self.path, number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(&self.path, rotated(&self.path, 1))
    }

    /// Writes the line under whatever lock there is; one that does not fit is taken back where nobody else can have
    /// written behind it.
    fn write(&mut self, file: &File, locked: bool, line: &[u8]) -> io::Result<()> {
        let before = file.metadata()?.len();
        let begun = if self.midway { [b"\n", line].concat() } else { line.to_owned() };
        // `write_all` goes on behind a short write, which only a full disk makes
        let written = (&mut &*file).write_all(&begun);
        self.midway = match &written {
            Ok(()) => false,
            Err(_) if locked => truncate(file, before).is_err() || self.midway,
            Err(_) => true,
        };
        written
    }
}

impl Out for RotatingFile {
    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        for _ in 0..TRIES {
            // a file that was removed is made anew, in a folder that is there
            let open = match self.open.take() {
                Some(open) => open,
                None => opened(&self.path)?,
            };
            if !open.is_file {
                let written = (&mut &open.file).write_all(line);
                self.open = Some(open);
                return written;
            }
            let locked = self.lock(&open.file);
            let named = file_id_at(&self.path);
            if named.ok() != Some(open.id) {
                continue; // dropped, and its lock with it
            }
            let len = open.file.metadata()?.len();
            if locked
                && len > 0
                && len.saturating_add(line.len() as u64) > self.rotation.max_bytes
                && !is_ahead(self.no_rotation_until)
            {
                if self.rotate().is_ok() {
                    continue;
                }
                self.no_rotation_until = Some(Instant::now() + PAUSE);
            }
            let written = self.write(&open.file, locked, line);
            if locked {
                unlock(&open.file)?;
            }
            self.open = Some(open);
            return written;
        }
        Err(io::Error::other("the file is replaced again and again"))
    }
}

fn opened(path: &Path) -> io::Result<Open> {
    let file = open_private_append(path)?;
    // some systems have nothing to tell of a device
    let is_file = file.metadata().is_ok_and(|meta| meta.is_file());
    Ok(Open { id: file_id(&file)?, is_file, file })
}

fn is_ahead(time: Option<Instant>) -> bool {
    time.is_some_and(|time| Instant::now() < time)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Whether a file that somebody has open loses its name at once when that is given to another: on Unix always, on
    /// Windows where the file system can (NTFS), under Wine not. Without it the file is turned over later.
    pub(in super::super) fn open_files_give_up_their_names(folder: &Path) -> bool {
        let [old, new] = ["old", "new"].map(|name| folder.join(name));
        fs_err::write(&old, "old").unwrap();
        fs_err::write(&new, "new").unwrap();
        let held = File::open(&old).unwrap();
        let gives = std::fs::rename(&new, &old).is_ok();
        drop(held);
        for path in [old, new] {
            drop(std::fs::remove_file(path));
        }
        gives
    }

    const SMALL: Rotation = Rotation { max_bytes: 100, files: 3 };

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn it_is_turned_over_by_size_and_so_many_are_kept() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("log");
        let mut file = RotatingFile::open(path.clone(), SMALL).unwrap();
        for number in 0..60 {
            file.line(format!("line {number:03}\n").as_bytes()).unwrap();
        }
        assert_eq!(names(top.path()), ["log", "log.1", "log.2", "log.3"]);
        let mut all = String::new();
        for path in [rotated(&path, 3), rotated(&path, 2), rotated(&path, 1), path] {
            let text = fs_err::read_to_string(path).unwrap();
            assert!(text.len() <= 100 && text.ends_with('\n'));
            all += &text;
        }
        let numbers: Vec<u32> = all.lines().map(|line| line[5..].parse().unwrap()).collect();
        assert!(numbers.len() > 30 && numbers.windows(2).all(|two| two[1] == two[0] + 1), "{numbers:?}");
        assert_eq!(numbers.last(), Some(&59));
        // a line longer than a file is a file of its own
        file.line(format!("{}\n", "x".repeat(300)).as_bytes()).unwrap();
    }

    #[test]
    fn a_removed_file_is_made_anew_and_so_is_a_folder_waited_for() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("logs");
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("log");
        if !open_files_give_up_their_names(top.path()) {
            return;
        }
        let mut file = RotatingFile::open(path.clone(), SMALL).unwrap();
        file.line(b"one\n").unwrap();
        std::fs::remove_file(&path).unwrap();
        file.line(b"two\n").unwrap();
        assert_eq!(fs_err::read_to_string(&path).unwrap(), "two\n");
        std::fs::remove_dir_all(&folder).unwrap();
        file.line(b"three\n").unwrap_err();
        std::fs::create_dir(&folder).unwrap();
        file.line(b"four\n").unwrap();
        assert_eq!(fs_err::read_to_string(&path).unwrap(), "four\n");
    }

    #[test]
    fn several_writers_of_one_file_lose_nothing_and_mix_nothing() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("log");
        let rotation = Rotation { max_bytes: 4000, files: 1000 };
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let path = path.clone();
                scope.spawn(move || {
                    let mut file = RotatingFile::open(path, rotation).unwrap();
                    file.patience = Duration::from_mins(1);
                    for number in 0..500 {
                        file.line(format!("writer {writer} line {number:03}\n").as_bytes()).unwrap();
                    }
                });
            }
        });
        let mut lines = Vec::new();
        for name in names(top.path()) {
            let text = fs_err::read_to_string(top.path().join(name)).unwrap();
            assert!(text.len() <= 4000);
            lines.extend(text.lines().map(str::to_owned));
        }
        lines.sort();
        let mut expected = Vec::new();
        for writer in 0..4 {
            expected.extend((0..500).map(|number| format!("writer {writer} line {number:03}")));
        }
        assert!(lines == expected, "{} of {}", lines.len(), expected.len());
    }

    #[test]
    fn a_lock_that_is_not_given_back_holds_nothing_up() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("log");
        let mut file = RotatingFile::open(path.clone(), SMALL).unwrap();
        let other = File::open(&path).unwrap();
        try_lock(&other).unwrap();
        let begun = Instant::now();
        for _ in 0..30 {
            file.line(b"0123456789\n").unwrap();
        }
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert_eq!(fs_err::read_to_string(&path).unwrap().len(), 330, "nothing lost, nothing turned over");
    }

    #[test]
    fn a_device_is_written_to_and_never_renamed() {
        if !Path::new("/dev/full").exists() || fs_err::write("/dev/full", b"x").is_ok() {
            return; // no such devices
        }
        let mut file = RotatingFile::open("/dev/null".into(), SMALL).unwrap();
        for _ in 0..100 {
            file.line(b"0123456789\n").unwrap();
        }
        assert!(!Path::new("/dev/null.1").exists());
        // the full disk
        let mut full = RotatingFile::open("/dev/full".into(), SMALL).unwrap();
        full.line(b"x\n").unwrap_err();
    }
}
