//! A local agent's log: the files in the pod's folder.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use jiff::Timestamp;

use super::{LogsRequest, LogsSettings, feed::Feed, merge::Splitter};
use crate::host::{
    Error, ErrorKind, Pod, Result,
    engine::{self, ContainerState},
};

/// Files that the agent may have turned its log over to: far more than it keeps.
const MOST_FILES: u32 = 1000;

/// Hands the files on, the oldest first, and follows the newest.
pub(super) async fn read(pod: &Pod, request: &LogsRequest, settings: &LogsSettings, feed: &mut Feed) -> Result<()> {
    let path = engine::local_log_file(pod);
    let failed = |error: io::Error| {
        let missing = error.kind() == io::ErrorKind::NotFound;
        let failure = Error::new(ErrorKind::File, format!("could not read {}", path.display())).with_source(error);
        if missing {
            failure.with_hint(format!("start the pod with `podlink pod up --pod {}`", pod.name()))
        } else {
            failure
        }
    };
    let mut files = opened(&path, request.tail).map_err(failed)?;
    feed.reads().await;
    let mut chunk = vec![0; 16 << 10];
    let mut splitter = Splitter::default();
    let Some(mut file) = files.pop() else { return Ok(()) };
    for mut old in files {
        copy(&mut old, &mut chunk, &mut splitter, feed).await.map_err(failed)?;
    }
    loop {
        // asked before the last read: what the agent said before it ended is read still
        let ended = engine::state(pod).await? != ContainerState::Running;
        let replaced = is_replaced(&file, &path);
        if !copy(&mut file, &mut chunk, &mut splitter, feed).await.map_err(failed)? {
            return Ok(());
        }
        if !request.follow || (ended && !replaced) {
            break;
        }
        match replaced.then(|| File::open(&path)) {
            Some(Ok(next)) => file = next,
            _ => tokio::time::sleep(settings.poll).await,
        }
    }
    if let Some(line) = splitter.finish() {
        let time = time_of(&line);
        drop(feed.line(time, line).await);
    }
    Ok(())
}

/// Reads to the end; `false` where nobody takes the lines.
async fn copy(file: &mut File, chunk: &mut [u8], splitter: &mut Splitter, feed: &mut Feed) -> io::Result<bool> {
    loop {
        let count = file.read(chunk)?;
        if count == 0 {
            return Ok(true);
        }
        for line in splitter.feed(&chunk[..count]) {
            let time = time_of(&line);
            if feed.line(time, line).await.is_err() {
                return Ok(false);
            }
        }
    }
}

/// The files in which the last lines are, or all, each at the place where they begin; the newest is the last.
fn opened(path: &Path, tail: Option<u32>) -> io::Result<Vec<File>> {
    let mut files = vec![File::open(path)?];
    for number in 1..=MOST_FILES {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        match File::open(PathBuf::from(name)) {
            Ok(file) => files.push(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        }
    }
    if let Some(tail) = tail {
        let mut wanted = tail;
        let mut needed = 0;
        for file in &mut files {
            let (at, found) = start_of_tail(file, wanted)?;
            file.seek(SeekFrom::Start(at))?;
            (wanted, needed) = (wanted - found, needed + 1);
            if wanted == 0 {
                break;
            }
        }
        files.truncate(needed);
    }
    files.reverse();
    Ok(files)
}

/// Whether another file has taken the name: the agent turns its log over when it grows large.
fn is_replaced(file: &File, path: &Path) -> bool {
    let id = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    matches!((file.metadata().map(id), std::fs::metadata(path).map(id)), (Ok(open), Ok(named)) if open != named)
}

/// Where the last `count` lines begin, looked for from the end, and how many of them there are.
fn start_of_tail(file: &mut File, count: u32) -> io::Result<(u64, u32)> {
    const STEP: u64 = 16 << 10;
    let len = file.metadata()?.len();
    if count == 0 {
        return Ok((len, 0));
    }
    let (mut at, mut ends) = (len, 0);
    let mut chunk = Vec::new();
    while at > 0 {
        let begin = at.saturating_sub(STEP);
        file.seek(SeekFrom::Start(begin))?;
        chunk.clear();
        file.by_ref().take(at - begin).read_to_end(&mut chunk)?;
        let mut offset = begin + chunk.len() as u64;
        for byte in chunk.iter().rev() {
            // the line end at the very end begins no further line
            if *byte == b'\n' && offset < len {
                ends += 1;
                if ends == count {
                    return Ok((offset, ends));
                }
            }
            offset -= 1;
        }
        at = begin;
    }
    Ok((0, ends + u32::from(len > 0)))
}

/// When the agent said it: its lines begin with the time, as text and as JSON.
fn time_of(line: &str) -> Option<Timestamp> {
    let text = line.strip_prefix(r#"{"timestamp":""#).unwrap_or(line);
    text.split([' ', '"']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_found_over_all_files() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("log");
        let long = "x".repeat(20_000);
        fs_err::write(&path, format!("one\n{long}\nthree\n")).unwrap();
        fs_err::write(top.path().join("log.1"), "minus one\nzero\n").unwrap();
        let tail = |count| {
            let mut text = String::new();
            for mut file in opened(&path, count).unwrap() {
                file.read_to_string(&mut text).unwrap();
            }
            text
        };
        assert_eq!(tail(Some(0)), "");
        assert_eq!(tail(Some(1)), "three\n");
        assert_eq!(tail(Some(2)), format!("{long}\nthree\n"));
        assert_eq!(tail(Some(4)), format!("zero\none\n{long}\nthree\n"));
        let all = format!("minus one\nzero\none\n{long}\nthree\n");
        assert_eq!((tail(Some(5)), tail(Some(99)), tail(None)), (all.clone(), all.clone(), all));
    }

    #[test]
    fn the_agents_lines_tell_their_time() {
        let time = Some("2026-11-29T14:00:00.5Z".parse().unwrap());
        assert_eq!(time_of("2026-11-29T14:00:00.500000Z  INFO podlink: x"), time);
        assert_eq!(time_of(r#"{"timestamp":"2026-11-29T14:00:00.500000Z","level":"INFO"}"#), time);
        assert_eq!(time_of("panicked"), None);
    }
}
