//! Reading a log while it is written, over all of the files that it has become.
//!
//! Implementation note: a file that is held open keeps its identity, whatever its name becomes; those after it are found
//! by their place among the names, or, where it has lost its own, by having been written to later.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use super::{
    super::sys::{FileId, file_id, file_id_at},
    ring::Ring,
};

/// What is read of a file at one time.
const CHUNK: usize = 64 * 1024;

/// Most bytes of a line; what is beyond is counted.
const LONGEST_LINE: usize = 256 * 1024;

/// A log that can be read.
#[derive(Debug, Clone)]
pub(in crate::guest) enum Log {
    /// It is kept nowhere.
    None,
    /// A file and those that it has been turned over to.
    File(PathBuf),
    /// In memory.
    Ring(Arc<Ring>),
}

/// A line without its end.
pub(in crate::guest) type Line = String;

/// What one look at a log gives.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::guest) enum Step {
    /// More lines.
    Lines(Vec<Line>),
    /// Lines before the next ones are gone.
    Missed,
    /// Nothing more for now.
    CaughtUp,
}

/// A place in a log that lies in files.
#[derive(Debug)]
pub(in crate::guest) struct FileReader {
    path: PathBuf,
    current: Option<Current>,
    lines: Splitter,
    chunk: Vec<u8>,
}

#[derive(Debug)]
struct Current {
    file: File,
    id: FileId,
}

/// One of the files of a log, by its name at the moment of looking.
#[derive(Debug)]
struct Named {
    path: PathBuf,
    /// 0 for the one that is written to.
    number: u32,
    id: FileId,
    written: SystemTime,
}

impl FileReader {
    /// At the beginning, or at the last so many lines; of a log that is not there yet at its beginning.
    pub(in crate::guest) fn start(path: PathBuf, tail: Option<u64>) -> io::Result<Self> {
        let mut reader = Self { path, current: None, lines: Splitter::default(), chunk: vec![0; CHUNK] };
        let files = files_of(&reader.path)?;
        let mut wanted = tail;
        for named in files.iter().rev() {
            let Some(mut current) = open(named)? else { continue };
            if let Some(count) = &mut wanted {
                let (at, found) = start_of_tail(&mut current.file, *count)?;
                current.file.seek(SeekFrom::Start(at))?;
                *count -= found;
            }
            reader.current = Some(current);
            if wanted == Some(0) {
                break;
            }
        }
        Ok(reader)
    }

    /// Whether there is such a log.
    pub(in crate::guest) const fn exists(&self) -> bool {
        self.current.is_some()
    }

    /// The next lines. Blocks for as long as the disk does.
    pub(in crate::guest) fn step(&mut self) -> io::Result<Step> {
        loop {
            let Some(current) = &mut self.current else {
                let Some(first) = files_of(&self.path)?.into_iter().next() else { return Ok(Step::CaughtUp) };
                self.current = open(&first)?;
                continue;
            };
            let lines = read_lines(&mut current.file, &mut self.chunk, &mut self.lines)?;
            if let Some(lines) = lines {
                return Ok(Step::Lines(lines));
            }
            // cut short by somebody: from its beginning
            if current.file.metadata()?.len() < current.file.stream_position()? {
                current.file.seek(SeekFrom::Start(0))?;
                continue;
            }
            let Some((next, missed)) = next_after(current, &self.path)? else { return Ok(Step::CaughtUp) };
            // it was replaced before this: what it was given until then is read still
            if let Some(lines) = read_lines(&mut current.file, &mut self.chunk, &mut self.lines)? {
                return Ok(Step::Lines(lines));
            }
            let Some(next) = open(&next)? else { continue };
            self.current = Some(next);
            let unended = self.lines.finish();
            if missed {
                return Ok(Step::Missed);
            }
            if let Some(line) = unended {
                return Ok(Step::Lines(vec![line]));
            }
        }
    }

    /// A last line without an end.
    pub(in crate::guest) fn finish(&mut self) -> Option<Line> {
        self.lines.finish()
    }
}

/// The lines that end in the next piece; `None` at the file's end.
fn read_lines(file: &mut File, chunk: &mut [u8], splitter: &mut Splitter) -> io::Result<Option<Vec<Line>>> {
    let mut lines = Vec::new();
    loop {
        match file.read(chunk)? {
            0 => return Ok((!lines.is_empty()).then_some(lines)),
            count => splitter.feed(&chunk[..count], &mut lines),
        }
        if !lines.is_empty() {
            return Ok(Some(lines));
        }
    }
}

/// The file that follows, and whether others came between.
fn next_after(current: &Current, path: &Path) -> io::Result<Option<(Named, bool)>> {
    let mut files = files_of(path)?.into_iter();
    if let Some(at) = files.as_slice().iter().position(|named| named.id == current.id) {
        return Ok(files.nth(at + 1).map(|next| (next, false)));
    }
    let written = current.file.metadata()?.modified()?;
    Ok(files.find(|named| named.written >= written).map(|next| {
        let missed = next.number > 0;
        (next, missed)
    }))
}

/// The named file, unless its name has been given to another meanwhile.
fn open(named: &Named) -> io::Result<Option<Current>> {
    let file = match File::open(&named.path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let id = file_id(&file)?;
    Ok((id == named.id).then_some(Current { file, id }))
}

/// All files of a log, the oldest first.
fn files_of(path: &Path) -> io::Result<Vec<Named>> {
    let named = |path: PathBuf, number| {
        let meta = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
        Some(Named { id: file_id_at(&path).ok()?, path, number, written: meta.modified().ok()? })
    };
    let mut files: Vec<Named> = named(path.to_owned(), 0).into_iter().collect();
    files.extend(turned_over(path)?.into_iter().filter_map(|(number, path)| named(path, number)));
    files.sort_by_key(|named| std::cmp::Reverse(named.number));
    Ok(files)
}

/// The names of the files that a log has been turned over to, with their numbers; none where there is no such folder.
pub(in crate::guest) fn turned_over(path: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(Vec::new()) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let number = |entry: std::fs::DirEntry| {
        let theirs = entry.file_name();
        let digits = theirs.to_str()?.strip_prefix(name.to_str()?)?.strip_prefix('.')?;
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
        Some((plain.then(|| digits.parse().ok())??, entry.path()))
    };
    Ok(entries.flatten().filter_map(number).collect())
}

/// Where the last `count` lines begin, looked for from the end, and how many of them there are.
fn start_of_tail(file: &mut File, count: u64) -> io::Result<(u64, u64)> {
    let len = file.metadata()?.len();
    if count == 0 {
        return Ok((len, 0));
    }
    let (mut at, mut found) = (len, 0);
    let mut chunk = Vec::new();
    while at > 0 {
        let begin = at.saturating_sub(CHUNK as u64);
        file.seek(SeekFrom::Start(begin))?;
        chunk.clear();
        file.by_ref().take(at - begin).read_to_end(&mut chunk)?;
        let mut offset = begin + chunk.len() as u64;
        for byte in chunk.iter().rev() {
            // the line end at the very end begins no further line
            if *byte == b'\n' && offset < len {
                found += 1;
                if found == count {
                    return Ok((offset, found));
                }
            }
            offset -= 1;
        }
        at = begin;
    }
    Ok((0, found + u64::from(len > 0)))
}

/// Makes lines of pieces, none of them longer than is good for memory.
#[derive(Debug, Default)]
struct Splitter {
    line: Vec<u8>,
    more: usize,
}

impl Splitter {
    fn feed(&mut self, mut bytes: &[u8], lines: &mut Vec<Line>) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.keep(&bytes[..end]);
            lines.push(self.take());
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = (LONGEST_LINE - self.line.len()).min(bytes.len());
        self.line.extend_from_slice(&bytes[..room]);
        self.more += bytes.len() - room;
    }

    fn take(&mut self) -> Line {
        let more = std::mem::take(&mut self.more);
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        let text = String::from_utf8_lossy(line);
        if more == 0 { text.into_owned() } else { format!("{text}… ({more} bytes more)") }
    }

    fn finish(&mut self) -> Option<Line> {
        (!self.line.is_empty()).then(|| self.take())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            rotate::{RotatingFile, Rotation},
            sink::Out as _,
        },
        *,
    };

    fn rest(reader: &mut FileReader) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            match reader.step().unwrap() {
                Step::Lines(lines) => all.extend(lines),
                Step::Missed => all.push("(missed)".to_owned()),
                Step::CaughtUp => return all,
            }
        }
    }

    fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
        range.map(|number| format!("line {number}")).collect()
    }

    #[test]
    fn a_reader_follows_over_files_that_are_turned_over() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("log");
        if !super::super::rotate::tests::open_files_give_up_their_names(top.path()) {
            return;
        }
        let mut log = RotatingFile::open(path.clone(), Rotation { max_bytes: 50, files: 4 }).unwrap();
        let mut say = |range: std::ops::Range<u32>| {
            for number in range {
                log.line(format!("line {number}\n").as_bytes()).unwrap();
            }
        };
        let mut reader = FileReader::start(path.clone(), None).unwrap();
        say(0..3);
        assert_eq!(rest(&mut reader), numbers(0..3));
        say(3..20);
        assert_eq!(rest(&mut reader), numbers(3..20));
        assert_eq!(rest(&mut reader), [""; 0]);
        // removed: the older ones are not read again
        std::fs::remove_file(&path).unwrap();
        say(20..22);
        assert_eq!(rest(&mut reader), numbers(20..22));
        // so far behind that files are gone
        say(22..200);
        let late = rest(&mut reader);
        let gap = late.iter().position(|line| line == "(missed)").unwrap();
        assert_eq!(late[..gap], numbers(22..22 + u32::try_from(gap).unwrap()), "what it holds open is read still");
        let after = late.len() - gap - 1;
        assert!(after > 10, "{late:?}");
        assert_eq!(late[gap + 1..], numbers(200 - u32::try_from(after).unwrap()..200));

        for tail in [0, 1, 3, 11, 15] {
            let mut reader = FileReader::start(path.clone(), Some(tail)).unwrap();
            assert_eq!(rest(&mut reader), numbers(200 - u32::try_from(tail).unwrap()..200), "{tail}");
        }
        let all = rest(&mut FileReader::start(path.clone(), None).unwrap());
        assert_eq!(rest(&mut FileReader::start(path, Some(9999)).unwrap()), all);
    }

    #[test]
    fn a_log_that_is_not_there_is_waited_for_and_one_cut_short_is_read_anew() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("log");
        let mut reader = FileReader::start(path.clone(), Some(5)).unwrap();
        assert!(!reader.exists());
        assert_eq!(rest(&mut reader), [""; 0]);
        fs_err::write(&path, "one\r\ntwo\nthr").unwrap();
        assert_eq!(rest(&mut reader), ["one", "two"]);
        assert_eq!(reader.finish().as_deref(), Some("thr"));
        fs_err::write(&path, "new\n").unwrap();
        assert_eq!(rest(&mut reader), ["new"]);
        fs_err::write(&path, format!("{}\n", "x".repeat(LONGEST_LINE + 7))).unwrap();
        let long = rest(&mut FileReader::start(path, None).unwrap()).remove(0);
        assert!(long.ends_with("x… (7 bytes more)") && long.len() < LONGEST_LINE + 30, "{}", long.len());
    }
}
